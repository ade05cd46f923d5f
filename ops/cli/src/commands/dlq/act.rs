//! Replay, discard, restore: first a look, then the operation with its progress.

use indicatif::{ProgressBar, ProgressStyle};
use sekali_consumer::config::Config;
use sekali_consumer::operate::{Ask, DeadLetters, Operation};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::args::ActArgs;
use super::{report, text};
use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) use sekali_consumer::operate::Act;

pub(super) async fn run(global: &Global, config: &Config, act: Act, args: ActArgs) -> Result<Outcome, Failure> {
    let filter = args.selected(config)?;
    let letters = DeadLetters::connect(config).await?;
    if !args.yes {
        let preview = letters.preview(act, &filter).await?;
        let dry = json!({"dry_run": true, "act": act.as_str(), "selection": filter, "preview": preview});
        output::show(global.output, &dry, |_| text::preview(act, &preview))?;
        return Ok(Outcome::Done);
    }
    let ask = Ask {
        filter,
        who: args.signed.actor(),
        reason: args.signed.reason.clone(),
        rate: args.rate,
        force: args.force,
        expected: args.count,
    };
    let operation = letters.begin(act, &ask).await?;
    output::note(&format!("operation {}: {} {} dead letters", operation.id, operation.kind, operation.letters));
    carry_out(global, &letters, operation).await
}

pub(super) async fn resume(global: &Global, config: &Config, id: i64) -> Result<Outcome, Failure> {
    let letters = DeadLetters::connect(config).await?;
    let operation = letters.operation(id).await?;
    carry_out(global, &letters, operation).await
}

async fn carry_out(global: &Global, letters: &DeadLetters, operation: Operation) -> Result<Outcome, Failure> {
    let stop = stopped_by_signals()?;
    let bar = bar(&operation);
    let ran = letters.run(operation.id, &stop, |it| bar.set_position(it.done)).await;
    bar.finish_and_clear();
    match ran {
        Ok(ended) => report::ended(global, &ended),
        Err(error) => {
            let id = operation.id;
            Err(Failure::error(format!("{}; go on with `sekali dlq resume {id}`", error.chain())))
        }
    }
}

fn bar(operation: &Operation) -> ProgressBar {
    let bar = ProgressBar::new(operation.letters).with_position(operation.done);
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len}  {per_sec}  {elapsed}, {eta} to go");
    style.map_or_else(|_| bar.clone(), |it| bar.clone().with_style(it))
}

/// Ctrl-C and SIGTERM end the operation after the transaction in hand; a second Ctrl-C ends the process.
fn stopped_by_signals() -> Result<CancellationToken, Failure> {
    let stop = CancellationToken::new();
    let listen = |kind| signal(kind).map_err(|error| Failure::error(format!("cannot listen for signals: {error}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        output::note("stopping");
        told.cancel();
        interrupt.recv().await;
        std::process::exit(130);
    });
    Ok(stop)
}
