//! What the demo publishes, and in which order: the same for the same seed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sekali_producer::{Event, IntoRecord, InvalidEvent, OutboundRecord, ResourceId};
use sekali_schemas::cloudevents::CONTENT_TYPE;
use sekali_schemas::events::{EventType, StockAdjusted};
use sekali_schemas::{Headers, IdempotencyKey};
use uuid::Uuid;

use super::TOPIC;
use super::behaviour::{BEHAVIOUR, Behaviour};

mod random;

use random::Random;

/// Number of SKUs.
pub(super) const SKUS: usize = 500;

/// Shares of the records, per mille: 5 % come twice, 1 % fail twice, 0.2 % always fail, 0.1 % cannot be read.
const TWICE: usize = 50;
const FAIL_TWICE: usize = 10;
const ALWAYS_FAIL: usize = 2;
const UNREADABLE: usize = 1;

/// 2026-01-01, so that a seed always gives the same ids.
const EPOCH_MS: u64 = 1_767_225_600_000;

/// Everything that will be published.
#[derive(Debug)]
pub(super) struct Plan {
    /// The distinct events, in the order in which they happened.
    pub(super) events: Vec<StockEvent>,
    /// Indexes of `events`, one for each record; a duplicate is there twice.
    pub(super) order: Vec<usize>,
}

/// One change of one SKU's quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StockEvent {
    pub(super) id: Uuid,
    pub(super) kind: Kind,
    pub(super) sku: String,
    pub(super) delta: i64,
    at_ms: u64,
}

/// What will become of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Good,
    FailsTwice,
    AlwaysFails,
    /// Its record has no idempotency key.
    WithoutKey,
    /// Its payload ends in the middle.
    CutShort,
}

impl Kind {
    /// Whether it ends in the ledger; the others end as dead letters.
    pub(super) fn is_counted(self) -> bool {
        matches!(self, Kind::Good | Kind::FailsTwice)
    }

    /// Whether it is tried more than once.
    pub(super) fn is_retried(self) -> bool {
        matches!(self, Kind::FailsTwice | Kind::AlwaysFails)
    }
}

impl Plan {
    /// Plans so many records.
    pub(super) fn new(records: usize, seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let share = |per_mille: usize| (records * per_mille / 1000).max(2);
        let copies = share(TWICE);
        let distinct = records.saturating_sub(copies);
        let kinds = kinds(distinct, &share, &mut random);
        let events: Vec<StockEvent> =
            kinds.into_iter().enumerate().map(|(index, kind)| StockEvent::new(index, kind, &mut random)).collect();
        let order = order(&events, copies, &mut random);
        Plan { events, order }
    }

    /// Records beyond the first of their event.
    pub(super) fn duplicates(&self) -> usize {
        self.order.len() - self.events.len()
    }

    /// Number of events for which something holds.
    pub(super) fn count(&self, holds: impl Fn(Kind) -> bool) -> usize {
        self.events.iter().filter(|it| holds(it.kind)).count()
    }

    /// The quantity of each SKU when every event that counts was applied once.
    pub(super) fn stock(&self) -> BTreeMap<&str, i64> {
        let mut stock = BTreeMap::new();
        for event in self.events.iter().filter(|it| it.kind.is_counted()) {
            *stock.entry(event.sku.as_str()).or_default() += event.delta;
        }
        stock
    }
}

fn kinds(distinct: usize, share: &impl Fn(usize) -> usize, random: &mut Random) -> Vec<Kind> {
    let unreadable = share(UNREADABLE);
    let special = [
        (Kind::FailsTwice, share(FAIL_TWICE)),
        (Kind::AlwaysFails, share(ALWAYS_FAIL)),
        (Kind::WithoutKey, unreadable / 2),
        (Kind::CutShort, unreadable - unreadable / 2),
    ];
    let mut kinds: Vec<Kind> = special.into_iter().flat_map(|(kind, count)| vec![kind; count]).collect();
    kinds.resize(distinct, Kind::Good);
    random.shuffle(&mut kinds);
    kinds
}

/// Half of the copies follow their original at once, as a producer's blind repetition does. The others are of the first
/// half and come in the second one, as after somebody resets an offset or runs an import again.
fn order(events: &[StockEvent], copies: usize, random: &mut Random) -> Vec<usize> {
    // Without a key nobody could tell a copy from another event.
    let mut candidates: Vec<usize> = (0..events.len()).filter(|it| events[*it].kind != Kind::WithoutKey).collect();
    random.shuffle(&mut candidates);
    let half = events.len() / 2;
    let late: Vec<usize> = candidates.iter().copied().filter(|it| *it < half).take(copies / 2).collect();
    let chosen: std::collections::BTreeSet<usize> = late.iter().copied().collect();
    let at_once = candidates.iter().copied().filter(|it| !chosen.contains(it)).take(copies - late.len());
    let mut places: Vec<(usize, usize)> = (0..events.len()).map(|it| (it, it)).collect();
    places.extend(at_once.map(|it| (it, it)));
    places.extend(late.into_iter().map(|it| (half + random.below(events.len() - half), it)));
    places.sort_unstable();
    places.into_iter().map(|(_, event)| event).collect()
}

