//! Rules for every text file.

use sekali_tests::harness::workspace_root;

use super::tree::{files, report};

const TEXT: [&str; 12] =
    [".rs", ".toml", ".md", ".sh", ".sql", ".yaml", ".yml", ".json", ".xml", "Makefile", "Dockerfile", "run"];

#[test]
fn lines_have_no_tabs_and_no_space_at_their_end() {
    let mut found = Vec::new();
    for file in files(&TEXT) {
        let tabs_allowed = file.path.ends_with("Makefile");
        for (index, line) in file.text.lines().enumerate() {
            if line.ends_with(' ') || line.ends_with('\t') || (line.contains('\t') && !tabs_allowed) {
                found.push(format!("{}:{}", file.path, index + 1));
            }
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            found.push(format!("{}: no newline at the end", file.path));
        }
    }
    report(found, "remove tabs and trailing space (rustfmt does it for Rust)");
}

/// What is written here must work everywhere.
#[test]
fn no_path_of_this_machine_is_written_down() {
    let root = workspace_root().display().to_string();
    let home = std::env::var("HOME").unwrap_or_default();
    let machine: Vec<String> = [root, home].into_iter().filter(|it| it.len() > 1).map(|it| format!("{it}/")).collect();
    let mut found = Vec::new();
    for file in files(&TEXT) {
        // Images have a home of their own.
        if file.path.ends_with("Dockerfile") {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            if machine.iter().any(|it| line.contains(it.as_str())) {
                found.push(format!("{}:{}", file.path, index + 1));
            }
        }
    }
    report(found, "use a path relative to the workspace, or an environment variable");
}
