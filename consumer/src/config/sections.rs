//! The sections that the consumer owns, each key with its default, and what too low and too high cost.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use sekali_producer::config::duration;
use sekali_schemas::topics::{DLQ_TEMPLATE, RETRY_TEMPLATE};
use serde::{Deserialize, Serialize};

use super::token::Token;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

const EXECUTORS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
const BATCH_MESSAGES_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();
const BUFFER_MESSAGES_MAX: NonZeroUsize = NonZeroUsize::new(16_000).unwrap();
const BUFFER_BYTES_MAX: NonZeroU32 = NonZeroU32::new(96 * 1024 * 1024).unwrap();
const EFFECTS_MAX: NonZeroUsize = NonZeroUsize::new(64).unwrap();
const HELD_MESSAGES_PER_KEY_MAX: NonZeroU32 = NonZeroU32::new(1_000).unwrap();
const HELD_MESSAGES_MAX: NonZeroU32 = NonZeroU32::new(100_000).unwrap();
const REPLAYS_MAX: NonZeroU32 = NonZeroU32::new(3).unwrap();
const REPLAY_RATE: NonZeroU32 = NonZeroU32::new(100).unwrap();
const MESSAGE_BYTES_MAX: NonZeroU32 = NonZeroU32::new(1024 * 1024).unwrap();

/// Declares a section once: the struct, its defaults, and the texts that `config print` shows beside the keys.
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        $name:ident {
            $( $(#[doc = $doc:literal])* $(#[serde($($serde:tt)*)])? $field:ident: $kind:ty = $default:expr, )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $( $(#[doc = $doc])* $(#[serde($($serde)*)])? pub $field: $kind, )*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $( $field: $default, )* }
            }
        }

        impl $name {
            pub(super) const DOCS: super::Docs = super::Docs {
                about: &[$($about),*],
                keys: &[$( (stringify!($field), &[$($doc),*]) ),*],
            };
        }
    };
}

section! {
    /// The consumer group and how much it takes at once.
    ConsumerSection {
        /// Kafka consumer group. Required. Part of the names of retry and dead-letter topics: a new name starts a new
        /// group, which reads its topics from the beginning.
        group: String = String::new(),
        /// Source topics. Required, at least one.
        topics: Vec<String> = Vec::new(),
        /// Scope of the inbox; the group's name by default. A group that takes over the work of another one keeps the
        /// other's name here, so that it finds what was decided before.
        name: Option<String> = None,
        /// Static membership: a name for this process that survives its restart, unique in the group. A restart within
        /// the session timeout then moves no partitions; a process that is gone for good is noticed only after it.
        group_instance_id: Option<String> = None,
        /// Rebalance protocol: "classic" (cooperative-sticky) or "consumer" (KIP-848, brokers from 4.0), whose session
        /// and heartbeat times are set on the broker.
        group_protocol: GroupProtocol = GroupProtocol::Classic,
        /// Batches in progress at once, each with one database connection and a share of the partitions. One executor
        /// leaves the database idle while it gathers; more than the assigned partitions have nothing to do.
        executors: NonZeroUsize = EXECUTORS,
        /// Most messages in one transaction. Lower costs a commit for fewer messages; higher holds locks longer and
        /// repeats more work when a message fails.
        batch_messages_max: NonZeroUsize = BATCH_MESSAGES_MAX,
        /// Most messages that wait in memory between Kafka and the executors. Lower starves the executors, higher costs
        /// memory; at least twice `batch_messages_max`.
        buffer_messages_max: NonZeroUsize = BUFFER_MESSAGES_MAX,
        /// Most bytes of those messages, for the source topics and again for the retry topics; a single message may be
        /// larger. Lower pauses fetching more often, higher costs memory.
        buffer_bytes_max: NonZeroU32 = BUFFER_BYTES_MAX,
        /// Longest run of a handler on one batch. Lower fails slow but healthy handlers, higher lets a hanging one stop
        /// its partitions for longer; well below `max_poll_interval`.
        #[serde(with = "duration")]
        handler_timeout: Duration = Duration::from_secs(30),
        /// How long a lock around a message's work lasts without a heartbeat, where the handler wants one. Lower loses it
        /// to a process that only stood still for a while, higher keeps what a dead process had locked for longer.
        #[serde(with = "duration")]
        lock_ttl: Duration = Duration::from_secs(30),
        /// Longest wait for the messages in hand at shutdown and when partitions are taken away. Lower repeats more
        /// work elsewhere, higher delays a rebalance or a deployment; below half of `max_poll_interval`.
        #[serde(with = "duration")]
        drain_timeout: Duration = Duration::from_secs(25),
        /// Where the idempotency key comes from: "headers", or "coordinates" (topic, partition and offset) when
        /// producers send none. With coordinates a message that is published twice is processed twice.
        key_from: KeyFrom = KeyFrom::Headers,
        /// What happens to a message whose idempotency key was already decided for another payload: "dead_letter", or
        /// "ignore" (it counts as a duplicate and is lost when the key was chosen badly).
        on_key_reuse: OnKeyReuse = OnKeyReuse::DeadLetter,
        /// Order of the messages of one key: "key" (a failed message holds its key, and the later ones wait behind it
        /// until it is decided), or "none" (they overtake it).
        order: Order = Order::Key,
        /// What happens to the later messages of a key whose message became a dead letter, with order = "key":
        /// "continue", or "hold" (they wait until the dead letter is replayed or discarded).
        after_dead_letter: AfterDeadLetter = AfterDeadLetter::Continue,
        /// Most messages that wait behind the failed one of their key. At the limit the partition stops until the key
        /// flows again; higher costs disk.
        held_messages_per_key_max: NonZeroU32 = HELD_MESSAGES_PER_KEY_MAX,
        /// Most messages that wait behind failed ones of all keys of the group; as above, for all of its partitions.
        held_messages_max: NonZeroU32 = HELD_MESSAGES_MAX,
        /// Time without a heartbeat after which the broker gives the partitions to others; only with the classic
        /// protocol. Lower moves partitions on a short network fault, higher leaves those of a dead process waiting.
        #[serde(with = "duration")]
        session_timeout: Duration = Duration::from_secs(45),
        /// How long a partition with a backlog may get nothing before the Kafka client is made anew. Lower takes a slow
        /// broker for a stuck client.
        #[serde(with = "duration")]
        stall_timeout: Duration = Duration::from_secs(60),
        /// Time without a poll after which the process leaves the group. Handlers never hold up polling, so that only a
        /// stopped process gets near it.
        #[serde(with = "duration")]
        max_poll_interval: Duration = Duration::from_secs(300),
    }
}

