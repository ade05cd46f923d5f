//! The records: stock events of the shape of a retailer's, from a seed, and what must come of them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use uuid::{Builder, Uuid};

use crate::fault::{Fault, HEADER};
use crate::produce::Outgoing;

const SEED: u64 = 42;
const SKUS: usize = 4_000;
/// Skew of the SKUs: the most frequent one has about 0.6 % of the events, as in the retail data.
const SKEW: f64 = 1.6;
/// 2010-12-01T08:26:00Z.
const FIRST_AT_S: u64 = 1_291_191_960;
/// Every second copy follows its original this closely, so that one batch has both.
const CLOSE: usize = 200;

/// How many events each SKU has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Skus {
    /// As in the retail data.
    Retail,
    /// As many each.
    Uniform,
    /// By rank, with this exponent.
    Zipf(f64),
    /// There is one SKU.
    One,
    /// So many events of each, on average.
    Few(usize),
}

/// Idempotency keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// UUIDs of version 7, in order.
    Ordered,
    /// 122 random bits, as the hash of any other text has them.
    Random,
}

/// What kind of load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Records to produce, copies included.
    pub records: usize,
    /// SKUs.
    pub skus: Skus,
    /// Idempotency keys.
    pub keys: Keys,
    /// So many events in a thousand fail.
    pub fault: Option<(Fault, u64)>,
    /// So many records in a thousand are copies of an earlier one.
    pub copies: u64,
    /// Whether the events of a SKU lie in any partition, rather than in that of the SKU.
    pub spread: bool,
}

impl Shape {
    /// The usual load.
    pub fn new(records: usize) -> Shape {
        Shape { records, skus: Skus::Retail, keys: Keys::Ordered, fault: None, copies: 0, spread: false }
    }
}

/// One event, as the oracle expects to find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Idempotency key.
    pub key: Uuid,
    pub(crate) sku: usize,
    /// Change of the quantity.
    pub delta: i64,
    /// Whether it is made to fail, the first time or for good.
    pub fails: bool,
}

/// What is produced, known before anything is consumed.
pub struct Load {
    shape: Shape,
    pub(crate) skus: Vec<String>,
    pub(crate) events: Vec<Event>,
    /// The event of each record.
    order: Vec<u32>,
    /// Payload of each event, where it is not made from the event.
    payloads: Vec<Bytes>,
}

impl Load {
    /// The same one for the same shape, on every machine.
    pub fn new(shape: Shape) -> Arc<Load> {
        let mut random = Random(SEED);
        let mut faults = Random(SEED + 1);
        let mut copies = Random(SEED + 2);
        let choice = Choice::new(shape);
        let skus = (0..choice.count).map(|it| format!("{}{}", 10_000 + it * 17, ["", "A", "B", "L"][it % 4]));
        let mut events: Vec<Event> = Vec::new();
        let mut order = Vec::with_capacity(shape.records);
        let share = shape.fault.map_or(0, |it| it.1);
        for record in 0..shape.records {
            if copies.next() % 1000 < shape.copies && 0 < record {
                let close = if copies.next().is_multiple_of(2) { CLOSE.min(record) } else { record };
                order.push(order[record - 1 - (copies.next() as usize % close)]);
                continue;
            }
            let sku = choice.sku(&mut random);
            let delta = match random.next() % 50 {
                0 => (random.next() % 12) as i64 + 1,
                _ => -((random.next() % 24) as i64 + 1),
            };
            let key = key(shape.keys, &mut random, events.len());
            order.push(events.len() as u32);
            events.push(Event { key, sku, delta, fails: faults.next() % 1000 < share });
        }
        Arc::new(Load { shape, skus: skus.collect(), events, order, payloads: Vec::new() })
    }

    /// Events from elsewhere: SKU, delta and payload of each.
    pub(crate) fn given(given: Vec<(String, i64, Bytes)>) -> Arc<Load> {
        let mut random = Random(SEED);
        let (mut places, mut skus) = (HashMap::new(), Vec::new());
        let (mut events, mut payloads) = (Vec::with_capacity(given.len()), Vec::with_capacity(given.len()));
        for (index, (sku, delta, payload)) in given.into_iter().enumerate() {
            let place = *places.entry(sku.clone()).or_insert_with(|| {
                skus.push(sku);
                skus.len() - 1
            });
            let key = key(Keys::Ordered, &mut random, index);
            events.push(Event { key, sku: place, delta, fails: false });
            payloads.push(payload);
        }
        let order = (0..events.len() as u32).collect();
        Arc::new(Load { shape: Shape::new(events.len()), skus, events, order, payloads })
    }

    /// Every event once.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Number of records, copies included.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is nothing to produce.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether events fail.
    pub fn has_faults(&self) -> bool {
        self.shape.fault.is_some()
    }

    /// Whether an event ends as a dead letter.
    pub fn dies(&self, event: &Event) -> bool {
        event.fails && self.shape.fault.is_some_and(|it| it.0.is_final())
    }

    /// Events that take effect, and those that do not.
    pub fn expected(&self) -> (usize, usize) {
        let dead = self.events.iter().filter(|it| self.dies(it)).count();
        (self.events.len() - dead, dead)
    }

    pub(crate) fn sku(&self, event: &Event) -> &str {
        &self.skus[event.sku]
    }

    /// Sum and number of the events of each SKU.
    pub(crate) fn totals(&self) -> HashMap<&str, (i64, i64)> {
        let mut totals: HashMap<&str, (i64, i64)> = HashMap::new();
        for event in self.events.iter().filter(|it| !self.dies(it)) {
            let total = totals.entry(self.sku(event)).or_default();
            total.0 += event.delta;
            total.1 += 1;
        }
        totals
    }

