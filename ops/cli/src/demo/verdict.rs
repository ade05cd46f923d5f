//! What was published against what is there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use sekali_producer::Delivery;
use sekali_schemas::IdempotencyKey;
use serde::Serialize;
use uuid::Uuid;

use super::TOPIC;
use super::found::{Found, Place};
use super::plan::{Kind, Plan};
use crate::exit::Failure;

/// The result of the demo, for programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Verdict {
    /// Records that the broker acknowledged.
    pub(super) produced: usize,
    /// Events among them: every copy beyond the first is a duplicate.
    pub(super) distinct: usize,
    /// Events that are in the ledger.
    pub(super) processed: usize,
    /// Records that changed nothing, because their event had its effect or its dead letter already.
    pub(super) duplicates: usize,
    /// Events that needed more than one attempt.
    pub(super) retried: usize,
    /// Open dead letters.
    pub(super) dead: usize,
    /// Events that are neither in the ledger nor dead letters, or whose dead letter is missing on the topic.
    pub(super) lost: usize,
    /// Effects and dead letters beyond one for each event.
    pub(super) doubled: usize,
    /// Workers that got SIGKILL.
    pub(super) workers_killed: usize,
    /// From the start of the command to the verdict.
    pub(super) seconds: f64,
    /// Whether all of it is as it must be.
    pub(super) ok: bool,
    /// SKUs whose quantity is not the sum of their events.
    pub(super) skus_wrong: usize,
    /// Records of the dead-letter topic.
    pub(super) dlq_records: usize,
    /// Records of the dead-letter topic beyond one for each dead letter: the relay publishes at least once, and again
    /// when it is killed between the broker's acknowledgement and its own note.
    pub(super) dlq_repeated: usize,
    /// Events that the killed worker had counted without telling Kafka, so that their records came again.
    pub(super) redelivered: usize,
    /// From the kill until the other worker had all partitions.
    pub(super) takeover_seconds: Option<f64>,
    /// What is not as it must be, in words.
    pub(super) problems: Vec<String>,
}

/// What happened on the way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Course {
    pub(super) produced: usize,
    pub(super) workers_killed: usize,
    pub(super) redelivered: usize,
    pub(super) takeover_seconds: Option<f64>,
    pub(super) seconds: f64,
    /// Whether every record was read and decided within the time.
    pub(super) settled: bool,
}

impl Verdict {
    /// Judges. `places` are those of the records without a key.
    pub(super) fn new(plan: &Plan, places: &[(usize, Delivery)], found: &Found, course: &Course) -> Verdict {
        let fates = Fates::of(plan, places, found);
        let dlq = Dlq::of(found);
        let mut verdict = Verdict {
            produced: course.produced,
            distinct: plan.events.len(),
            processed: fates.processed,
            duplicates: course.produced.saturating_sub(fates.effects + fates.lost),
            retried: found.retried,
            dead: found.dead.len(),
            lost: fates.lost + dlq.missing,
            doubled: fates.doubled,
            workers_killed: course.workers_killed,
            seconds: (course.seconds * 10.0).round() / 10.0,
            ok: false,
            skus_wrong: skus_wrong(&plan.stock(), &found.stock),
            dlq_records: found.dlq.len(),
            dlq_repeated: dlq.repeated,
            redelivered: course.redelivered,
            takeover_seconds: course.takeover_seconds.map(|it| (it * 10.0).round() / 10.0),
            problems: Vec::new(),
        };
        verdict.problems = verdict.compare(plan, course, &fates, &dlq);
        verdict.ok = verdict.problems.is_empty();
        verdict
    }

