//! Names of retry and dead-letter topics, from templates and back.

use std::collections::BTreeSet;
use std::time::Duration;

/// Template of retry topics unless configured otherwise.
pub const RETRY_TEMPLATE: &str = "{topic}.{group}.retry.{delay}";
/// Template of dead-letter topics unless configured otherwise.
pub const DLQ_TEMPLATE: &str = "{topic}.{group}.dlq";
/// Longest topic name that Kafka accepts.
pub const NAME_LEN_MAX: usize = 249;

/// Both templates, checked: each placeholder occurs exactly once where it must.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTemplates {
    retry: String,
    dlq: String,
}

impl Default for TopicTemplates {
    fn default() -> TopicTemplates {
        TopicTemplates { retry: RETRY_TEMPLATE.to_owned(), dlq: DLQ_TEMPLATE.to_owned() }
    }
}

impl TopicTemplates {
    /// Checks and keeps the templates.
    ///
    /// # Errors
    /// A placeholder is missing, there twice or unknown.
    pub fn new(retry: &str, dlq: &str) -> Result<TopicTemplates, TopicError> {
        check_template(retry, &["{topic}", "{group}", "{delay}"])?;
        check_template(dlq, &["{topic}", "{group}"])?;
        Ok(TopicTemplates { retry: retry.to_owned(), dlq: dlq.to_owned() })
    }

    /// Name of the retry topic with that delay.
    pub fn retry(&self, topic: &str, group: &str, delay: Duration) -> String {
        fill(&self.retry, topic, group, &delay_name(delay))
    }

    /// Name of the dead-letter topic.
    pub fn dlq(&self, topic: &str, group: &str) -> String {
        fill(&self.dlq, topic, group, "")
    }

    /// Reads a retry topic's name back: the source topic and the delay. `None` for any other name.
    pub fn read_retry<'a>(&self, name: &'a str, group: &str) -> Option<(&'a str, Duration)> {
        let template = self.retry.replace("{group}", group);
        let (topic_at, delay_at) = (template.find("{topic}")?, template.find("{delay}")?);
        let (first, second) = if topic_at < delay_at { ("{topic}", "{delay}") } else { ("{delay}", "{topic}") };
        let (head, rest) = template.split_once(first)?;
        let (middle, tail) = rest.split_once(second)?;
        let inner = name.strip_prefix(head)?.strip_suffix(tail)?;
        // A topic may contain the separator, a delay never does: split where the delay is.
        let (topic, delay) = if first == "{topic}" {
            inner.rsplit_once(middle)?
        } else {
            inner.split_once(middle).map(|(delay, topic)| (topic, delay))?
        };
        let delay = parse_delay_name(delay)?;
        (!topic.is_empty()).then_some((topic, delay))
    }

    /// Reads a dead-letter topic's name back: the source topic. `None` for any other name.
    pub fn read_dlq<'a>(&self, name: &'a str, group: &str) -> Option<&'a str> {
        let template = self.dlq.replace("{group}", group);
        let (head, tail) = template.split_once("{topic}")?;
        let topic = name.strip_prefix(head)?.strip_suffix(tail)?;
        (!topic.is_empty()).then_some(topic)
    }

    /// Every topic of a group, checked: legal names, and no topic in two roles, which would be a cycle.
    ///
    /// # Errors
    /// Names the topic that is illegal or would receive its own failures.
    pub fn all(&self, sources: &[String], group: &str, delays: &[Duration]) -> Result<GroupTopics, TopicError> {
        let mut seen = BTreeSet::new();
        let mut claim = |name: &str| {
            check_name(name)?;
            if seen.insert(name.to_owned()) { Ok(()) } else { Err(TopicError::Cycle { name: name.to_owned() }) }
        };
        let mut topics = Vec::new();
        for source in sources {
            claim(source)?;
        }
        for source in sources {
            if self.read_retry(source, group).is_some() || self.read_dlq(source, group).is_some() {
                return Err(TopicError::Cycle { name: source.clone() });
            }
            let distinct: BTreeSet<Duration> = delays.iter().copied().collect();
            let mut retry = Vec::new();
            for delay in distinct {
                let name = self.retry(source, group, delay);
                claim(&name)?;
                retry.push((delay, name));
            }
            let dlq = self.dlq(source, group);
            claim(&dlq)?;
            topics.push(SourceTopics { source: source.clone(), retry, dlq });
        }
        Ok(GroupTopics { topics })
    }
}

/// The topics of one consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTopics {
    /// One entry a source topic, in the order given.
    pub topics: Vec<SourceTopics>,
}

/// One source topic with the topics that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTopics {
    /// The topic that producers write to.
    pub source: String,
    /// Delay and name of each retry topic, shortest delay first.
    pub retry: Vec<(Duration, String)>,
    /// The dead-letter topic.
    pub dlq: String,
}

