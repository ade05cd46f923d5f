//! Metrics: each is defined once, described and registered at start with all its label values.

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

/// One metric, for every part of the program to define its own as constants.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Full name, with prefix and unit.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// One sentence for operators.
    pub help: &'static str,
    /// Each label with all its values; empty values for a label that is only known at run time, such as a topic.
    pub labels: &'static [(&'static str, &'static [&'static str])],
}

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only rises; its name ends in `_total`.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Distribution with these upper bounds.
    Histogram(&'static [f64]),
}

impl Metric {
    /// A counter without labels.
    pub const fn counter(name: &'static str, help: &'static str) -> Metric {
        Metric { name, kind: Kind::Counter, help, labels: &[] }
    }

    /// A gauge without labels.
    pub const fn gauge(name: &'static str, help: &'static str) -> Metric {
        Metric { name, kind: Kind::Gauge, help, labels: &[] }
    }

    /// A histogram without labels.
    pub const fn histogram(name: &'static str, help: &'static str, buckets: &'static [f64]) -> Metric {
        Metric { name, kind: Kind::Histogram(buckets), help, labels: &[] }
    }

    /// The same with labels.
    pub const fn with(self, labels: &'static [(&'static str, &'static [&'static str])]) -> Metric {
        Metric { labels, ..self }
    }

    /// Bucket bounds, when it is a histogram.
    pub fn buckets(&self) -> Option<&'static [f64]> {
        match self.kind {
            Kind::Histogram(buckets) => Some(buckets),
            Kind::Counter | Kind::Gauge => None,
        }
    }

    /// The counter with these label values.
    pub fn count(&self, labels: &[(&'static str, &'static str)]) -> metrics::Counter {
        counter!(self.name, to_labels(labels))
    }

    /// The gauge with these label values.
    pub fn level(&self, labels: &[(&'static str, &'static str)]) -> metrics::Gauge {
        gauge!(self.name, to_labels(labels))
    }

    /// The histogram with these label values.
    pub fn spread(&self, labels: &[(&'static str, &'static str)]) -> metrics::Histogram {
        histogram!(self.name, to_labels(labels))
    }

    /// Describes it and registers every combination of its label values, at 0. A metric with a label that is only known
    /// at run time is described only.
    pub fn describe_and_register(&self) {
        let unit = if self.name.contains("_seconds") { Unit::Seconds } else { Unit::Count };
        match self.kind {
            Kind::Counter => describe_counter!(self.name, unit, self.help),
            Kind::Gauge => describe_gauge!(self.name, unit, self.help),
            Kind::Histogram(_) => describe_histogram!(self.name, unit, self.help),
        }
        for labels in self.combinations() {
            match self.kind {
                Kind::Counter => self.count(&labels).increment(0),
                Kind::Gauge => self.level(&labels).set(0.0),
                // Fetching the handle registers it; a recorded zero would be an observation.
                Kind::Histogram(_) => drop(self.spread(&labels)),
            }
        }
    }

    fn combinations(&self) -> Vec<Vec<(&'static str, &'static str)>> {
        let mut all = vec![Vec::new()];
        for (name, values) in self.labels {
            all = all
                .iter()
                .flat_map(|set: &Vec<_>| values.iter().map(move |value| [set.as_slice(), &[(*name, *value)]].concat()))
                .collect();
        }
        all
    }
}

fn to_labels(labels: &[(&'static str, &'static str)]) -> Vec<Label> {
    labels.iter().map(|(name, value)| Label::from_static_parts(name, value)).collect()
}

/// Records enqueued but not yet acknowledged by Kafka; the leader counts up to 100,000.
pub const OUTBOX_PENDING: Metric = Metric::gauge(
    "sekali_outbox_pending_messages",
    "Records in the outbox that Kafka has not acknowledged; counted by the leader up to 100000, 0 elsewhere.",
);
/// Age of the oldest of them.
pub const OUTBOX_OLDEST_PENDING: Metric = Metric::gauge(
    "sekali_outbox_oldest_pending_age_seconds",
    "Age of the oldest record in the outbox that Kafka has not acknowledged; 0 when there is none or elsewhere.",
);
/// Age of the transaction that keeps dead rows from being cleaned up.
pub const OUTBOX_HORIZON_AGE: Metric = Metric::gauge(
    "sekali_outbox_horizon_age_seconds",
    "Age of the oldest open transaction of the database, as far as the role may see it: until it ends, rows of the outbox \
     that were published cannot be cleaned up, and what it enqueued is not published; told by the leader, 0 elsewhere.",
);
/// Size of the outbox on disk.
pub const OUTBOX_BYTES: Metric =
    Metric::gauge("sekali_outbox_bytes", "Size of the outbox on disk with its index; told by the leader, 0 elsewhere.");
/// Rows that vacuum has to clean up.
pub const OUTBOX_DEAD_ROWS: Metric = Metric::gauge(
    "sekali_outbox_dead_rows",
    "Rows of the outbox that were published and not yet cleaned up, as the server's statistics say; told by the leader, 0 \
     elsewhere.",
);
/// Whether this process publishes.
pub const OUTBOX_LEADER: Metric =
    Metric::gauge("sekali_outbox_leader", "1 in the process that publishes the outbox, 0 in the others.");
/// Records that left the outbox, or tried to.
pub const OUTBOX_PUBLISHED: Metric = Metric::counter(
    "sekali_outbox_published_total",
    "Records of the outbox by result: ok (acknowledged), refused (dead letter), failed (tried again).",
)
.with(&[("result", &["ok", "refused", "failed"])]);
/// How long Kafka takes.
pub const OUTBOX_PUBLISH_DURATION: Metric = Metric::histogram(
    "sekali_outbox_publish_duration_seconds",
    "Time from handing a page of the outbox to Kafka until its last record is decided.",
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0],
);

/// Every metric of this crate.
pub const ALL: &[Metric] = &[
    OUTBOX_PENDING,
    OUTBOX_OLDEST_PENDING,
    OUTBOX_HORIZON_AGE,
    OUTBOX_BYTES,
    OUTBOX_DEAD_ROWS,
    OUTBOX_LEADER,
    OUTBOX_PUBLISHED,
    OUTBOX_PUBLISH_DURATION,
];

/// What only the leader knows.
pub(crate) const OF_LEADER: [Metric; 6] =
    [OUTBOX_LEADER, OUTBOX_PENDING, OUTBOX_OLDEST_PENDING, OUTBOX_HORIZON_AGE, OUTBOX_BYTES, OUTBOX_DEAD_ROWS];

/// Describes and registers [`ALL`]. Call it once the recorder is installed.
pub fn describe_and_register() {
    ALL.iter().for_each(Metric::describe_and_register);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_help_follow_the_rules() {
        for metric in ALL {
            assert!(metric.name.starts_with("sekali_"), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
            assert!(metric.buckets().is_none_or(|it| it.is_sorted() && !it.is_empty()), "{}", metric.name);
        }
    }

    #[test]
    fn every_combination_of_label_values_is_registered() {
        let metric = Metric::counter("x_total", "X.").with(&[("a", &["1", "2"]), ("b", &["3", "4"])]);
        let expected =
            [[("a", "1"), ("b", "3")], [("a", "1"), ("b", "4")], [("a", "2"), ("b", "3")], [("a", "2"), ("b", "4")]];
        assert_eq!(metric.combinations(), expected);
        assert_eq!(Metric::gauge("x", "X.").combinations(), [[]]);
        assert!(metric.with(&[("topic", &[])]).combinations().is_empty());
    }
}
