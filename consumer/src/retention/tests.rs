use sekali_producer::config::PostgresSection;

use super::*;

const DAY_MS: i64 = 24 * 3600 * 1000;

fn purge(partitions: &[(&str, usize)]) -> Purge {
    let nowhere = PostgresSection { url: Some("postgres://nowhere/d".into()), ..PostgresSection::default() };
    let pool = nowhere.pool("test").unwrap();
    let partitions = partitions.iter().map(|(topic, count)| ((*topic).into(), *count)).collect();
    Purge::new(pool, 1, Duration::from_secs(9 * 24 * 3600), partitions, 100 * DAY_MS)
}

fn clock(partitions: &[(&str, usize)], clocks: &[(&str, i32, Option<i64>)]) -> Option<i64> {
    let clocks: Vec<_> = clocks.iter().map(|(topic, number, clock)| ((*topic).to_owned(), *number, *clock)).collect();
    purge(partitions).clock_ms(&clocks)
}

#[test]
fn the_groups_clock_is_that_of_its_slowest_partition() {
    let two = [("t", 2), ("t.retry", 1)];
    let at = |day: i64| Some(day * DAY_MS);
    assert_eq!(clock(&two, &[("t", 0, at(101)), ("t", 1, at(90)), ("t.retry", 0, at(101))]), at(90));
    assert_eq!(clock(&two, &[("t", 0, at(101)), ("t", 1, at(101))]), None, "one never looked at");
    assert_eq!(clock(&two, &[("t", 0, at(101)), ("t", 1, None), ("t.retry", 0, at(101))]), None, "one not caught up");
}

#[test]
fn partitions_that_came_later_count_and_those_that_are_gone_do_not() {
    let one = [("t", 1)];
    let at = |day: i64| Some(day * DAY_MS);
    assert_eq!(clock(&one, &[("t", 0, at(105)), ("t", 1, None)]), None, "added and not yet caught up");
    assert_eq!(clock(&one, &[("t", 0, at(105)), ("t", 1, at(102))]), at(102), "added since the start");
    assert_eq!(clock(&one, &[("t", 0, at(105)), ("t", 1, at(50))]), at(105), "of a topic that was made anew");
    assert_eq!(clock(&one, &[("t", 0, at(105)), ("left", 0, at(50)), ("left", 1, None)]), at(105), "no longer read");
}