    fn compare(&self, plan: &Plan, course: &Course, fates: &Fates, dlq: &Dlq) -> Vec<String> {
        let mut problems = Vec::new();
        if !course.settled {
            problems.push("not every record was decided in time".to_owned());
        }
        let must_be = [
            ("lost events", self.lost, 0),
            ("doubled effects", self.doubled, 0),
            ("SKUs with a wrong quantity", self.skus_wrong, 0),
            ("ledger rows or dead letters of events that nobody published", fates.foreign, 0),
            ("records on the dead-letter topic without a dead letter", dlq.foreign, 0),
            ("published records", self.produced, plan.order.len()),
            ("events in the ledger", self.processed, plan.count(Kind::is_counted)),
            ("dead letters", self.dead, plan.count(|it| !it.is_counted())),
            ("retried events", self.retried, plan.count(Kind::is_retried)),
            ("duplicates that changed nothing", self.duplicates, plan.duplicates()),
            ("workers killed", self.workers_killed, 1),
        ];
        let wrong = must_be.into_iter().filter(|(_, found, expected)| found != expected);
        problems.extend(wrong.map(|(what, found, expected)| format!("{what}: {found} instead of {expected}")));
        problems
    }

    /// Writes the file for programs.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let unwritable = |error: std::io::Error| {
            Failure::error(format!("cannot write {}: {error}; name another file with --verdict", path.display()))
        };
        if let Some(dir) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            fs::create_dir_all(dir).map_err(unwritable)?;
        }
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| Failure::error(format!("cannot write the verdict as JSON: {error}")))?;
        json.push(b'\n');
        fs::write(path, json).map_err(unwritable)
    }
}

/// What became of the events.
#[derive(Debug, Default)]
struct Fates {
    processed: usize,
    lost: usize,
    doubled: usize,
    /// Ledger rows and dead letters of published events.
    effects: usize,
    /// Ledger rows and dead letters of no published event.
    foreign: usize,
}

impl Fates {
    fn of(plan: &Plan, places: &[(usize, Delivery)], found: &Found) -> Fates {
        let mut dead: HashMap<Uuid, usize> = HashMap::new();
        for (key, _) in &found.dead {
            *dead.entry(*key).or_default() += 1;
        }
        let of_place: HashMap<usize, Uuid> = places
            .iter()
            .map(|(event, it)| (*event, IdempotencyKey::from_coordinates(TOPIC, it.partition, it.offset).uuid()))
            .collect();
        let mut fates = Fates::default();
        for (index, event) in plan.events.iter().enumerate() {
            let key = of_place.get(&index).copied().unwrap_or(event.id);
            let in_ledger = found.ledger.get(&key).copied().unwrap_or_default();
            let as_dead_letter = dead.get(&key).copied().unwrap_or_default();
            let expected = if event.kind.is_counted() { in_ledger } else { as_dead_letter };
            fates.processed += usize::from(0 < in_ledger);
            fates.lost += usize::from(expected == 0);
            // A dead letter of an event that was counted is a second effect, and the other way round.
            fates.doubled += (in_ledger + as_dead_letter).saturating_sub(1);
            fates.effects += in_ledger + as_dead_letter;
        }
        let all: usize = found.ledger.values().sum::<usize>() + found.dead.len();
        fates.foreign = all - fates.effects;
        fates
    }
}

/// The dead-letter topic against the table of dead letters.
#[derive(Debug, Default)]
struct Dlq {
    missing: usize,
    foreign: usize,
    repeated: usize,
}

impl Dlq {
    fn of(found: &Found) -> Dlq {
        let letters: HashSet<Place> = found.dead.iter().map(|(_, place)| *place).collect();
        let records: HashSet<Place> = found.dlq.iter().copied().collect();
        Dlq {
            missing: letters.difference(&records).count(),
            foreign: records.difference(&letters).count(),
            repeated: found.dlq.len() - records.len(),
        }
    }
}

fn skus_wrong(expected: &BTreeMap<&str, i64>, found: &BTreeMap<String, i64>) -> usize {
    let wrong = expected.iter().filter(|(sku, quantity)| found.get(**sku) != Some(quantity)).count();
    wrong + found.keys().filter(|sku| !expected.contains_key(sku.as_str())).count()
}

#[cfg(test)]
mod tests;
