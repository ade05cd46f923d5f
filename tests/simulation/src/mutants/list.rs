//! The mutants: for each rule of the core a way to break it.

/// One mutant.
pub(crate) struct Mutant {
    /// File below `consumer/src/core`.
    pub(crate) file: &'static str,
    /// What stands there, once.
    pub(crate) from: &'static str,
    /// What is put in its place.
    pub(crate) to: &'static str,
}

const fn mutant(file: &'static str, from: &'static str, to: &'static str) -> Mutant {
    Mutant { file, from, to }
}

/// Every file that some mutant changes.
pub(crate) const FILES: [&str; 13] = [
    "assignment.rs",
    "budget.rs",
    "effects.rs",
    "effects/recall.rs",
    "hold.rs",
    "known.rs",
    "lane.rs",
    "operator.rs",
    "partition.rs",
    "pause.rs",
    "retry.rs",
    "verdict.rs",
    "work.rs",
];

pub(crate) const MUTANTS: &[Mutant] = &[
    // Revocation, loss, the end.
    mutant("assignment.rs", "partitions.iter().any(|it| owned.get(it).is_some_and(|it| 0 < it.in_hand))", "false"),
    mutant(
        "assignment.rs",
        "if !owned.leaving && self.stopping.is_none() {\n            owned.receive(",
        "if true {\n            owned.receive(",
    ),
    mutant("assignment.rs", "owned.leaving = true;", ""),
    mutant(
        "assignment.rs",
        "self.drop_redo(|partition| partitions.contains(&partition));\n        self.drop_effects(|partition| partitions.contains(&partition), actions);\n        self.releasing",
        "self.drop_effects(|partition| partitions.contains(&partition), actions);\n        self.releasing",
    ),
    mutant(
        "assignment.rs",
        "fn lost(&mut self, partitions: &[Partition], actions: &mut Vec<Action<M>>) {\n        self.drop_redo(|partition| partitions.contains(&partition));",
        "fn lost(&mut self, partitions: &[Partition], actions: &mut Vec<Action<M>>) {",
    ),
    mutant(
        "assignment.rs",
        "let idle = !performing && self.lanes.iter().all(|it| it.stage != Stage::Busy);",
        "let idle = !performing;",
    ),
    mutant("assignment.rs", ".map(|it| (partition, it)));", ".map(|it| (partition, it + 1)));"),
    // Pauses.
    mutant("assignment.rs", "(Some(_), None) => actions.push(Action::Resume(partition)),", "(Some(_), None) => {}"),
    mutant(
        "assignment.rs",
        "(None, Some(reason)) => actions.push(Action::Pause(partition, reason)),",
        "(None, Some(_)) => {}",
    ),
    mutant("pause.rs", "_ if not_due => Some(PauseReason::NotDue),", ""),
    mutant("pause.rs", "_ if held_full => Some(PauseReason::HeldFull),", ""),
    mutant("pause.rs", "_ if cap <= buffered => Some(PauseReason::Full),", ""),
    // An operator's pauses.
    mutant("pause.rs", "_ if halted && 0 < buffered => Some(PauseReason::Operator),", ""),
    mutant("pause.rs", "_ if halted && 0 < buffered =>", "_ if halted =>"),
    mutant("pause.rs", "!before.0.is_subset(&self.0)", "false"),
    mutant("pause.rs", "self.0.contains(&partition.topic)", "self.0.contains(&partition.topic) && !partition.retry"),
    mutant("pause.rs", "self.0.contains(&partition.topic)", "self.0.contains(&partition.topic) && partition.retry"),
    mutant("pause.rs", "self.0.iter().copied().collect()", "Vec::new()"),
    mutant("assignment.rs", "owned.halted = self.halted.contains(partition);", ""),
    mutant("assignment.rs", "owned.halted = self.halted.contains(*partition);", ""),
    mutant("assignment.rs", "self.recall(actions);", ""),
    mutant("assignment.rs", "if halted.resumes(&self.halted) {", "if false {"),
    mutant("assignment.rs", "self.halted = halted;", "drop(halted);"),
    mutant("partition.rs", "!self.leaving && !self.halted &&", "!self.leaving &&"),
    mutant("partition.rs", "self.buffer.make_contiguous().sort_by_key(|it| it.offset);", ""),
    mutant("partition.rs", "self.taken_to.max(Some(record.offset + 1))", "Some(record.offset + 1)"),
    mutant("partition.rs", "self.in_hand -= records.len();", ""),
    mutant(
        "work.rs",
        "items.into_iter().partition(|it| self.halted.contains(it.partition));",
        "items.into_iter().partition(|_| false);",
    ),
    mutant("work.rs", "self.put_back(halted);", "drop(halted);"),
    mutant("work.rs", "if self.owned.get(&item.partition).is_some_and(|it| it.epoch == item.epoch) {", "if false {"),
    mutant("effects/recall.rs", "self.put_back(waiting);", "drop(waiting);"),
    mutant("effects/recall.rs", "self.put_back(vec![item]);", "drop(item);"),
    mutant("effects/recall.rs", "self.halted.contains(item.partition) && self.goes_on(item)", "false"),
    mutant(
        "effects.rs",
        "back.push(leased.fence);\n                self.shelve(leased.item);",
        "self.shelve(leased.item);",
    ),
    mutant("effects/recall.rs", "give_back(fences, actions);", "drop::<Vec<Fence>>(fences);"),
    // Commits and deadlines.
    mutant("assignment.rs", "let again = self.recommit_at <= now;", "let again = false;"),
    mutant("assignment.rs", "actions.push(Action::Commit(positions));", ""),
    mutant("assignment.rs", ".chain(again)", ".chain(None.filter(|_| again.is_some()))"),
    mutant(
        "assignment.rs",
        "starved.chain(effects).chain(waits)",
        "starved.chain(effects).chain(waits.filter(|_| false))",
    ),
    mutant("assignment.rs", ".chain(due)", ".chain(due.filter(|_| false))"),
    // Reads of the holds.
    mutant("assignment.rs", "self.limits.order == Order::None || self.stopping.is_some()", "self.stopping.is_some()"),
    mutant("assignment.rs", "owned.holds = Holds::Asked(read);", "owned.holds = Holds::Read;"),
    mutant("assignment.rs", "if matches!(owned.holds, Holds::Asked(asked) if asked <= read) {", "if true {"),
    mutant(
        "assignment.rs",
        "let again = self.known.read_again_at().is_some_and(|it| it <= now);",
        "let again = false;",
    ),
    mutant("assignment.rs", "Event::HoldsReady => self.known.sign(),", "Event::HoldsReady => {}"),
    // Budget.
    mutant("budget.rs", "self.tokens = earned.saturating_sub(count(findings.dead));", "self.tokens = earned;"),
    mutant("budget.rs", "count(findings.processed)).min(max);", "count(findings.processed));"),
    mutant("budget.rs", "self.refilled_at = Timestamp(self.refilled_at.0 + steps * step);", ""),
    mutant("budget.rs", ".saturating_add(u32::try_from(steps).unwrap_or(u32::MAX))", ""),
    // Who waits for whom.
    mutant("hold.rs", "(Some(key), Standing::Runs) => held.contains(&key),", "(Some(_), Standing::Runs) => false,"),
    mutant("hold.rs", "held.insert(key);\n            false", "let _ = key;\n            false"),
    mutant("hold.rs", "Answered::Applied => overtaken |= behind,", "Answered::Applied => overtaken |= false,"),
    mutant("hold.rs", "Answered::Refused { holds: true } if !behind => {", "Answered::Refused { holds: true } => {"),
    mutant(
        "hold.rs",
        "Decision::Retry { .. }) | (Rule::ByKey(AfterDeadLetter::Hold), Decision::Dead(_)) => true,",
        "Decision::Retry { .. }) => true,\n            (Rule::ByKey(AfterDeadLetter::Hold), Decision::Dead(_)) => false,",
    ),
    // What is known about holds.
    mutant("known.rs", "self.held.retain(|_, learned| read <= *learned);", "self.held.clear();"),
    mutant("known.rs", "read <= *learned", "read < *learned"),
    mutant("known.rs", "self.held.retain(|_, learned| read <= *learned);", ""),
    mutant("known.rs", "self.held.insert(key, self.reads);", "self.held.insert(key, 0);"),
    mutant("known.rs", "self.held.entry(key).or_insert(read);", "let _ = key;"),
    mutant("known.rs", "if self.signs == signs {", "if self.signs >= signs {"),
    // Executors.
    mutant(
        "lane.rs",
        "self.redo.push_front(Chunk { items, suspect: true, tried: true });",
        "self.redo.push_back(Chunk { items, suspect: true, tried: true });",
    ),
    mutant(
        "lane.rs",
        "self.redo.push_front(Chunk { items: items.into(), suspect: true, tried: false });",
        "self.redo.push_back(Chunk { items: items.into(), suspect: true, tried: false });",
    ),
    mutant("lane.rs", "if !self.suspect && self.care == Care::None {", "if self.care == Care::None {"),
    mutant("lane.rs", "for items in [second, first] {", "for items in [first, second] {"),
    mutant("lane.rs", "may be left.\n            if !items.is_empty() {", "may be left.\n            if true {"),
    mutant(
        "lane.rs",
        "self.stage = Stage::Waiting(now.after(delay));",
        "self.stage = Stage::Idle;\n        let _ = (now, delay);",
    ),
    mutant("lane.rs", "Stage::Waiting(until) => until <= now,", "Stage::Waiting(_) => false,"),
    mutant(
        "lane.rs",
        "self.stage = Stage::Busy;\n        self.in_hand.clear();\n        for item in items {",
        "self.in_hand.clear();\n        for item in items {",
    ),
    mutant(
        "lane.rs",
        "self.stage = Stage::Waiting(now.after(delay));\n        self.held_since = None;",
        "self.stage = Stage::Waiting(now.after(delay));",
    ),
    mutant("lane.rs", "self.stage = Stage::Idle;\n        self.held_since = None;", "self.stage = Stage::Idle;"),
    mutant(
        "lane.rs",
        "Some(_) if self.care != Care::None => self.held_limit = 1,",
        "Some(_) if self.care != Care::None => {}",
    ),
    // Partitions.
    mutant("partition.rs", "if self.last_received.is_some_and(|last| record.offset <= last) {", "if false {"),
    mutant(
        "partition.rs",
        "items.len() < max && self.ready_at().is_some_and(|it| it <= now)",
        "items.len() < max && self.ready_at().is_some_and(|_| true)",
    ),
    mutant("partition.rs", "self.in_hand -= count;", ""),
    mutant("partition.rs", "items.len() < max &&", ""),
    mutant("partition.rs", "self.in_hand -= records.len();", ""),
    mutant("partition.rs", "for record in records.into_iter().rev() {", "for record in records {"),
    mutant("partition.rs", "self.held_full = self.blocked_until.is_some();", ""),
    mutant("partition.rs", "it.max(self.blocked_until.unwrap_or_default())", "it"),
    // Retries and the inbox.
    mutant("retry.rs", "self.attempts_max <= attempt", "self.attempts_max < attempt"),
    mutant("retry.rs", "Decision::Retry { attempt: attempt + 1, tier,", "Decision::Retry { attempt, tier,"),
    mutant(
        "retry.rs",
        "FailureKind::Permanent => Decision::Dead(Reason::Permanent),",
        "FailureKind::Permanent => Decision::Dead(Reason::Exhausted),",
    ),
    mutant("verdict.rs", "&& row.attempt == asking.attempt", ""),
    mutant("verdict.rs", "row.state == State::Retrying &&", ""),
    mutant(
        "verdict.rs",
        "return if asking.retry { Arrival::Orphan } else { Arrival::Handle };",
        "return Arrival::Handle;",
    ),
    mutant("verdict.rs", "State::Retrying | State::Held | State::Dead | State::Leased if", "State::Leased if"),
    // Operators.
    mutant("operator.rs", "Some((State::Retrying, attempt + 1))", "Some((State::Retrying, attempt))"),
    mutant(
        "operator.rs",
        "Some(State::Retrying | State::Leased) if letter.state == Replaying => return Err(Told::AlreadyReplaying),",
        "Some(State::Retrying | State::Leased) if letter.state == Replaying => {}",
    ),
    mutant("operator.rs", "(Resolved, _) => return Err(Told::AlreadyResolved),", "(Resolved, _) => {}"),
    mutant(
        "operator.rs",
        "(Discarded, Act::Replay | Act::Discard) => return Err(Told::AlreadyDiscarded),",
        "(Discarded, Act::Replay | Act::Discard) => {}",
    ),
    mutant(
        "operator.rs",
        "publish: false, release: true, told: Told::Discarded })",
        "publish: false, release: false, told: Told::Discarded })",
    ),
    mutant("operator.rs", "let row = Some((State::Discarded, attempt));", "let row = None;"),
    mutant("operator.rs", "let row = Some((State::Dead, attempt));", "let row = None;"),
    mutant(
        "operator.rs",
        "if took_effect { LetterState::Resolved } else { LetterState::Open }",
        "if took_effect { LetterState::Resolved } else { LetterState::Replaying }",
    ),
    // Results and new work.
    mutant("work.rs", "owned.decided(entry.next, entry.count);", "owned.decided(entry.next + 1, entry.count);"),
    mutant("work.rs", ".filter(|it| it.epoch == entry.epoch)", ""),
    mutant("work.rs", "&& items.len() == 1", ""),
    mutant("work.rs", "if it.leaving || stopping {\n                it.in_hand -= 1;\n            }", ""),
    mutant(
        "work.rs",
        "Outcome::Interrupted | Outcome::Decided => lane.interrupted(now, items, &self.limits),",
        "_ => lane.failed(items),",
    ),
    mutant(
        "work.rs",
        "let retry = if lane.last_was_retry { !has(false) } else { has(true) };",
        "let retry = has(true) && !has(false) && false;",
    ),
    mutant(
        "work.rs",
        "            return;\n        }\n        if self.stopping.is_some() {\n            return;\n        }\n        for id in",
        "            return;\n        }\n        for id in",
    ),
    // Holes in the log, and clients that hand out nothing.
    mutant(
        "partition.rs",
        "if all_decided && self.paused.is_none() && self.position < Some(offset)",
        "if self.position < Some(offset)",
    ),
    mutant(
        "partition.rs",
        "let all_decided = self.buffer.is_empty() && self.in_hand == 0",
        "let all_decided = self.in_hand == 0",
    ),
    mutant("partition.rs", "self.starved_since.filter(|_| !self.leaving)", "self.starved_since"),
    mutant(
        "partition.rs",
        "let starves = backlog && self.is_empty();",
        "let starves = false && backlog && self.is_empty();",
    ),
    mutant("partition.rs", "let starves = backlog && self.is_empty();", "let starves = backlog;"),
    mutant(
        "assignment.rs",
        "let partitions: Vec<Partition> = self.owned.keys().copied().filter(|it| it.retry == retry).collect();",
        "let partitions: Vec<Partition> = Vec::new();",
    ),
    // Holds in the course of work.
    mutant("work.rs", "item.maybe_held = self.known.is_held(item.record.key);", "item.maybe_held = false;"),
    mutant("work.rs", "findings.held.iter().for_each(|it| self.known.learn(*it));", ""),
    mutant("work.rs", "(Some(true), _) => self.known.sign(),", "(Some(true), _) => {}"),
    mutant("work.rs", "(Some(false), Some(signs)) => self.known.nothing_ready(signs),", "(Some(false), Some(_)) => {}"),
    mutant("work.rs", "(None, _) => self.leave_held(id),", "(None, _) => {}"),
    mutant("work.rs", "        } else {\n            self.leave_held(id);", "        } else {"),
    mutant(
        "partition.rs",
        "let holds_known = unordered || partition.retry || self.holds == Holds::Read;",
        "let holds_known = unordered || partition.retry || self.holds != Holds::Unread;",
    ),
    mutant("work.rs", "owned.held_full = true;", ""),
    mutant("work.rs", "owned.blocked_until = Some(now.after(self.limits.full_delay));", ""),
    mutant("work.rs", "back.extend(lane.take_redo_of(|it| full.iter().any(|(at, _)| *at == it)));", ""),
    mutant("work.rs", "*from <= it.record.offset", "*from < it.record.offset"),
    // The budget in the course of work.
    mutant("work.rs", "matches!(decision, Decision::Dead(_)) && self.budget.available() == 0", "false"),
    mutant("work.rs", "if item.epoch == Epoch::HELD {", "if false {"),
    mutant("work.rs", "care, dead_max: self.budget.available() });", "care, dead_max: usize::MAX });"),
    mutant("work.rs", "(self.halted.topics(), self.budget.available())", "(self.halted.topics(), usize::MAX)"),
    // Effects outside the database.
    mutant(
        "effects.rs",
        "let key = item.record.key.filter(|_| ordered);",
        "let key = item.record.key.filter(|_| ordered && false);",
    ),
    mutant("effects.rs", "Some(next) => self.ready.push_back(next),", "Some(_) => {}"),
    mutant(
        "effects.rs",
        "for leased in leased {\n            let place = self.place(&leased.item);\n            places.retain(|it| *it != place);",
        "for leased in leased {\n            let place = self.place(&leased.item);",
    ),
    mutant(
        "effects.rs",
        "for (item, at) in later {\n            let place = self.place(&item);\n            places.retain(|it| *it != place);",
        "for (item, at) in later {\n            let place = self.place(&item);\n            let _ = place;",
    ),
    mutant("effects.rs", "self.again(it.leased.item, now);", "let _ = it;"),
    mutant(
        "effects.rs",
        "Performed::Interrupted => return self.again(leased.item, now.after(self.limits.full_delay)),",
        "Performed::Interrupted => Verdict::Decide(self.decision(now, &leased.item, FailureKind::Transient)),",
    ),
    mutant(
        "effects.rs",
        "Performed::Done => Verdict::Done,",
        "Performed::Done => Verdict::Decide(Decision::Dead(super::retry::Reason::Permanent)),",
    ),
    mutant("effects.rs", "if chosen.len() == max || (is_dead(&it) && room == 0) {", "if chosen.len() == max {"),
    mutant("effects.rs", "most.saturating_sub(leased).min((most + max)", "most.min((most + max)"),
    mutant("effects.rs", "effects.look_at = Some(effects.look_at.map_or(at, |it| it.min(at)));", "let _ = effects;"),
    mutant("partition.rs", "holds_known && !self.leaving && !self.halted", "!self.leaving && !self.halted"),
    mutant("partition.rs", "holds_known && !self.leaving && !self.halted", "holds_known && !self.halted"),
    mutant("effects.rs", "it.epoch == item.epoch && !it.leaving;", "it.epoch == item.epoch;"),
    mutant("effects.rs", "it.epoch == item.epoch && !it.leaving;", "!it.leaving;"),
    mutant("effects.rs", "self.stopping.is_none() && (item", "(item"),
    mutant("effects.rs", "if !self.goes_on(&leased.item) {", "if false {"),
    mutant("effects.rs", "self.let_go(&leased.item);\n                back", "back"),
    mutant("effects.rs", "it.performing.len() < max)", "true)"),
    mutant("effects.rs", "it.ahead.pop_front()", "it.ahead.pop_back().filter(|_| max % 2 == 0)"),
    mutant(
        "effects.rs",
        "let (most, leased) = (max + self.limits.leases_ahead_max,",
        "let (most, leased) = (2 * max + 9,",
    ),
    mutant(
        "effects.rs",
        "stopping || (it.item.epoch != Epoch::HELD && of(it.item.partition));",
        "it.item.epoch != Epoch::HELD && of(it.item.partition);",
    ),
    mutant(
        "effects.rs",
        "stopping || (it.item.epoch != Epoch::HELD && of(it.item.partition));",
        "stopping || of(it.item.partition);",
    ),
    mutant("effects.rs", "stopping || (it.item.epoch != Epoch::HELD && of(it.item.partition));", "stopping;"),
    mutant("effects.rs", "dropped.iter().chain(back.iter().map(|it| &it.item)).for_each", "dropped.iter().for_each"),
    mutant("effects.rs", "if !fences.is_empty() {", "if false && !fences.is_empty() {"),
    mutant("effects.rs", "self.leave(item);\n        let key", "let key"),
    mutant(
        "effects.rs",
        "let back = if failed_together { &mut effects.alone } else { &mut effects.performed };",
        "let back = &mut effects.performed;",
    ),
    mutant("effects.rs", "one.verdict = Verdict::Decide(self.decision(now, &one.leased.item, kind));", "let _ = kind;"),
    mutant("effects.rs", "self.ready.extend(due.into_iter().map(|it| it.1));", "drop(due);"),
    mutant(
        "assignment.rs",
        "let performing = self.effects.as_ref().is_some_and(|it| !it.is_idle());",
        "let performing = false;",
    ),
    mutant(
        "assignment.rs",
        "self.drop_effects(|partition| partitions.contains(&partition), actions);\n        self.releasing.push",
        "self.releasing.push",
    ),
    mutant(
        "assignment.rs",
        "self.drop_redo(|_| true);\n        self.drop_effects(|_| true, actions);",
        "self.drop_redo(|_| true);",
    ),
    mutant(
        "partition.rs",
        "let lowest = self.open.first_key_value().map(|it| *it.0).or(self.taken_to);",
        "let lowest = Some(offset + 1);",
    ),
    mutant(
        "verdict.rs",
        "Arrival::Handle if lease_lasts => Leasing::Wait,",
        "Arrival::Handle if false && lease_lasts => Leasing::Wait,",
    ),
    mutant("assignment.rs", "starved.chain(effects)", "starved.chain(effects.filter(|_| false))"),
];
