//! The files of the workspace.

use std::path::Path;

use sekali_tests::harness::workspace_root;

use super::rust::Rust;

/// One file; `path` is relative to the root of the workspace.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Crates that users run; the others are tests.
const PRODUCT: [&str; 5] = ["schemas/", "producer/", "consumer/", "ops/cli/", "ops/bench/"];

impl File {
    pub(crate) fn is_product(&self) -> bool {
        PRODUCT.iter().any(|it| self.path.starts_with(it)) && self.path.contains("src/") && !self.is_test()
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }

    pub(crate) fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.split('.').next().unwrap_or_default()
    }
}

/// Every file of text with one of these endings, such as `.rs`.
pub(crate) fn files(endings: &[&str]) -> Vec<File> {
    let mut found = Vec::new();
    walk(workspace_root(), "", endings, &mut found);
    assert!(!found.is_empty(), "no files with {endings:?}: the walk is broken");
    found
}

/// Every Rust file, read.
pub(crate) fn rust_files() -> Vec<(File, Rust)> {
    files(&[".rs"]).into_iter().map(|file| (Rust::read(&file.text), file)).map(|(rust, file)| (file, rust)).collect()
}

/// Fails with all violations at once.
pub(crate) fn report(violations: Vec<String>, remedy: &str) {
    assert!(violations.is_empty(), "{remedy}\n  {}", violations.join("\n  "));
}

fn walk(dir: &Path, prefix: &str, endings: &[&str], found: &mut Vec<File>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().unwrap();
        let skipped = [".git", "target", "node_modules"].contains(&name.as_str());
        if kind.is_dir() && !skipped {
            walk(&entry.path(), &format!("{path}/"), endings, found);
        } else if kind.is_file() && endings.iter().any(|it| name.ends_with(it)) {
            // A file of another encoding is no text.
            if let Ok(text) = std::fs::read_to_string(entry.path()) {
                found.push(File { path, text });
            }
        }
    }
}
