//! The records: stock events of the shape of a retailer's, from a seed.

use std::collections::HashMap;

use sekali_tests::harness::Outgoing;
use uuid::{Builder, Uuid};

const SEED: u64 = 42;
const SKUS: usize = 4_000;
/// Skew of the SKUs: the most frequent one has about 0.6 % of the events, as in the retail data.
const SKEW: f64 = 1.6;
/// 2010-12-01T08:26:00Z.
const FIRST_AT_S: u64 = 1_291_191_960;

/// How some of the events fail, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The handler refuses the event before it writes anything.
    Reject,
    /// A statement of the handler fails, and with it its transaction.
    Sql,
}

impl Fault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::Reject => "reject",
            Fault::Sql => "sql",
        }
    }
}

/// Header that tells the handler how to fail.
pub(crate) const FAULT: &str = "fault";

/// One event, as the oracle expects to find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) key: Uuid,
    sku: usize,
    pub(crate) delta: i64,
    pub(crate) fails: bool,
}

/// What is produced, known before anything is consumed.
pub(crate) struct Load {
    fault: Option<Fault>,
    skus: Vec<String>,
    events: Vec<Event>,
}

impl Load {
    /// So many events, of which so many in a thousand fail.
    pub(crate) fn new(count: usize, fault: Option<(Fault, u64)>) -> Load {
        let mut random = Random(SEED);
        let mut faults = Random(SEED + 1);
        let share = fault.map_or(0, |it| it.1);
        let skus = (0..SKUS).map(|it| format!("{}{}", 10_000 + it * 17, ["", "A", "B", "L"][it % 4])).collect();
        let event = |index: usize| {
            let sku = (random.unit().powf(SKEW) * SKUS as f64) as usize;
            let delta = match random.next() % 50 {
                0 => (random.next() % 12) as i64 + 1,
                _ => -((random.next() % 24) as i64 + 1),
            };
            let mut tail = [0; 10];
            tail[..8].copy_from_slice(&random.next().to_be_bytes());
            tail[8..].copy_from_slice(&(index as u16).to_be_bytes());
            // A few keys a millisecond, in order, as a producer that makes version 7 keys has them.
            let key = Builder::from_unix_timestamp_millis(FIRST_AT_S * 1000 + index as u64 / 4, &tail).into_uuid();
            Event { key, sku: sku.min(SKUS - 1), delta, fails: faults.next() % 1000 < share }
        };
        Load { fault: fault.map(|it| it.0), skus, events: (0..count).map(event).collect() }
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Events that take effect, and those that do not.
    pub(crate) fn expected(&self) -> (usize, usize) {
        let failing = self.events.iter().filter(|it| it.fails).count();
        (self.events.len() - failing, failing)
    }

    pub(crate) fn skus(&self) -> usize {
        self.totals().len()
    }

    pub(crate) fn sku(&self, event: &Event) -> &str {
        &self.skus[event.sku]
    }

    /// Sum and number of the events of each SKU.
    pub(crate) fn totals(&self) -> HashMap<&str, (i64, i64)> {
        let mut totals: HashMap<&str, (i64, i64)> = HashMap::new();
        for event in self.events.iter().filter(|it| !it.fails) {
            let total = totals.entry(self.sku(event)).or_default();
            total.0 += event.delta;
            total.1 += 1;
        }
        totals
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Outgoing> {
        self.events.iter().enumerate().map(|(index, event)| {
            let (sku, id) = (self.sku(event), event.key.to_string());
            let invoice = 536_365 + index / 20;
            let price = 1.25 + (event.sku % 40) as f64 / 4.0;
            let minute = index / 60 % 60;
            let json = format!(
                "{{\"id\":\"{invoice}-{line}\",\"type\":\"stock.adjusted\",\"sku\":\"{sku}\",\"delta\":{delta},\
                 \"invoice\":\"{invoice}\",\"occurred_at\":\"2010-12-01T08:{minute:02}:00Z\",\"unit_price\":{price},\
                 \"country\":\"United Kingdom\"}}",
                line = index % 20 + 1,
                delta = event.delta,
            );
            let fault = self.fault.filter(|_| event.fails).map_or("", Fault::name);
            Outgoing::new(sku.to_owned(), json)
                .header(FAULT, fault)
                .id(&id)
                .header("ce_specversion", "1.0")
                .header("ce_id", id)
                .header("ce_source", "/retail/till")
                .header("ce_type", "stock.adjusted")
                .header("content-type", "application/json")
        })
    }
}

/// SplitMix64: the same events on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        it ^ (it >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
