//! `sekali dlq`: dead letters as work.

mod act;
mod args;
mod edit;
mod report;
mod text;
mod transfer;

use sekali_consumer::config::{Config, Needs};
use sekali_consumer::operate::{AuditQuery, DeadLetters};

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output;

pub(crate) use args::{AuditArgs, DlqCommand, moment};

pub(super) async fn run(global: &Global, command: DlqCommand) -> Result<Outcome, Failure> {
    let config = super::load(global, Needs::Postgres)?;
    match command {
        DlqCommand::Groups(args) => {
            let groups = DeadLetters::connect(&config).await?.groups(&args.filter(&config)?).await?;
            output::show(global.output, &groups, |groups| text::groups(groups))?;
            Ok(Outcome::Done)
        }
        DlqCommand::List(args) => {
            let letters = DeadLetters::connect(&config).await?;
            let page = letters.list(&args.filter.filter(&config)?, args.before, args.first).await?;
            match global.output {
                output::Format::Ndjson => output::show(global.output, &page.letters, |_| String::new())?,
                format => output::show(format, &page, text::page)?,
            }
            Ok(Outcome::Done)
        }
        DlqCommand::Show { id } => {
            let shown = DeadLetters::connect(&config).await?.show(id).await?;
            output::show(global.output, &shown, text::shown)?;
            Ok(Outcome::Done)
        }
        DlqCommand::Replay(args) => act::run(global, &config, act::Act::Replay, args).await,
        DlqCommand::Discard(args) => act::run(global, &config, act::Act::Discard, args).await,
        DlqCommand::Restore(args) => act::run(global, &config, act::Act::Restore, args).await,
        DlqCommand::Edit(args) => edit::run(global, &config, args).await,
        DlqCommand::Export(args) => transfer::export(&config, &args.filter(&config)?).await,
        DlqCommand::Import(args) => transfer::import(global, &config, args).await,
        DlqCommand::Operations { first } => {
            let operations = DeadLetters::connect(&config).await?.operations(first).await?;
            output::show(global.output, &operations, |operations| text::operations(operations))?;
            Ok(Outcome::Done)
        }
        DlqCommand::Resume { id } => act::resume(global, &config, id).await,
        DlqCommand::Cancel { id, signed } => {
            let letters = DeadLetters::connect(&config).await?;
            let operation = letters.cancel(id, &signed.actor(), &signed.reason).await?;
            report::ended(global, &operation)
        }
    }
}

pub(super) async fn audit(global: &Global, args: AuditArgs) -> Result<Outcome, Failure> {
    let config = super::load(global, Needs::Postgres)?;
    let query = AuditQuery {
        dead_letter: args.id,
        operation: args.operation,
        who: args.who,
        since: args.since,
        before: args.before,
    };
    let rows = DeadLetters::connect(&config).await?.audit(&query, args.first).await?;
    output::show(global.output, &rows, |rows| text::audit(rows))?;
    Ok(Outcome::Done)
}

/// The consumer that is meant when none is named: the configured one, if there is one.
fn configured(config: &Config) -> Option<String> {
    Some(config.consumer_name().to_owned()).filter(|it| !it.is_empty())
}
