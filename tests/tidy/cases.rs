//! The table of faults in `tests/README.md`: every case is in it, and every test that it names exists.

use std::collections::BTreeMap;

use sekali_tests::harness::workspace_root;

use super::tree::report;

/// The cases, so that none disappears together with its row.
const CASES: &str = "OFF-01 OFF-02 OFF-04 OFF-05 OFF-07 OFF-08 REB-01 REB-02 REB-04 REB-05 REB-07 REB-08 PAU-02 PAU-03 \
     RTY-01 RTY-02 RTY-04 RTY-05 RTY-07 RTY-08 RTY-10 RTY-11 IDM-01 IDM-02 IDM-04 IDM-05 IDM-07 IDM-08 IDM-10 IDM-11 \
     LCK-02 LCK-03 OBX-01 OBX-02 OBX-04 OBX-05 SHD-02 SHD-03 INF-01 INF-02 INF-04 INF-05 INF-07 MEM-01 MEM-03 MET-01 \
     MET-03 MET-04 SCH-02 SCH-03 K8S-01 K8S-02 K8S-04";

/// Last column of each row, by case.
fn rows(readme: &str) -> BTreeMap<&str, &str> {
    let cells = readme.lines().map(|it| it.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    let rows = cells.filter_map(|it| Some((it.first()?.split_once(" (")?.0, *it.get(2)?)));
    rows.filter(|(case, _)| case.len() == 6 && case.as_bytes()[3] == b'-').collect()
}

/// Tests that a cell names, as file and function.
fn named(cell: &str) -> Vec<(&str, &str)> {
    cell.split('`').skip(1).step_by(2).filter_map(|it| it.split_once("::")).collect()
}

/// Whether a file has a function of this name, or a macro that makes one out of it.
fn has_test(file: &str, name: &str) -> bool {
    let root = workspace_root();
    let text = ["tests", ""].iter().find_map(|it| std::fs::read_to_string(root.join(it).join(file)).ok());
    text.is_some_and(|it| {
        it.contains(&format!("fn {name}(")) || it.lines().any(|line| line.trim().starts_with(&format!("{name}: \"")))
    })
}

#[test]
fn every_public_fault_has_its_tests_or_a_reason() {
    let readme = std::fs::read_to_string(workspace_root().join("tests/README.md")).unwrap();
    let rows = rows(&readme);
    let mut found = Vec::new();
    for case in CASES.split_whitespace() {
        let Some(cell) = rows.get(case) else {
            found.push(format!("{case} is not in the table"));
            continue;
        };
        let tests = named(cell);
        if tests.is_empty() && !cell.starts_with("none") {
            found.push(format!("{case} has neither a test nor a reason"));
        }
        for (file, name) in tests.iter().filter(|(file, name)| !has_test(file, name)) {
            found.push(format!("{case}: {file} has no test {name}"));
        }
    }
    let known: Vec<&str> = CASES.split_whitespace().collect();
    found.extend(rows.keys().filter(|it| !known.contains(it)).map(|it| format!("{it} is not a known case")));
    report(found, "correct the table in tests/README.md");
}

#[test]
fn rows_and_names_are_read() {
    let table = "| case | kind | tests |\n|---|---|---|\n| ABC-01 (0) | x | `a.rs::b`, `c::d`; or `so` |\n";
    let rows = rows(table);
    assert_eq!(named(rows["ABC-01"]), [("a.rs", "b"), ("c", "d")]);
    assert!(has_test("tests/tidy/cases.rs", "rows_and_names_are_read") && !has_test("tests/tidy/cases.rs", "no"));
    assert!(has_test("it/outcomes.rs", "ok_ends_in_the_ledger"), "macros make tests, too");
}
