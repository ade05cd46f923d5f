//! Commands about messages, keys, topics and leases.

use clap::{Args, Subcommand};

use super::Signed;

#[derive(Debug, Subcommand)]
pub(crate) enum OperateCommand {
    /// What was decided about a message.
    #[command(subcommand)]
    Inbox(InboxCommand),
    /// Keys that wait behind a failed message.
    #[command(subcommand)]
    Held(HeldCommand),
    /// Failed messages whose next attempt is to come.
    #[command(subcommand)]
    Retry(RetryCommand),
    /// Stop a topic of a group: every worker begins nothing more of it within seconds, nor does one that starts later, until
    /// `sekali resume`. What is in hand ends.
    #[command(after_help = "Runbook: ops/runbooks/SekaliDeadLetterBurst.md")]
    Pause(PauseArgs),
    /// Take a pause back.
    #[command(after_help = "Runbook: ops/runbooks/SekaliDeadLetterBurst.md")]
    Resume(PauseArgs),
    /// List what is paused, by whom and why.
    #[command(after_help = "Runbook: ops/runbooks/SekaliConsumerStalled.md")]
    Paused {
        /// Only this consumer group.
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
    /// Leases: named locks, the relay's leadership, effects in progress.
    #[command(subcommand)]
    Lock(LockCommand),
    /// Records on their way to Kafka.
    #[command(subcommand)]
    Outbox(OutboxCommand),
}

/// Which topic of which group.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["topic", "all"])))]
pub(crate) struct PauseArgs {
    /// Source topic; its retry topics go with it.
    pub(crate) topic: Option<String>,
    /// All topics of the group.
    #[arg(long)]
    pub(crate) all: bool,
    /// Consumer group; the configured one by default.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) signed: Signed,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// Show all that the database knows of an idempotency key, in every group: its decision, dead letters, what it waits
    /// for or holds, and who performs its effect.
    ///
    /// The inbox keeps no coordinates of what went well; those of a pending retry are in `sekali retry list --key`.
    #[command(after_help = "Runbook: ops/runbooks/SekaliDuplicateRateHigh.md")]
    Show {
        /// The idempotency key as its sender wrote it, or the key of the inbox row.
        key: String,
        /// Source of the CloudEvent whose id the key is.
        #[arg(long, value_name = "SOURCE")]
        source: Option<String>,
        /// Only this consumer group.
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
}

/// Which held keys.
#[derive(Debug, Args)]
pub(crate) struct HeldFilter {
    /// Of this consumer group; all groups of the database without it.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Of this source topic.
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: Option<String>,
    /// Exactly this Kafka key: text, or \x and hexadecimal digits.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Held for at least so long, "10m" for instance.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) older_than: Option<std::time::Duration>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HeldCommand {
    /// List held keys with their heads, those first that have waited longest.
    #[command(after_help = "Runbook: ops/runbooks/SekaliDeadLettersWaiting.md")]
    List {
        #[command(flatten)]
        filter: HeldFilter,
        /// Show at most so many.
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u32,
    },
    /// Let held keys go on. A key whose head could still come is refused, because what waits would overtake it.
    ///
    /// One key that is named with --key is released at once; any other selection is a dry run until --yes.
    #[command(after_help = "Runbook: ops/runbooks/SekaliDeadLettersWaiting.md")]
    Release {
        #[command(flatten)]
        filter: HeldFilter,
        /// Also where what waits takes effect before its head.
        #[arg(long)]
        break_order: bool,
        /// Do it: without this, a selection of several keys is only shown.
        #[arg(long)]
        yes: bool,
        /// Release at most so many.
        #[arg(long, default_value_t = 1000, value_name = "N")]
        limit: u32,
        #[command(flatten)]
        signed: Signed,
    },
}

/// Which retries of the configured group.
#[derive(Debug, Args)]
pub(crate) struct RetryFilter {
    /// Of this source topic.
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: Option<String>,
    /// Exactly this idempotency key.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Exactly this Kafka key: text, or \x and hexadecimal digits.
    #[arg(long, value_name = "KEY")]
    pub(crate) resource_key: Option<String>,
    /// Whose last failure was of this class.
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RetryCommand {
    /// List what is to be retried in the configured group, with its attempt, time and last failure. Reads the retry
    /// topics without joining the group.
    #[command(after_help = "Runbook: ops/runbooks/SekaliRetriesOverdue.md")]
    List {
        #[command(flatten)]
        filter: RetryFilter,
        /// Also look for messages whose record is nowhere; reads the whole inbox. Status 3 when there are some.
        #[arg(long)]
        missing: bool,
        /// Show at most so many.
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u32,
    },
    /// Make retries due now. The attempt keeps its number, and what waits behind the message goes on waiting.
    ///
    /// One message that is named with --key runs at once; any other selection is a dry run until --yes. The old record of
    /// each becomes a duplicate when its time comes.
    #[command(after_help = "Runbook: ops/runbooks/SekaliRetriesOverdue.md")]
    RunNow {
        #[command(flatten)]
        filter: RetryFilter,
        /// Do it: without this, a selection of several messages is only shown.
        #[arg(long)]
        yes: bool,
        /// At most so many.
        #[arg(long, default_value_t = 1000, value_name = "N")]
        limit: u32,
        #[command(flatten)]
        signed: Signed,
    },
}

/// What a lease is for.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum KindArg {
    /// Named locks.
    Lock,
    /// Publishing the outbox.
    Relay,
    /// Effects in progress.
    Effect,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LockCommand {
    /// List leases with their owners, fences and time left.
    #[command(after_help = "Runbook: ops/runbooks/SekaliLockContentionHigh.md")]
    List {
        /// Only these.
        #[arg(long, value_enum, value_name = "KIND")]
        kind: Option<KindArg>,
        /// Effects of this consumer group.
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Exactly this name, or key of an inbox row.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Show at most so many.
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u32,
    },
    /// End a lease, whoever has it. The fence rises, so that what its owner still writes is refused. An effect is
    /// performed again by whoever takes its message up, under the same idempotency key.
    #[command(after_help = "Runbook: ops/runbooks/SekaliLeasesExpiring.md")]
    Release {
        /// Name of the lock, `relay`, or key of the inbox row of an effect.
        name: String,
        /// The consumer group of an effect.
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Only if the lease still has this fence.
        #[arg(long, value_name = "N")]
        fence: Option<i64>,
        #[command(flatten)]
        signed: Signed,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Show what waits to be published, who publishes it, and what vacuum waits for. Status 3 when nobody publishes what
    /// waits.
    #[command(after_help = "Runbook: ops/runbooks/SekaliOutboxBacklogOld.md")]
    Status,
}
