//! One dead letter with another payload.

use std::io::Read;
use std::path::Path;

use sekali_consumer::config::Config;
use sekali_consumer::operate::DeadLetters;
use serde_json::json;

use super::args::EditArgs;
use super::{report, text};
use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) async fn run(global: &Global, config: &Config, args: EditArgs) -> Result<Outcome, Failure> {
    let payload = read(&args.payload)?;
    let letters = DeadLetters::connect(config).await?;
    if !args.yes {
        let shown = letters.show(args.id).await?;
        let dry = json!({"dry_run": true, "payload_bytes": payload.len(), "letter": shown});
        output::show(global.output, &dry, |_| text::shown(&shown))?;
        output::note(&format!("nothing was changed: add --yes to replay it with {} other bytes", payload.len()));
        return Ok(Outcome::Done);
    }
    let (copy, operation) = letters.edit(args.id, &payload, &args.signed.actor(), &args.signed.reason).await?;
    output::note(&format!("dead letter {} is replayed as {copy}", args.id));
    report::ended(global, &operation)
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let done = match file.to_str() {
        Some("-") => std::io::stdin().lock().read_to_end(&mut bytes).map(drop),
        _ => std::fs::read(file).map(|it| bytes = it),
    };
    done.map_err(|error| Failure::error(format!("cannot read {}: {error}", file.display())))?;
    Ok(bytes)
}
