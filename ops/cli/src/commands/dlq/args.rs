//! What can be typed behind `dlq` and `audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use sekali_consumer::config::Config;
use sekali_consumer::operate::{Filter, LetterState};
use uuid::Uuid;

use super::configured;
use crate::args::Signed;
use crate::exit::Failure;

const BURST: &str = "Runbook: ops/runbooks/SekaliDeadLetterBurst.md";
const WAITING: &str = "Runbook: ops/runbooks/SekaliDeadLettersWaiting.md";

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// Causes of dead letters, the most frequent first.
    #[command(after_help = BURST)]
    Groups(FilterArgs),
    /// Dead letters, the newest first.
    #[command(after_help = BURST)]
    List(ListArgs),
    /// Everything about one dead letter: payload, headers, attempts, inbox, audit.
    #[command(after_help = BURST)]
    Show {
        /// Its id.
        id: Uuid,
    },
    /// Send dead letters back to the group that gave them up. A dry run, until --yes.
    #[command(after_help = WAITING)]
    Replay(ActArgs),
    /// Close dead letters: nothing more is to be done. A dry run, until --yes.
    #[command(after_help = WAITING)]
    Discard(ActArgs),
    /// Open discarded dead letters again. A dry run, until --yes.
    #[command(after_help = WAITING)]
    Restore(ActArgs),
    /// Replay one dead letter with another payload, under a new idempotency key. Needs operate.allow_edit.
    #[command(after_help = WAITING)]
    Edit(EditArgs),
    /// Write dead letters with everything that is known of them to standard output, one JSON document a line.
    #[command(after_help = WAITING)]
    Export(FilterArgs),
    /// Take dead letters in: of an export, or of a topic where another program put them. Twice adds nothing.
    #[command(after_help = WAITING)]
    Import(ImportArgs),
    /// What was asked for, and how far it is.
    #[command(after_help = WAITING)]
    Operations {
        /// How many to show.
        #[arg(long, default_value_t = 20, value_name = "N")]
        first: u32,
    },
    /// Go on with an operation that was stopped, or whose process died.
    #[command(after_help = WAITING)]
    Resume {
        /// Number of the operation.
        id: i64,
    },
    /// End an operation. What it did stays done.
    #[command(after_help = WAITING)]
    Cancel {
        /// Number of the operation.
        id: i64,
        #[command(flatten)]
        signed: Signed,
    },
}

/// Which dead letters.
#[derive(Debug, Clone, Args)]
pub(crate) struct FilterArgs {
    /// Consumer that gave up; the configured one by default, "*" for all.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// State; by default the one that makes sense for the command.
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<StateArg>,
    /// Topic of the first delivery.
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// Group of failures, as `dlq groups` shows it.
    #[arg(long, value_name = "ID")]
    group: Option<String>,
    /// Class of the failure.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Idempotency key, or the record's key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Failed last at this moment or later: 2030-01-31T08:00:00Z, or an age such as 2h.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Timestamp>,
    /// Failed last before this moment.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
    /// Part of the error's text or code, or of the idempotency key.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StateArg {
    /// Nothing was done about it, or it did not help.
    Open,
    /// On its way back.
    Replaying,
    /// Took effect after all.
    Resolved,
    /// Closed.
    Discarded,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    /// How many to show, at most 1000.
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub(super) first: u32,
    /// Only those older than this one: the next page.
    #[arg(long, value_name = "ID")]
    pub(super) before: Option<Uuid>,
}

