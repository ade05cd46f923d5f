//! Which part may know which. ARCHITECTURE.md draws it.

use super::rust::Rust;
use super::tree::{File, report, rust_files};

/// Where code lives, and the words that may not stand in front of `::` there.
const WALLS: [(&str, &[&str]); 3] = [
    ("consumer/src/kafka", &["postgres", "tokio_postgres", "deadpool_postgres"]),
    ("consumer/src/postgres", &["kafka", "rdkafka"]),
    ("schemas/src", &["rdkafka", "tokio", "tokio_postgres", "sekali_producer", "sekali_consumer"]),
];

const CORE: &str = "consumer/src/core";
/// What the core may import.
const CORE_ROOTS: [&str; 6] = ["std", "core", "self", "super", "crate", "sekali_schemas"];

#[test]
fn parts_do_not_know_each_other() {
    let mut found = Vec::new();
    for (file, rust) in rust_files() {
        for (place, forbidden) in WALLS.iter().filter(|(place, _)| is_in(&file, place)) {
            let roots = roots(&rust).into_iter().filter(|(_, root)| forbidden.contains(root));
            found.extend(roots.map(|(it, root)| format!("{}:{}: {place} uses {root}", file.path, rust.line(it))));
        }
    }
    report(found, "pass data through the runtime instead");
}

/// The only place that calls the client library past its wrapper, once.
const UNSAFE: &str = "producer/src/oauth/admin.rs";

#[test]
fn one_call_is_unsafe_and_no_other() {
    let mut found = Vec::new();
    for (file, rust) in rust_files() {
        let uses = rust.words().filter(|(_, word)| *word == "unsafe");
        let allowed = usize::from(file.path == UNSAFE);
        found.extend(uses.skip(allowed).map(|(it, _)| format!("{}:{}: unsafe", file.path, rust.line(it))));
    }
    report(found, "do it without, or argue for it in ARCHITECTURE.md");
}

#[test]
fn the_core_is_pure() {
    let mut found = Vec::new();
    let mut seen = 0;
    for (file, rust) in rust_files().into_iter().filter(|(file, _)| is_in(file, CORE)) {
        seen += 1;
        for (offset, what) in impure(&rust) {
            found.push(format!("{}:{}: {what}", file.path, rust.line(offset)));
        }
    }
    assert!(seen > 0, "{CORE} has moved: tell this test where the core is");
    report(found, "the core gets events and returns actions: take the clock, the client and the lock out of it");
}

/// Imports of other crates and parts, and the doors of `std` to the outside. Tests may use what they like.
fn impure(rust: &Rust) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let modules: Vec<_> = rust.names_after(&["mod"]).into_iter().map(|(_, name)| name).collect();
    for (offset, root) in rust.names_after(&["use"]) {
        if !CORE_ROOTS.contains(&root) && !modules.contains(&root) {
            found.push((offset, format!("imports {root}")));
        }
        if root == "crate" && !rust.code[offset..].starts_with("crate::core::") {
            found.push((offset, "imports another part of the crate".to_owned()));
        }
    }
    for door in ["Instant::now", "SystemTime::now", "std::fs", "std::net", "std::thread", "std::process", "async fn"] {
        found.extend(rust.find(door).into_iter().map(|it| (it, format!("uses {door}"))));
    }
    found.retain(|(offset, _)| !rust.is_test(*offset));
    found
}

fn is_in(file: &File, place: &str) -> bool {
    let rest = file.path.strip_prefix(place);
    rest.is_some_and(|it| it.starts_with('/') || it == ".rs") && !file.path.ends_with("tests.rs")
}

/// Words with `::` behind them.
fn roots(rust: &Rust) -> Vec<(usize, &str)> {
    rust.words().filter(|(start, word)| rust.code[start + word.len()..].starts_with("::")).collect()
}

#[test]
fn the_core_may_not_look_at_the_clock_or_at_clients() {
    let outside = "use std::time::Instant;\nuse rdkafka::Message;\nuse crate::runtime::X;\nfn f() { Instant::now(); }";
    let what: Vec<_> = impure(&Rust::read(outside)).into_iter().map(|it| it.1).collect();
    assert_eq!(what, ["imports rdkafka", "imports another part of the crate", "uses Instant::now"]);
    let inside =
        "use std::fmt;\nuse crate::core::X;\nuse super::Y;\n#[cfg(test)]\nmod tests { use proptest::prelude::*; }";
    assert!(impure(&Rust::read(inside)).is_empty());
}