section! {
    /// Messages whose effect happens outside the database.
    EffectsSection {
        /// Effects in progress at once in one process, one of each key; leases are taken for half as many more. Lower
        /// waits for slow receivers, higher is more load on them.
        concurrent_max: NonZeroUsize = EFFECTS_MAX,
        /// How long a lease lasts without a heartbeat. Lower takes the effects of a process over that only stood still
        /// for a while, higher leaves those of a dead process waiting.
        #[serde(with = "duration")]
        lease_ttl: Duration = Duration::from_secs(30),
        /// Longest run of one effect, after which it has failed. Lower gives up on slow receivers and repeats what they
        /// may have done, higher lets a hanging one keep its key waiting.
        #[serde(with = "duration")]
        perform_timeout: Duration = Duration::from_secs(60),
    }
}

section! {
    /// What happens after a transient failure.
    RetrySection {
        /// Delay of each retry topic, in the order of use; none at all sends the first failure to the dead letters.
        /// Short delays repeat a failure that has not passed yet, long ones keep messages of the same key waiting.
        #[serde(with = "duration::list")]
        delays: Vec<Duration> = [2, 8, 30, 2 * MINUTE, 5 * MINUTE].map(Duration::from_secs).to_vec(),
        /// Attempts before a message becomes a dead letter, the first delivery included; one more than there are delays
        /// by default. Beyond that the last delay is used again.
        max_attempts: Option<NonZeroU16> = None,
        /// Share by which a delay varies at random, both ways, 0 to 0.5. Zero lets messages that failed together come
        /// back together.
        jitter: f64 = 0.1,
        /// How long a message may meet a lock that is taken before it is a failure. Such waits are no attempts.
        #[serde(with = "duration")]
        contended_age_max: Duration = Duration::from_secs(HOUR),
        /// Most dead letters ahead of successes: each success makes room for one, and so do ten seconds. Beyond that
        /// consumption pauses and tries again with a wait, because then it is not the messages that are broken. 0 for
        /// no bound.
        dead_letters_ahead_max: u32 = 1_000,
    }
}