/// Options of what changes many.
#[derive(Debug, Args)]
pub(crate) struct ActArgs {
    /// Ids of dead letters, instead of a filter.
    #[arg(value_name = "ID")]
    ids: Vec<Uuid>,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    pub(super) signed: Signed,
    /// Every dead letter, without a filter; takes --count.
    #[arg(long)]
    all: bool,
    /// How many there are: refused when it is another number by now.
    #[arg(long, value_name = "N")]
    pub(super) count: Option<u64>,
    /// Letters a second; by default operate.replay_rate, and for what sends nothing 5000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: Option<u32>,
    /// Beyond operate.replays_max, and though a replay is on its way: what was sent before comes too late then.
    #[arg(long)]
    pub(super) force: bool,
    /// Do it.
    #[arg(long)]
    pub(super) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// Id of the dead letter.
    pub(super) id: Uuid,
    /// File with the new payload; "-" reads standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) payload: PathBuf,
    #[command(flatten)]
    pub(super) signed: Signed,
    /// Do it.
    #[arg(long)]
    pub(super) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// File of `dlq export`; "-" reads standard input.
    #[arg(value_name = "FILE", required_unless_present = "from_topic")]
    pub(super) file: Option<PathBuf>,
    /// Instead, a dead-letter topic of Spring Kafka, Kafka Streams, Kafka Connect or a share group, read to its end.
    #[arg(long, value_name = "TOPIC", conflicts_with = "file")]
    pub(super) from_topic: Option<String>,
    /// Consumer that is to have the letters of a topic; the configured one by default.
    #[arg(long, value_name = "NAME", requires = "from_topic")]
    pub(super) consumer: Option<String>,
    #[command(flatten)]
    pub(super) signed: Signed,
}

/// Options of `audit`.
#[derive(Debug, Args)]
#[command(after_help = WAITING)]
pub(crate) struct AuditArgs {
    /// Of this dead letter.
    #[arg(long, value_name = "ID")]
    pub(super) id: Option<Uuid>,
    /// Of this operation.
    #[arg(long, value_name = "N")]
    pub(super) operation: Option<i64>,
    /// Of this operator.
    #[arg(long, value_name = "NAME")]
    pub(super) who: Option<String>,
    /// At this moment or later: 2030-01-31T08:00:00Z, or an age such as 2h.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(super) since: Option<Timestamp>,
    /// Rows before this one: the next page.
    #[arg(long, value_name = "N")]
    pub(super) before: Option<i64>,
    /// How many to show.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(super) first: u32,
}

impl FilterArgs {
    pub(super) fn filter(self, config: &Config) -> Result<Filter, Failure> {
        let consumer = self.consumer.or_else(|| configured(config)).filter(|it| it != "*");
        let state = self.state.map(|it| match it {
            StateArg::Open => LetterState::Open,
            StateArg::Replaying => LetterState::Replaying,
            StateArg::Resolved => LetterState::Resolved,
            StateArg::Discarded => LetterState::Discarded,
        });
        let FilterArgs { topic, group, class, key, since, until, text, .. } = self;
        Ok(Filter { consumer, state, topic, group, class, key, since, until, text, ids: Vec::new() })
    }
}

impl ActArgs {
    /// The selection, which is not everything by accident.
    pub(super) fn selected(&self, config: &Config) -> Result<Filter, Failure> {
        let filter = self.filter.clone().filter(config)?;
        if !self.ids.is_empty() {
            if !filter.is_all() || self.all {
                return Err(Failure::usage("name ids, or a filter, or --all: not two of them"));
            }
            return Ok(Filter { state: filter.state, ..Filter::of_ids(self.ids.iter().copied()) });
        }
        if filter.is_all() != self.all {
            return Err(Failure::usage("say which: ids, a filter such as --group, or --all --count N"));
        }
        if self.all && self.yes && self.count.is_none() {
            return Err(Failure::usage("--all takes --count N, the number that the dry run shows"));
        }
        Ok(filter)
    }
}

/// A moment, or how long ago it was.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    let age = humantime::parse_duration(text);
    let age = age.map_err(|_| "use 2030-01-31T08:00:00Z, or an age such as 90s, 2h or 3days".to_owned())?;
    Timestamp::now().checked_sub(age).map_err(|_| "that is before all time".to_owned())
}
