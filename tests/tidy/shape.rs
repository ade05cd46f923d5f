//! Sizes, and calls that a product may not make.

use super::tree::{report, rust_files};

const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;
/// An `expect` without a sentence of at least this length names no invariant.
const SHORTEST_REASON: usize = 12;

#[test]
fn files_stay_below_500_lines() {
    let long = rust_files().into_iter().filter_map(|(file, _)| {
        let lines = file.text.lines().count();
        (lines > FILE_LINES).then(|| format!("{}: {lines} lines", file.path))
    });
    report(long.collect(), "split these files by concept");
}

#[test]
fn functions_fit_a_screen() {
    let mut long = Vec::new();
    for (file, rust) in rust_files() {
        for function in rust.functions().into_iter().filter(|it| it.lines > FUNCTION_LINES) {
            long.push(format!("{}:{}: {} has {} lines", file.path, function.line, function.name, function.lines));
        }
    }
    report(long, "give the parts of these functions names of their own");
}

#[test]
fn the_product_does_not_unwrap() {
    let mut found = Vec::new();
    for (file, rust) in rust_files().into_iter().filter(|(file, _)| file.is_product()) {
        let unwraps = rust.find(".unwrap()").into_iter();
        for offset in unwraps.filter(|it| !rust.is_test(*it) && !is_constant(&rust.code[..*it])) {
            found.push(format!("{}:{}: unwrap", file.path, rust.line(offset)));
        }
        for offset in rust.find(".expect(").into_iter().filter(|it| !rust.is_test(*it)) {
            if reason_length(&file.text[offset + ".expect(".len()..]) < SHORTEST_REASON {
                found.push(format!("{}:{}: expect without a reason", file.path, rust.line(offset)));
            }
        }
    }
    report(found, "return the error, or expect an invariant and name it in the message");
}

/// Whether a statement, given by the code up to a place in it, defines a constant: the compiler then does the check.
fn is_constant(before: &str) -> bool {
    let statement = before.rsplit([';', '{', '}']).next().unwrap_or_default();
    statement.split_whitespace().any(|it| it == "const")
}

fn reason_length(arguments: &str) -> usize {
    let reason = arguments.trim_start().strip_prefix('"').and_then(|it| it.split('"').next());
    reason.unwrap_or_default().chars().count()
}

#[test]
fn no_test_is_ignored() {
    let ignored = rust_files().into_iter().flat_map(|(file, rust)| {
        let places = [rust.find("#[ignore]"), rust.find("#[ignore =")].concat();
        places.into_iter().map(move |it| format!("{}:{}", file.path, rust.line(it))).collect::<Vec<_>>()
    });
    report(ignored.collect(), "run these tests, or skip!(..) them aloud with a reason");
}

#[test]
fn a_reason_is_a_sentence() {
    assert!(reason_length("\"ok\")") < SHORTEST_REASON);
    assert!(reason_length("MESSAGE)") < SHORTEST_REASON);
    assert!(reason_length("\n  \"the lock is never poisoned\")") >= SHORTEST_REASON);
}

#[test]
fn constants_are_checked_by_the_compiler() {
    assert!(is_constant("fn f() {}\npub const A: X = X::new(1)"));
    assert!(!is_constant("const A: u8 = 1; fn f() { let x = g()"));
}
