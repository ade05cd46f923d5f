//! Events, and where each must end. Failures are asked of the database, so that the workers are those of the image.

use std::collections::BTreeMap;

use sekali_tests::harness::Outgoing;
use tokio_postgres::Client;
use uuid::Uuid;

/// Shares of the events, per mille, as in the demo: 1 % fail at first, 0.2 % always fail, 0.1 % cannot be read.
const FAILS_AT_FIRST: u64 = 10;
const ALWAYS_FAILS: u64 = 2;
const UNREADABLE: u64 = 1;
/// Of the copies, as many follow their original at once as come much later.
const TWICE: u64 = 50;
const SKUS: u64 = 500;
/// Calls of the handler that fail for an event that fails at first: a batch, and the event alone.
const STRIKES: i64 = 2;

/// Where an event ends, and only there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Ledger,
    Dead,
}

pub(crate) struct Event {
    pub(crate) id: Uuid,
    pub(crate) sku: String,
    pub(crate) delta: i64,
    pub(crate) end: End,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Good,
    FailsAtFirst,
    AlwaysFails,
    CutShort,
}

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Everything that is sent.
pub(crate) struct Traffic {
    pub(crate) events: Vec<Event>,
    /// Places in `events`, one for each record.
    pub(crate) order: Vec<usize>,
}

impl Traffic {
    /// So many events, of which some fail, and copies of some.
    pub(crate) fn with_failures(count: usize, seed: u64) -> Traffic {
        Traffic::new(count, seed, |lot| match lot {
            lot if lot < FAILS_AT_FIRST => Kind::FailsAtFirst,
            lot if lot < FAILS_AT_FIRST + ALWAYS_FAILS => Kind::AlwaysFails,
            lot if lot < FAILS_AT_FIRST + ALWAYS_FAILS + UNREADABLE => Kind::CutShort,
            _ => Kind::Good,
        })
    }

    /// So many events that take effect, and copies of some.
    pub(crate) fn good(count: usize, seed: u64) -> Traffic {
        Traffic::new(count, seed, |_| Kind::Good)
    }

    fn new(count: usize, seed: u64, kind: impl Fn(u64) -> Kind) -> Traffic {
        let mut random = Random(seed);
        let mut events = Vec::with_capacity(count);
        let mut places = Vec::new();
        for place in 0..count {
            let kind = kind(random.below(1_000));
            let end = if matches!(kind, Kind::Good | Kind::FailsAtFirst) { End::Ledger } else { End::Dead };
            // Goods come in and go out, never nothing.
            let delta = [-3, -2, -1, 1, 2, 12][random.below(6) as usize];
            events.push(Event { id: Uuid::new_v4(), sku: format!("SKU-{:03}", random.below(SKUS)), delta, end, kind });
            places.push((place, place));
            if random.below(1_000) < TWICE {
                let later = if random.below(2) == 0 { 0 } else { random.below((count - place) as u64) as usize };
                places.push((place + later, place));
            }
        }
        // Stable: a copy never comes before its original.
        places.sort_by_key(|it| it.0);
        Traffic { events, order: places.into_iter().map(|it| it.1).collect() }
    }

    /// Records beyond the first of their event.
    pub(crate) fn copies(&self) -> usize {
        self.order.len() - self.events.len()
    }

    /// Events that end there.
    pub(crate) fn ending(&self, end: End) -> usize {
        self.events.iter().filter(|it| it.end == end).count()
    }

    /// Events that are tried more than once.
    pub(crate) fn retried(&self) -> usize {
        self.events.iter().filter(|it| matches!(it.kind, Kind::FailsAtFirst | Kind::AlwaysFails)).count()
    }

    /// What the quantity of each SKU changes by.
    pub(crate) fn sums(&self) -> BTreeMap<&str, i64> {
        let mut sums = BTreeMap::new();
        for event in self.events.iter().filter(|it| it.end == End::Ledger) {
            *sums.entry(event.sku.as_str()).or_default() += event.delta;
        }
        sums
    }

    /// Has the database refuse what shall fail. Sequences count, because they are what a rollback does not take back.
    pub(crate) async fn prepare(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        client.batch_execute(include_str!("faults.sql")).await?;
        let insert = client.prepare("INSERT INTO fault.event (key, counter, strikes) VALUES ($1, $2, $3)").await?;
        for (place, event) in self.events.iter().enumerate() {
            let strikes = match event.kind {
                Kind::FailsAtFirst => STRIKES,
                Kind::AlwaysFails => i64::MAX,
                Kind::Good | Kind::CutShort => continue,
            };
            let counter = format!("fault.event_{place}");
            client.batch_execute(&format!("CREATE SEQUENCE {counter}")).await?;
            client.execute(&insert, &[&event.id, &counter, &strikes]).await?;
        }
        Ok(())
    }
}

impl Event {
    /// Its record, equal for every copy.
    pub(crate) fn record(&self) -> Outgoing {
        let mut payload = serde_json::json!({ "sku": self.sku, "delta": self.delta }).to_string();
        if self.kind == Kind::CutShort {
            payload.truncate(payload.len() / 2);
        }
        Outgoing::new(self.sku.clone(), payload).id(&self.id.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_there_and_copies_follow_their_originals() {
        let traffic = Traffic::with_failures(20_000, 1);
        for kind in [Kind::FailsAtFirst, Kind::AlwaysFails, Kind::CutShort] {
            assert!(5 < traffic.events.iter().filter(|it| it.kind == kind).count(), "{kind:?}");
        }
        assert!((800..1_200).contains(&traffic.copies()), "{}", traffic.copies());
        let mut gaps = Vec::new();
        let mut first = BTreeMap::new();
        for (place, event) in traffic.order.iter().enumerate() {
            if let Some(first) = first.insert(*event, place) {
                gaps.push(place - first);
            }
        }
        assert_eq!((first.len(), gaps.len()), (20_000, traffic.copies()), "each is there, and at most twice");
        assert!(gaps.contains(&1) && gaps.iter().any(|it| 1_000 < *it), "at once and much later");
        assert_eq!(traffic.ending(End::Ledger) + traffic.ending(End::Dead), 20_000);
        assert_eq!(Traffic::good(100, 1).retried(), 0);
    }
}
