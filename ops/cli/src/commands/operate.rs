//! Commands about messages, keys, topics and leases.

mod held;
mod inbox;
mod lock;
mod outbox;
mod pause;
mod retry;

use sekali_consumer::config::Needs;
use sekali_consumer::deadpool_postgres::Pool;
use sekali_consumer::operate::{self, Actor};

use crate::args::{Global, OperateCommand, Signed};
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) async fn run(global: &Global, command: OperateCommand) -> Result<Outcome, Failure> {
    match command {
        OperateCommand::Inbox(command) => inbox::run(global, command).await,
        OperateCommand::Held(command) => held::run(global, command).await,
        OperateCommand::Retry(command) => retry::run(global, command).await,
        OperateCommand::Pause(args) => pause::change(global, args, true).await,
        OperateCommand::Resume(args) => pause::change(global, args, false).await,
        OperateCommand::Paused { group } => pause::list(global, group.as_deref()).await,
        OperateCommand::Lock(command) => lock::run(global, command).await,
        OperateCommand::Outbox(command) => outbox::run(global, &command).await,
    }
}

/// The database alone.
async fn database(global: &Global) -> Result<Pool, Failure> {
    Ok(operate::open(&super::load(global, Needs::Postgres)?).await?)
}

/// Who does it, and why.
pub(crate) fn actor(signed: &Signed) -> Actor {
    Actor { who: signed.actor(), reason: signed.reason.clone() }
}

/// Says that nothing was done yet, on standard error.
fn dry_run(what: &str) {
    output::note(&format!("dry run: nothing was changed; add --yes to {what}"));
}
