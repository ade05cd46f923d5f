//! The documents say what the program does.

use sekali_tests::harness::workspace_root;

use super::tree::report;

fn read(name: &str) -> String {
    std::fs::read_to_string(workspace_root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_readme_lists_every_metric_with_its_labels() {
    let readme = read("README.md");
    let all = sekali_consumer::metrics::ALL.iter().chain(sekali_producer::metrics::ALL);
    let missing = all.filter_map(|metric| {
        let labels: Vec<&str> = metric.labels.iter().map(|it| it.0).collect();
        let row = readme.lines().find(|it| it.starts_with(&format!("| `{}` |", metric.name)));
        let right = row.is_some_and(|it| it.ends_with(&format!("| {} |", labels.join(", "))));
        (!right).then(|| format!("{} {}", metric.name, labels.join(", ")))
    });
    report(missing.collect(), "write these metrics, with these labels, into the README's table");
}

#[test]
fn the_readme_shows_the_example_as_it_is() {
    let (readme, example) = (read("README.md"), read("examples/orders/src/main.rs"));
    let shown = readme.split("```rust\n").nth(1).and_then(|it| it.split("```").next()).expect("the README has code");
    assert!(example.contains(shown.trim()), "copy examples/orders/src/main.rs into the README's first code block");
    assert!(example.lines().count() <= 40, "the example fits forty lines");
}
