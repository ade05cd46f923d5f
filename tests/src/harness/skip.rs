//! Tests that cannot run on this machine say so, and are counted.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use super::paths::target_dir;

/// File with one line a skipped test, which `make test` empties before the run and counts after it.
pub fn skips_file() -> PathBuf {
    target_dir().join("test-skips.txt")
}

/// Notes that the running test is skipped. Use [`skip!`](crate::skip), which also returns from it.
///
/// # Panics
/// With `CI=true`: there, a test that does not run is a failure.
pub fn note_skip(reason: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    let line = format!("SKIPPED {name}: {reason}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{line} (with CI=true a skip is a failure)");
    // Not `eprintln!`, which the test runner keeps to itself when a test passes.
    let _ = writeln!(std::io::stderr(), "{line}");
    let file = OpenOptions::new().create(true).append(true).open(skips_file());
    file.and_then(|mut it| writeln!(it, "{line}")).expect("the target directory can be written");
}

/// Ends the running test as skipped, with a reason in the form of `format!`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::harness::note_skip(&format!($($reason)+));
        return;
    }};
}