    /// Number of SKUs that events take effect on.
    pub fn sku_count(&self) -> usize {
        self.totals().len()
    }

    /// The records in order.
    pub fn records(self: &Arc<Load>) -> impl Iterator<Item = Outgoing> + Send + 'static {
        let load = self.clone();
        (0..self.order.len()).map(move |it| load.record(it))
    }

    /// One record.
    pub fn record(&self, place: usize) -> Outgoing {
        let index = self.order[place] as usize;
        let event = &self.events[index];
        let id = event.key.to_string();
        let mut headers = Vec::with_capacity(7);
        if let Some((fault, _)) = self.shape.fault.filter(|_| event.fails) {
            headers.push((HEADER, fault.name().to_owned()));
        }
        headers.push(("idempotency-key", id.clone()));
        headers.push(("ce_specversion", "1.0".to_owned()));
        headers.push(("ce_id", id.clone()));
        headers.push(("ce_source", "/retail/till".to_owned()));
        headers.push(("ce_type", "stock.adjusted".to_owned()));
        headers.push(("content-type", "application/json".to_owned()));
        let key = if self.shape.spread { id } else { self.sku(event).to_owned() };
        let payload = self.payloads.get(index).cloned().unwrap_or_else(|| self.payload(index, event));
        Outgoing { key, payload, headers }
    }

    fn payload(&self, index: usize, event: &Event) -> Bytes {
        let invoice = 536_365 + index / 20;
        let price = 1.25 + (event.sku % 40) as f64 / 4.0;
        let json = format!(
            "{{\"id\":\"{invoice}-{line}\",\"type\":\"stock.adjusted\",\"sku\":\"{sku}\",\"delta\":{delta},\
             \"invoice\":\"{invoice}\",\"occurred_at\":\"2010-12-01T08:{minute:02}:00Z\",\"unit_price\":{price},\
             \"country\":\"United Kingdom\"}}",
            line = index % 20 + 1,
            sku = self.sku(event),
            delta = event.delta,
            minute = index / 60 % 60,
        );
        json.into()
    }
}

fn key(keys: Keys, random: &mut Random, index: usize) -> Uuid {
    let mut tail = [0; 10];
    tail[..8].copy_from_slice(&random.next().to_be_bytes());
    match keys {
        Keys::Ordered => {
            tail[8..].copy_from_slice(&(index as u16).to_be_bytes());
            // A few keys a millisecond, in order, as a producer that makes version 7 keys has them.
            Builder::from_unix_timestamp_millis(FIRST_AT_S * 1000 + index as u64 / 4, &tail).into_uuid()
        }
        Keys::Random => {
            let high = u128::from(random.next()) << 64;
            Builder::from_u128(high | u128::from(random.next())).with_version(uuid::Version::Random).into_uuid()
        }
    }
}

/// Chooses SKUs.
struct Choice {
    skus: Skus,
    count: usize,
    /// Share of all ranks up to each, for Zipf's law.
    shares: Vec<f64>,
}

impl Choice {
    fn new(shape: Shape) -> Choice {
        let count = match shape.skus {
            Skus::One => 1,
            Skus::Few(each) => (shape.records / each).max(1),
            Skus::Retail | Skus::Uniform | Skus::Zipf(_) => SKUS,
        };
        let mut shares = Vec::new();
        if let Skus::Zipf(exponent) = shape.skus {
            let mut sum = 0.0;
            for rank in 1..=count {
                sum += (rank as f64).powf(-exponent);
                shares.push(sum);
            }
            shares.iter_mut().for_each(|it| *it /= sum);
        }
        Choice { skus: shape.skus, count, shares }
    }

    fn sku(&self, random: &mut Random) -> usize {
        let unit = random.unit();
        let sku = match self.skus {
            Skus::Retail => (unit.powf(SKEW) * self.count as f64) as usize,
            Skus::Uniform | Skus::Few(_) | Skus::One => (unit * self.count as f64) as usize,
            Skus::Zipf(_) => self.shares.partition_point(|it| *it < unit),
        };
        sku.min(self.count - 1)
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn copies_are_the_records_of_their_originals() {
        let load = Load::new(Shape { copies: 500, ..Shape::new(10_000) });
        assert_eq!(load.len(), 10_000);
        let share = load.events().len() as f64 / 10_000.0;
        assert!((0.47..0.53).contains(&share), "{share} are new");
        let distinct: HashSet<_> = load.records().map(|it| (it.key, it.payload, it.headers)).collect();
        assert_eq!(distinct.len(), load.events().len());
    }

    #[test]
    fn skew_is_as_asked() {
        let most = |skus| {
            let load = Load::new(Shape { skus, ..Shape::new(40_000) });
            load.totals().values().map(|it| it.1).max().unwrap()
        };
        assert_eq!(most(Skus::One), 40_000);
        // The first of 4,000 ranks has one of about 8.9 parts.
        assert!((4_000..5_000).contains(&most(Skus::Zipf(1.0))), "{}", most(Skus::Zipf(1.0)));
        assert!(most(Skus::Uniform) < 40);
    }

    #[test]
    fn what_fails_once_takes_effect_and_what_fails_for_good_does_not() {
        let expected = |fault| Load::new(Shape { fault: Some((fault, 100)), ..Shape::new(10_000) }).expected();
        assert_eq!(expected(Fault::Once), (10_000, 0));
        let (good, dead) = expected(Fault::Sql);
        assert!((800..1_200).contains(&dead) && good + dead == 10_000);
    }
}
