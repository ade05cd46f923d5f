//! Dead letters out of the store and into it.

use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::Path;

use sekali_consumer::config::{Config, Needs};
use sekali_consumer::operate::{DeadLetters, Exported, Filter, Imported};

use super::args::ImportArgs;
use super::configured;
use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output;

/// Letters of one page, and of one transaction.
const PAGE: u32 = 500;

pub(super) async fn export(config: &Config, filter: &Filter) -> Result<Outcome, Failure> {
    let letters = DeadLetters::connect(config).await?;
    let mut after = None;
    loop {
        let page = letters.export(filter, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(Outcome::Done) };
        after = Some(last.id);
        for letter in &page {
            let line = serde_json::to_string(letter)
                .map_err(|error| Failure::error(format!("cannot write a dead letter as JSON: {error}")))?;
            output::print(&(line + "\n"))?;
        }
    }
}

pub(super) async fn import(global: &Global, config: &Config, args: ImportArgs) -> Result<Outcome, Failure> {
    let letters = DeadLetters::connect(config).await?;
    let (who, reason) = (args.signed.actor(), &args.signed.reason);
    let imported = match (&args.from_topic, &args.file) {
        (Some(topic), _) => {
            let config = crate::commands::load(global, Needs::Relay)?;
            let consumer = args.consumer.or_else(|| configured(&config)).ok_or_else(|| {
                Failure::usage("whose dead letters are these? name a consumer with --consumer, or in consumer.group")
            })?;
            letters.import_topic(&config, topic, &consumer, &who, reason).await?
        }
        (None, Some(file)) => import_file(&letters, file, &who, reason).await?,
        (None, None) => return Err(Failure::usage("name a file, or --from-topic")),
    };
    output::show(global.output, &imported, text)?;
    Ok(if imported.unreadable == 0 { Outcome::Done } else { Outcome::Found })
}

async fn import_file(letters: &DeadLetters, file: &Path, who: &str, reason: &str) -> Result<Imported, Failure> {
    let name = file.display().to_string();
    let unreadable = |error: std::io::Error| Failure::error(format!("cannot read {name}: {error}"));
    let reader: Box<dyn BufRead> = match file.to_str() {
        Some("-") => Box::new(BufReader::new(stdin())),
        _ => Box::new(BufReader::new(File::open(file).map_err(unreadable)?)),
    };
    let mut imported = Imported::default();
    let mut page: Vec<Exported> = Vec::with_capacity(PAGE as usize);
    let mut lines = reader.lines().enumerate();
    loop {
        let line = lines.next();
        if page.len() == PAGE as usize || (line.is_none() && !page.is_empty()) {
            let some = letters.import(&page, &name, who, reason).await?;
            imported.imported += some.imported;
            imported.known += some.known;
            page.clear();
        }
        let Some((nr, line)) = line else { return Ok(imported) };
        let line = line.map_err(unreadable)?;
        if line.trim().is_empty() {
            continue;
        }
        page.push(serde_json::from_str(&line).map_err(|error| {
            // The parser's own text may quote the line.
            let (line, column) = (nr + 1, error.column());
            Failure::error(format!(
                "line {line} of {name} is no exported dead letter (column {column}); {} were imported before it",
                imported.imported
            ))
        })?);
    }
}

fn text(imported: &Imported) -> String {
    let Imported { imported, known, unreadable, .. } = imported;
    format!(
        "imported {imported} dead letters; {known} were there already, {unreadable} do not say where they come from"
    )
}
