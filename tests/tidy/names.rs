//! Words that say nothing, and that the design does not use.

use super::tree::{report, rust_files};

const BANNED: [&str; 9] = ["job", "task", "manager", "processor", "service", "engine", "util", "common", "helper"];

#[test]
fn files_and_types_have_telling_names() {
    let mut found = Vec::new();
    for (file, rust) in rust_files() {
        found.extend(banned(file.stem()).map(|word| format!("{}: {word}", file.path)));
        for (offset, name) in rust.names_after(&["struct", "enum", "trait", "type", "union", "mod"]) {
            found.extend(banned(name).map(|word| format!("{}:{}: {name}: {word}", file.path, rust.line(offset))));
        }
    }
    report(found, "say what these are, in a word of DESIGN's list (README and ARCHITECTURE have it, too)");
}

/// The banned word that is part of a name in snake or camel case, in singular or plural.
fn banned(name: &str) -> Option<&'static str> {
    let mut spaced = String::new();
    for it in name.chars() {
        if it.is_uppercase() || it == '_' {
            spaced.push(' ');
        }
        spaced.extend(it.to_lowercase().filter(|it| *it != '_'));
    }
    spaced
        .split_whitespace()
        .find_map(|part| BANNED.into_iter().find(|word| part == *word || part.strip_suffix('s') == Some(word)))
}

#[test]
fn words_are_found_inside_names() {
    let cases = [
        ("RetryManager", Some("manager")),
        ("test_utils", Some("util")),
        ("TaskId", Some("task")),
        ("Multitasking", None),
        ("private_postgres", None),
    ];
    for (name, expected) in cases {
        assert_eq!(banned(name), expected, "{name}");
    }
}