/// A topic name or template that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// Kafka would refuse the name.
    #[error("\"{name}\" is not a legal topic name: use 1 to 249 letters, digits, dots, underscores and hyphens")]
    Illegal {
        /// The name.
        name: String,
    },
    /// A topic would receive its own failures.
    #[error(
        "topic \"{name}\" would be used twice (source, retry or dead-letter topic): failures would go round in a cycle"
    )]
    Cycle {
        /// The name.
        name: String,
    },
    /// A template lacks a placeholder, repeats it or has another.
    #[error("template \"{template}\" must contain {expected} exactly once each and no other placeholder")]
    Template {
        /// The template.
        template: String,
        /// The placeholders it needs.
        expected: String,
    },
}

/// Whether Kafka accepts the name of a topic.
///
/// # Errors
/// It is empty, too long, `.`, `..`, or has another character than ASCII letters, digits, `.`, `_` and `-`.
pub fn check_name(name: &str) -> Result<(), TopicError> {
    let legal_character = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
    let legal = !name.is_empty()
        && name.len() <= NAME_LEN_MAX
        && name != "."
        && name != ".."
        && name.chars().all(legal_character);
    if legal { Ok(()) } else { Err(TopicError::Illegal { name: name.to_owned() }) }
}

/// A delay in the largest unit that divides it: `500ms`, `2s`, `5m`, `1h`.
pub fn delay_name(delay: Duration) -> String {
    let ms = delay.as_millis();
    for (unit, name) in [(3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if 0 < ms && ms.is_multiple_of(unit) {
            return format!("{}{name}", ms / unit);
        }
    }
    if ms == 0 { "0s".to_owned() } else { format!("{ms}ms") }
}

fn parse_delay_name(text: &str) -> Option<Duration> {
    let digits = text.find(|it: char| !it.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).map(Duration::from_millis)
}

fn check_template(template: &str, placeholders: &[&str]) -> Result<(), TopicError> {
    let once = placeholders.iter().all(|it| template.matches(it).count() == 1);
    if once
        && template.matches('{').count() == placeholders.len()
        && template.matches('}').count() == placeholders.len()
    {
        return Ok(());
    }
    Err(TopicError::Template { template: template.to_owned(), expected: placeholders.join(", ") })
}

fn fill(template: &str, topic: &str, group: &str, delay: &str) -> String {
    // The topic last: it is the only part that comes from outside and could look like a placeholder.
    template.replace("{delay}", delay).replace("{group}", group).replace("{topic}", topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn names_go_there_and_back() {
        let templates = TopicTemplates::default();
        for (delay, expected) in [
            (Duration::from_millis(500), "stock.adjusted.g.retry.500ms"),
            (2 * SECOND, "stock.adjusted.g.retry.2s"),
            (120 * SECOND, "stock.adjusted.g.retry.2m"),
            (7200 * SECOND, "stock.adjusted.g.retry.2h"),
        ] {
            let name = templates.retry("stock.adjusted", "g", delay);
            assert_eq!(name, expected);
            assert_eq!(templates.read_retry(&name, "g"), Some(("stock.adjusted", delay)));
        }
        assert_eq!(templates.read_dlq("stock.adjusted.g.dlq", "g"), Some("stock.adjusted"));
        for foreign in ["stock.adjusted", "stock.h.retry.2s", "stock.g.retry.soon", ".g.retry.2s", "stock.g.retry.s"] {
            assert_eq!(templates.read_retry(foreign, "g"), None, "{foreign}");
        }
        let other = TopicTemplates::new("r-{delay}-{group}-{topic}", "d.{group}.{topic}").unwrap();
        let name = other.retry("a-b", "g", 2 * SECOND);
        assert_eq!((name.as_str(), other.read_retry(&name, "g")), ("r-2s-g-a-b", Some(("a-b", 2 * SECOND))));
    }

    #[test]
    fn cycles_and_illegal_names_are_refused() {
        let templates = TopicTemplates::default();
        let all = |sources: &[&str]| {
            let sources: Vec<String> = sources.iter().map(|&it| it.to_owned()).collect();
            templates.all(&sources, "g", &[SECOND])
        };
        assert_eq!(all(&["a"]).unwrap().topics[0].dlq, "a.g.dlq");
        for sources in [&["a", "a"][..], &["a", "a.g.dlq"], &["a", "a.g.retry.1s"], &["x.g.dlq"], &["x.g.retry.9s"]] {
            assert!(matches!(all(sources), Err(TopicError::Cycle { .. })), "{sources:?}");
        }
        for source in ["", "..", "a b", "ä", &"x".repeat(250)] {
            assert!(matches!(all(&[source]), Err(TopicError::Illegal { .. })), "{source}");
        }
        for (retry, dlq) in
            [("{topic}", DLQ_TEMPLATE), (RETRY_TEMPLATE, "dlq"), (RETRY_TEMPLATE, "{topic}.{group}.{x}")]
        {
            assert!(TopicTemplates::new(retry, dlq).is_err());
        }
    }

    #[test]
    fn equal_delays_share_a_topic() {
        let topics = TopicTemplates::default().all(&["a".to_owned()], "g", &[SECOND, SECOND]).unwrap();
        assert_eq!(topics.topics[0].retry.len(), 1);
    }
}
