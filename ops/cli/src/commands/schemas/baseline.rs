//! Schemas as they are, beside those that were recorded.

use std::fs;
use std::path::Path;

use sekali_producer::schemas::SchemaFile;
use sekali_schemas::compatibility::{Change, Verdict, compare};
use serde::Serialize;

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output;

/// One change of one schema.
#[derive(Debug, Serialize)]
struct Finding {
    /// Type and version.
    schema: String,
    /// Place in the schema, a JSON pointer.
    pointer: String,
    rule: String,
    /// How sure it is: `breaking`, `unclear`, or `note`.
    verdict: &'static str,
    /// Who is concerned: `consumers` may refuse what they accepted, `producers` may write what others refuse.
    concerns: &'static str,
    what: String,
    remedy: &'static str,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    schemas: usize,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Recorded {
    directory: String,
    written: Vec<String>,
    removed: Vec<String>,
}

const NEW_VERSION: &str = "take it back, or make it a new version: <type>.v<next>.json beside this one";
const LOOK: &str = "look at it yourself; if it is right, record it: sekali schemas record";
const NOTE: &str = "nothing, unless a producer gave that name another meaning";
const ORDER: &str = "update consumers before producers";
const RESTORE: &str = "restore the file: messages of it may still be on their way";

pub(super) fn check(global: &Global, recorded: &[SchemaFile], current: &[SchemaFile]) -> Result<Outcome, Failure> {
    let mut findings = Vec::new();
    for old in recorded {
        match current.iter().find(|it| (&it.name, it.version) == (&old.name, old.version)) {
            Some(new) => findings.extend(changes(old, new)),
            None => findings.push(Finding {
                schema: title(old),
                pointer: String::new(),
                rule: "removed".to_owned(),
                verdict: "breaking",
                concerns: "consumers",
                what: "the schema is gone".to_owned(),
                remedy: RESTORE,
            }),
        }
    }
    let ok = !findings.iter().any(|it| it.concerns == "consumers" && it.verdict != "note");
    let report = Report { ok, schemas: recorded.len(), findings };
    output::show(global.output, &report, |report| {
        let rows = report.findings.iter().map(|it| {
            let verdict = if it.concerns == "producers" { "warning" } else { it.verdict };
            let what = format!("{} -> {}", it.what, it.remedy);
            [verdict.to_owned(), it.schema.clone(), it.pointer.clone(), it.rule.clone(), what]
        });
        let table = output::table(["VERDICT", "SCHEMA", "POINTER", "RULE", "WHAT"], rows);
        let ending = if report.ok { "compatible" } else { "not compatible" };
        let table = if report.findings.is_empty() { String::new() } else { table + "\n" };
        format!("{table}{} recorded schemas: {ending}\n", report.schemas)
    })?;
    Ok(if ok { Outcome::Done } else { Outcome::Found })
}

/// What consumers of the new schema may refuse, and then what those of the old one may refuse.
fn changes(old: &SchemaFile, new: &SchemaFile) -> Vec<Finding> {
    let finding = |change: Change, concerns| {
        let (verdict, remedy) = match (change.verdict, concerns) {
            (Verdict::Added, _) => ("note", NOTE),
            (Verdict::Unclear, "consumers") => ("unclear", LOOK),
            (Verdict::Breaking, "consumers") => ("breaking", NEW_VERSION),
            (Verdict::Unclear, _) => ("unclear", ORDER),
            (Verdict::Breaking, _) => ("breaking", ORDER),
        };
        let Change { pointer, rule, what, .. } = change;
        Finding { schema: title(new), pointer, rule, verdict, concerns, what, remedy }
    };
    let forward = compare(&old.schema, &new.schema).into_iter().map(|it| finding(it, "consumers"));
    let backward = compare(&new.schema, &old.schema).into_iter().filter(|it| it.verdict.is_blocking());
    forward.chain(backward.map(|it| finding(it, "producers"))).collect()
}

fn title(file: &SchemaFile) -> String {
    format!("{} v{}", file.name, file.version)
}

/// Makes the recorded schemas those that are there now.
pub(super) fn record(global: &Global, directory: &Path, current: &[SchemaFile]) -> Result<Outcome, Failure> {
    let failed = |error: std::io::Error| Failure::error(format!("cannot record in {}: {error}", directory.display()));
    fs::create_dir_all(directory).map_err(failed)?;
    let names: Vec<String> = current.iter().map(SchemaFile::file_name).collect();
    let mut removed = Vec::new();
    for old in super::read(directory)?.iter().map(SchemaFile::file_name).filter(|it| !names.contains(it)) {
        fs::remove_file(directory.join(&old)).map_err(failed)?;
        removed.push(old);
    }
    for (file, name) in current.iter().zip(&names) {
        fs::write(directory.join(name), &file.text).map_err(failed)?;
    }
    let recorded = Recorded { directory: directory.display().to_string(), written: names, removed };
    output::show(global.output, &recorded, |it| {
        let line = |verb: &str, name: &String| format!("{verb} {name}\n");
        let written = it.written.iter().map(|name| line("recorded", name));
        written.chain(it.removed.iter().map(|name| line("removed", name))).collect()
    })?;
    Ok(Outcome::Done)
}
