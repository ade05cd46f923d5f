//! Stock events for the large tests: the retail data set where it is at hand, generated ones of the same shape elsewhere.
//! Sums are computed here, without any code of the product.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::harness::workspace_root;

/// A file of NDJSON events and what must come of it.
pub struct Events {
    /// The file; plain NDJSON.
    pub file: PathBuf,
    /// Lines in it; every id is there once.
    pub count: usize,
    /// Sum of `delta` for each SKU.
    pub sums: BTreeMap<String, i64>,
    /// Where they come from, for the report.
    pub origin: &'static str,
}

/// Most events of a test when nothing says otherwise.
const COUNT_IN_CI: usize = 50_000;

/// Writes the events of a large test into `directory`. `SEKALI_TEST_EVENTS` bounds their number; in CI the bound is
/// 50,000, elsewhere all that there are.
pub fn events(directory: &Path) -> Events {
    let bound = std::env::var("SEKALI_TEST_EVENTS").ok().and_then(|it| it.parse().ok());
    let in_ci = std::env::var("CI").is_ok_and(|it| it == "true");
    first_events(directory, bound.unwrap_or(if in_ci { COUNT_IN_CI } else { usize::MAX }))
}

/// The first `max` events.
pub fn first_events(directory: &Path, max: usize) -> Events {
    let shared =
        std::env::var_os("SEKALI_SHARED_DATA").map_or_else(|| workspace_root().join("../shared/data"), PathBuf::from);
    let retail = shared.join("online-retail.ndjson.gz");
    let file = directory.join("events.ndjson");
    match std::fs::File::open(&retail) {
        Ok(packed) => take(GzDecoder::new(packed), max, file, "the retail data set"),
        Err(_) => take(std::io::Cursor::new(generate(max.min(COUNT_IN_CI))), max, file, "generated events"),
    }
}

fn take(source: impl Read, max: usize, file: PathBuf, origin: &'static str) -> Events {
    let mut out = std::io::BufWriter::new(std::fs::File::create(&file).expect("a temporary file"));
    let mut sums = BTreeMap::new();
    let mut count = 0;
    for line in BufReader::new(source).lines().take(max) {
        let line = line.expect("the events are readable");
        let event: Value = serde_json::from_str(&line).expect("an event is JSON");
        let sku = event["sku"].as_str().expect("an event has a sku").to_owned();
        *sums.entry(sku).or_insert(0) += event["delta"].as_i64().expect("an event has a delta");
        writeln!(out, "{line}").expect("a temporary file");
        count += 1;
    }
    out.flush().expect("a temporary file");
    Events { file, count, sums, origin }
}

/// Events of the retail set's shape: some SKUs sell far more than others, some differ only in case.
fn generate(count: usize) -> Vec<u8> {
    let mut state = 0x5EC_A11_u64;
    let mut below = move |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut lines = Vec::new();
    for index in 0..count {
        let rank = below(64) * below(64);
        let letter = ["", "A", "a"][below(3) as usize];
        let (sku, delta) = (format!("{}{letter}", 10_000 + rank), below(200) as i64 - 120);
        let (invoice, line) = (536_365 + index / 20, index % 20 + 1);
        let event = serde_json::json!({
            "id": format!("{invoice}-{line}"), "type": "stock.adjusted", "sku": sku, "delta": delta,
            "invoice": invoice.to_string(), "occurred_at": "2010-12-01T08:26:00Z", "unit_price": 2.55, "country": "EIRE",
        });
        lines.extend_from_slice(event.to_string().as_bytes());
        lines.push(b'\n');
    }
    lines
}