section! {
    /// Names, sizes and retention of the topics, as `sekali topics apply` makes them.
    TopicsSection {
        /// Name of a retry topic, with {topic}, {group} and {delay}.
        retry_template: String = RETRY_TEMPLATE.to_owned(),
        /// Name of a dead-letter topic, with {topic} and {group}.
        dlq_template: String = DLQ_TEMPLATE.to_owned(),
        /// Partitions of a source topic that does not exist yet, 12 by default. Retry and dead-letter topics get as
        /// many as their source has. Fewer bound how many processes share the work; adding some later breaks the order
        /// by key.
        partitions: Option<NonZeroU16> = None,
        /// Copies of each partition. 1 loses records with the broker's disk; 3 is usual with three brokers or more.
        replication_factor: NonZeroU16 = NonZeroU16::MIN,
        /// How long source topics keep records. Lower loses what a stopped group has not read yet, higher costs disk
        /// and a larger inbox.
        #[serde(with = "duration")]
        source_retention: Duration = Duration::from_secs(7 * DAY),
        /// How long retry topics keep records; far above the longest delay, or failed messages vanish while the group
        /// is stopped.
        #[serde(with = "duration")]
        retry_retention: Duration = Duration::from_secs(7 * DAY),
        /// How long dead-letter topics keep records. The table of dead letters keeps them until they are closed.
        #[serde(with = "duration")]
        dlq_retention: Duration = Duration::from_secs(14 * DAY),
        /// Largest record of a source topic in bytes. Retry and dead-letter topics take 64 KiB more, for headers.
        message_bytes_max: NonZeroU32 = MESSAGE_BYTES_MAX,
    }
}

section! {
    /// The table of decisions.
    InboxSection {
        /// How long a decision is remembered, on the group's own clock. It must outlive everything that Kafka may
        /// deliver again: topic retention and the whole retry path. Lower would process old messages twice and is
        /// refused at start, higher costs disk. "forever" purges nothing, and is what a topic without an end to its
        /// retention needs.
        #[serde(with = "super::for_ever")]
        retention: Option<Duration> = Some(Duration::from_secs(9 * DAY)),
    }
}

section! {
    /// What operators may do with dead letters.
    OperateSection {
        /// How often a dead letter may be replayed before it takes --force. Lower stops an operator who tries once more
        /// without a repair, higher lets a message that cannot succeed come back again and again.
        replays_max: NonZeroU32 = REPLAYS_MAX,
        /// Messages that a replay sends a second, unless --rate says otherwise. Lower takes longer, higher gets in the way
        /// of what the group does besides.
        replay_rate: NonZeroU32 = REPLAY_RATE,
        /// Whether the payload of a dead letter may be edited before it is replayed. Off, what takes effect is always what
        /// a producer sent.
        allow_edit: bool = false,
    }
}

section! {
    /// The console for dead letters: `sekali console`.
    ConsoleSection {
        /// Address of the console. Another one than loopback takes a login: a token, or a proxy that says who comes in.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8780)),
        /// Whether it only shows. False allows replays, discards and what else operators do, and takes a login.
        read_only: bool = true,
        /// What operators log in with, beside their name; at least 16 bytes. Names are as good as people give them: a
        /// proxy knows them better.
        token: Option<Token> = None,
        /// File that holds the token instead.
        token_file: Option<PathBuf> = None,
        /// Header in which a proxy says who comes in, such as "x-forwarded-user". It is believed of `trusted_proxies` alone.
        user_header: Option<String> = None,
        /// Addresses from which the proxy connects.
        trusted_proxies: Vec<IpAddr> = Vec::new(),
        /// Address of the console as browsers see it, such as "https://sekali.example.com", where a proxy stands in front.
        /// Forms from elsewhere are refused; with https, cookies are sent encrypted alone.
        url: Option<String> = None,
        /// Values of JSON payloads that nobody sees, as JSON pointers such as "/customer/email"; "*" stands for every
        /// member or item of a place. With any, payloads that are no JSON are not shown at all.
        mask: Vec<String> = Vec::new(),
    }
}

section! {
    /// The port for probes and metrics.
    AdminSection {
        /// Address of /livez, /readyz and /metrics; "0.0.0.0:9464" in a container, "none" for no port.
        #[serde(with = "super::listen")]
        listen: Option<SocketAddr> = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9464))),
    }
}

section! {
    /// What the program writes on standard error.
    LogSection {
        /// "text" for people, "json" for machines.
        format: LogFormat = LogFormat::Text,
        /// Level, or directives such as "info,sekali_consumer=debug".
        filter: String = String::from("info"),
    }
}

/// Kafka's rebalance protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GroupProtocol {
    /// The client assigns the partitions, cooperatively.
    Classic,
    /// The broker assigns them (KIP-848).
    Consumer,
}

/// Order of the messages of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Order {
    /// Also across retries.
    Key,
    /// A failed message is overtaken.
    None,
}

/// What happens to the later messages of a key whose message is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AfterDeadLetter {
    /// They take effect.
    Continue,
    /// They wait until it is replayed or discarded.
    Hold,
}

/// Where the idempotency key of a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeyFrom {
    /// From its headers; a message without one is invalid.
    Headers,
    /// From topic, partition and offset.
    Coordinates,
}

/// What happens to a message whose key was decided for another payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnKeyReuse {
    /// It becomes a dead letter.
    DeadLetter,
    /// It counts as a duplicate.
    Ignore,
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
