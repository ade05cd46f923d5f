//! One version of every dependency, from the registry, under a licence that goes with ours.

use std::collections::BTreeMap;
use std::process::Command;

use sekali_tests::harness::workspace_root;
use serde_json::Value;

use super::tree::{files, report};

const ALLOWED_LICENCES: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Types of these cross the boundaries of crates, so that two versions would not fit together.
const SINGLE: [&str; 5] = ["bytes", "rdkafka", "rdkafka-sys", "tokio", "tokio-postgres"];

#[test]
fn every_dependency_is_named_once_in_the_workspace() {
    let mut found = Vec::new();
    // An example is another team's service: what it shows is a manifest of its own.
    for file in files(&["Cargo.toml"]).into_iter().filter(|it| !it.path.starts_with("examples/")) {
        let manifest: toml::Table = file.text.parse().unwrap();
        let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
        for (table, dependencies) in tables.iter().filter_map(|it| Some((it, manifest.get(*it)?.as_table()?))) {
            let own = dependencies.iter().filter(|(_, it)| it.get("workspace") != Some(&toml::Value::Boolean(true)));
            found.extend(own.map(|(name, _)| format!("{}: {table}: {name}", file.path)));
        }
        let lints = manifest.get("lints").and_then(|it| it.get("workspace"));
        if manifest.contains_key("package") && lints != Some(&toml::Value::Boolean(true)) {
            found.push(format!("{}: lints.workspace is missing", file.path));
        }
    }
    report(found, "put version and features into [workspace.dependencies], and `workspace = true` here");
}

#[test]
fn licences_go_with_ours() {
    let packages = packages();
    let others = packages.iter().filter(|it| !it["source"].is_null());
    let foreign = others.filter(|it| !is_allowed(it["license"].as_str().unwrap_or("none named")));
    let found = foreign.map(|it| format!("{} {}: {}", it["name"], it["version"], it["license"]));
    report(
        found.collect(),
        "choose another crate, or add the licence to ALLOWED_LICENCES and deny.toml after reading it",
    );
}

#[test]
fn sources_are_the_registry_or_the_workspace() {
    let packages = packages();
    let git = packages.iter().filter(|it| it["source"].as_str().is_some_and(|it| !it.starts_with("registry+")));
    let found = git.map(|it| format!("{}: {}", it["name"], it["source"]));
    report(found.collect(), "depend on a published version");
}

#[test]
fn shared_types_have_one_version() {
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    let packages = packages();
    for name in packages.iter().filter_map(|it| it["name"].as_str()).filter(|it| SINGLE.contains(it)) {
        *versions.entry(name).or_default() += 1;
    }
    assert_eq!(versions.len(), SINGLE.len(), "{versions:?}");
    let several = versions.into_iter().filter(|(_, count)| *count > 1);
    report(several.map(|(name, count)| format!("{name}: {count} versions")).collect(), "see `cargo tree -d`");
}

/// All packages that a build for this platform uses, without asking the network.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc.lines().find_map(|it| it.strip_prefix("host: ")).unwrap();
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", host])
        .current_dir(workspace_root())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Whether a licence expression can be satisfied by what is allowed. `AND` binds closer than `OR`; the old `/` is `OR`.
fn is_allowed(expression: &str) -> bool {
    let expression =
        expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ").replace(" WITH ", "+WITH+");
    let tokens: Vec<&str> = expression.split_whitespace().collect();
    let mut rest = tokens.as_slice();
    any(&mut rest) && rest.is_empty()
}

fn any(rest: &mut &[&str]) -> bool {
    let mut allowed = all(rest);
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        allowed |= all(rest);
    }
    allowed
}

fn all(rest: &mut &[&str]) -> bool {
    let mut allowed = one(rest);
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        allowed &= one(rest);
    }
    allowed
}

fn one(rest: &mut &[&str]) -> bool {
    let Some((first, tail)) = rest.split_first() else { return false };
    *rest = tail;
    if *first != "(" {
        return ALLOWED_LICENCES.contains(&first.replace('+', " ").as_str());
    }
    let allowed = any(rest);
    // The closing bracket; an expression without one is refused by whoever finds the rest.
    *rest = rest.get(1..).unwrap_or_default();
    allowed
}

#[test]
fn licence_expressions_are_understood() {
    let cases = [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("MIT OR GPL-3.0-only", true),
        ("MIT AND GPL-3.0-only", false),
        ("MIT/Apache-2.0", true),
        ("(MIT OR GPL-2.0-only) AND Unicode-3.0", true),
        ("GPL-2.0-only OR MIT AND ISC", true),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", true),
        ("none named", false),
        ("", false),
    ];
    for (expression, expected) in cases {
        assert_eq!(is_allowed(expression), expected, "{expression}");
    }
}