impl StockEvent {
    fn new(index: usize, kind: Kind, random: &mut Random) -> StockEvent {
        let at_ms = EPOCH_MS + index as u64;
        let mut tail = [0; 10];
        tail[..8].copy_from_slice(&random.next().to_be_bytes());
        let id = uuid::Builder::from_unix_timestamp_millis(at_ms, &tail).into_uuid();
        let sku = format!("SKU-{:03}", random.below(SKUS));
        // Goods come in and go out, never nothing.
        let delta = match random.below(20) as i64 - 8 {
            0 => 12,
            delta => delta,
        };
        StockEvent { id, kind, sku, delta, at_ms }
    }

    /// The record to publish, equal for every copy.
    pub(super) fn record(&self) -> Result<OutboundRecord, InvalidEvent> {
        let occurred_at = i64::try_from(self.at_ms).ok().and_then(|it| Timestamp::from_millisecond(it).ok());
        let adjusted = StockAdjusted { sku: self.sku.clone(), delta: self.delta, occurred_at };
        let mut payload = serde_json::to_vec(&adjusted).map_err(|_| InvalidEvent::NotJson)?;
        if self.kind == Kind::CutShort {
            payload.truncate(payload.len() / 2);
        }
        let resource = ResourceId::new(self.sku.clone())?;
        if self.kind == Kind::WithoutKey {
            return Ok(OutboundRecord {
                topic: TOPIC.to_owned(),
                key: Some(resource.as_bytes().to_vec().into()),
                payload: Some(payload.into()),
                headers: Headers::builder().text(CONTENT_TYPE, "application/json").build(),
            });
        }
        let mut event = Event::raw(TOPIC, resource, StockAdjusted::NAME, "application/json", payload)?
            .idempotency_key(IdempotencyKey::new(self.id.to_string())?)
            .source("/sekali/demo")?
            .time(occurred_at.unwrap_or(Timestamp::UNIX_EPOCH));
        let behaviour = match self.kind {
            Kind::FailsTwice => Some(Behaviour::FailTwice),
            Kind::AlwaysFails => Some(Behaviour::AlwaysFail),
            Kind::Good | Kind::WithoutKey | Kind::CutShort => None,
        };
        if let Some(behaviour) = behaviour {
            event = event.header(BEHAVIOUR, behaviour.as_str())?;
        }
        event.into_record()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_another_seed_another() {
        let plan = |seed| Plan::new(2_000, seed);
        assert_eq!((plan(7).events, plan(7).order), (plan(7).events, plan(7).order));
        assert_ne!(plan(7).events, plan(8).events);
    }

    #[test]
    fn the_shares_are_as_promised() {
        let plan = Plan::new(20_000, 1);
        assert_eq!((plan.order.len(), plan.duplicates(), plan.events.len()), (20_000, 1_000, 19_000));
        assert_eq!(plan.count(|it| it == Kind::FailsTwice), 200);
        assert_eq!(plan.count(|it| it == Kind::AlwaysFails), 40);
        assert_eq!(plan.count(|it| it == Kind::WithoutKey), 10);
        assert_eq!(plan.count(|it| it == Kind::CutShort), 10);
        assert_eq!(plan.stock().len(), SKUS);
    }

    #[test]
    fn copies_follow_at_once_and_much_later() {
        let plan = Plan::new(2_000, 1);
        let mut seen: HashMap<usize, usize> = HashMap::new();
        let mut gaps = Vec::new();
        for (place, event) in plan.order.iter().enumerate() {
            if let Some(first) = seen.insert(*event, place) {
                gaps.push(place - first);
                assert_ne!(plan.events[*event].kind, Kind::WithoutKey);
            }
        }
        assert_eq!((seen.len(), gaps.len()), (plan.events.len(), plan.duplicates()));
        assert_eq!(gaps.iter().filter(|it| **it == 1).count(), 50);
        assert!(20 < gaps.iter().filter(|it| 500 < **it).count(), "{gaps:?}");
    }

    #[test]
    fn copies_are_equal_and_marked() {
        let plan = Plan::new(1_000, 3);
        for event in &plan.events {
            let record = event.record().unwrap();
            assert_eq!(record, event.record().unwrap());
            assert_eq!(record.headers.get(BEHAVIOUR).is_some(), event.kind.is_retried());
            assert_eq!(IdempotencyKey::from_headers(&record.headers).is_err(), event.kind == Kind::WithoutKey);
            let json = serde_json::from_slice::<StockAdjusted>(record.payload.as_deref().unwrap());
            assert_eq!(json.is_err(), event.kind == Kind::CutShort);
        }
    }
}
