//! Real events from a file of JSON lines.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use flate2::read::GzDecoder;
use serde::Deserialize;

use crate::load::Load;

#[derive(Deserialize)]
struct Line {
    sku: String,
    delta: i64,
}

/// The first `most` events of a file of JSON lines with `sku` and `delta`, plain or packed with gzip.
///
/// # Errors
/// The file cannot be read, or a line is none.
pub fn retail(path: &Path, most: usize) -> Result<Arc<Load>, anyhow::Error> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let is_packed = path.extension().is_some_and(|it| it == "gz");
    let source: Box<dyn Read> = if is_packed { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    let mut events = Vec::new();
    for (index, line) in BufReader::new(source).lines().take(most).enumerate() {
        let line = line.with_context(|| format!("cannot read {}", path.display()))?;
        let read: Line = serde_json::from_str(&line)
            .with_context(|| format!("{} line {}: no event with sku and delta", path.display(), index + 1))?;
        events.push((read.sku, read.delta, line.into()));
    }
    ensure!(!events.is_empty(), "{} has no events", path.display());
    Ok(Load::given(events))
}
