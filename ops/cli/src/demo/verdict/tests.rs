use super::*;

/// A world in which all went well.
fn good() -> (Plan, Vec<(usize, Delivery)>, Found, Course) {
    let plan = Plan::new(1_000, 1);
    let mut places = Vec::new();
    let mut found = Found::default();
    for (index, event) in plan.events.iter().enumerate() {
        let place = (0, index as i64);
        let mut key = event.id;
        if event.kind == Kind::WithoutKey {
            places.push((index, Delivery { partition: place.0, offset: place.1 }));
            key = IdempotencyKey::from_coordinates(TOPIC, place.0, place.1).uuid();
        }
        if event.kind.is_counted() {
            found.ledger.insert(key, 1);
        } else {
            found.dead.push((key, place));
            found.dlq.push(place);
        }
    }
    found.stock = plan.stock().into_iter().map(|(sku, quantity)| (sku.to_owned(), quantity)).collect();
    found.retried = plan.count(Kind::is_retried);
    let course = Course {
        produced: plan.order.len(),
        workers_killed: 1,
        redelivered: 7,
        takeover_seconds: Some(7.03),
        seconds: 20.04,
        settled: true,
    };
    (plan, places, found, course)
}

fn judge(change: impl FnOnce(&Plan, &mut Found, &mut Course)) -> Verdict {
    let (plan, places, mut found, mut course) = good();
    change(&plan, &mut found, &mut course);
    Verdict::new(&plan, &places, &found, &course)
}

/// Key of a counted event.
fn counted(plan: &Plan) -> Uuid {
    plan.events.iter().find(|it| it.kind == Kind::Good).map(|it| it.id).unwrap()
}

#[test]
fn a_good_world_is_ok() {
    let verdict = judge(|_, _, _| {});
    assert_eq!(verdict.problems, [""; 0]);
    assert!(verdict.ok);
    assert_eq!((verdict.produced, verdict.distinct, verdict.duplicates), (1_000, 950, 50));
    assert_eq!((verdict.processed, verdict.dead, verdict.retried), (946, 4, 12));
    assert_eq!((verdict.lost, verdict.doubled, verdict.skus_wrong), (0, 0, 0));
    assert_eq!((verdict.seconds, verdict.takeover_seconds), (20.0, Some(7.0)));
}

#[test]
fn what_is_missing_is_lost() {
    let verdict = judge(|plan, found, _| {
        found.ledger.remove(&counted(plan));
    });
    assert_eq!((verdict.lost, verdict.doubled, verdict.ok), (1, 0, false));
    assert_eq!(verdict.duplicates, 50, "a lost event is no duplicate");

    let verdict = judge(|_, found, _| {
        found.dead.pop();
    });
    assert_eq!((verdict.lost, verdict.ok), (1, false), "no dead letter");

    let verdict = judge(|_, found, _| {
        found.dlq.pop();
    });
    assert_eq!((verdict.lost, verdict.ok), (1, false), "no record on the dead-letter topic");

    let verdict = judge(|plan, found, _| {
        found.ledger.remove(&counted(plan));
        found.dead.push((counted(plan), (1, 1)));
        found.dlq.push((1, 1));
    });
    assert_eq!((verdict.lost, verdict.ok), (1, false), "dead, but it should have been counted");
}

#[test]
fn what_happened_twice_is_doubled() {
    let verdict = judge(|plan, found, _| {
        found.ledger.insert(counted(plan), 3);
    });
    assert_eq!((verdict.lost, verdict.doubled, verdict.ok), (0, 2, false));

    let verdict = judge(|_, found, _| found.dead.push(found.dead[0]));
    assert_eq!((verdict.doubled, verdict.ok), (1, false));

    let verdict = judge(|_, found, _| {
        found.ledger.insert(found.dead[0].0, 1);
    });
    assert_eq!((verdict.doubled, verdict.ok), (1, false), "dead and counted");
}

#[test]
fn every_other_difference_is_a_problem() {
    let wrong: [fn(&Plan, &mut Found, &mut Course); 8] = [
        |_, found, _| {
            found.ledger.insert(Uuid::from_u128(1), 1);
        },
        |_, found, _| found.dead.push((Uuid::from_u128(1), (1, 1))),
        |_, found, _| found.dlq.push((1, 1)),
        |_, found, _| *found.stock.values_mut().next().unwrap() += 1,
        |_, found, _| {
            found.stock.insert("SKU-none".to_owned(), 1);
        },
        |_, found, _| found.retried -= 1,
        |_, _, course| course.workers_killed = 0,
        |_, _, course| course.settled = false,
    ];
    for (case, change) in wrong.into_iter().enumerate() {
        assert!(!judge(change).ok, "case {case}");
    }
}

#[test]
fn a_repeated_dead_letter_record_is_said_and_allowed() {
    let verdict = judge(|_, found, _| found.dlq.push(found.dlq[0]));
    assert_eq!((verdict.dlq_repeated, verdict.ok), (1, true));
}
