//! The moments in the life of a batch and of a failed message at which something is killed.
//!
//! The product has no hooks for this. A point is what passes on the wire: the worker talks to PostgreSQL and to the
//! broker through proxies, which hold its connection where a statement, a request or an answer passes.

use sekali_tests::harness::proxy::{Direction, Pattern, Step, When};
use sekali_tests::scripted::HALF_WAY;

/// A named moment.
pub(crate) struct Point {
    /// Its name in the verdict.
    pub(crate) name: &'static str,
    /// What leads there.
    pub(crate) lead: Lead,
    pub(crate) place: Place,
    pub(crate) when: When,
}

/// Records that bring a worker to a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    /// Good messages.
    Good,
    /// Some good ones, and one whose first attempt fails.
    Transient,
    /// Some good ones, and one that fails for good.
    Permanent,
    /// One whose first attempt fails, and good ones of its key behind it.
    Held,
}

/// What passes there.
pub(crate) enum Place {
    /// Between worker and PostgreSQL, one after another on one connection.
    Postgres(&'static [(Direction, &'static str)]),
    /// Between worker and broker: a request of the protocol, by its key.
    Kafka(u16),
}

use Direction::{ToClient, ToServer};
use Lead::{Good, Held, Permanent, Transient};
use Place::{Kafka, Postgres};
use When::{AfterForwarding, BeforeForwarding};

/// Statements are prepared on a connection's first use, and their text passes only then: workers start anew each round.
const CLAIM: (Direction, &str) = (
    ToServer,
    "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) SELECT key, fingerprint, $1, 1, 1",
);
const BEGIN: (Direction, &str) = (ToServer, "BEGIN\0");
const CLAIMED: (Direction, &str) = (ToClient, "INSERT 0 ");
const EFFECT: (Direction, &str) = (ToServer, "INSERT INTO effect");
const HALF: (Direction, &str) = (ToServer, HALF_WAY);
const COMMIT: (Direction, &str) = (ToServer, "SELECT 1; COMMIT");
/// The tag of the answer: the server has committed.
const COMMITTED: (Direction, &str) = (ToClient, "COMMIT\0");
const ENQUEUE: (Direction, &str) = (ToServer, "INSERT INTO sekali.outbox");
const LOCK_RETRIES: (Direction, &str) = (ToServer, "it.key = asked.key FOR UPDATE");
const BURY: (Direction, &str) = (ToServer, "INSERT INTO sekali.dead_letter");
const PARK: (Direction, &str) = (ToServer, "INSERT INTO sekali.held_message");
const TAKE_UP: (Direction, &str) = (ToServer, "AND ready AND topic <> ALL");
const ADVANCE: (Direction, &str) = (ToServer, "SET published = window_end");
/// The tag of its answer.
const ADVANCED: (Direction, &str) = (ToClient, "SELECT 1\0");
const PRODUCE: u16 = 0;
const OFFSET_FETCH: u16 = 9;
const OFFSET_COMMIT: u16 = 8;

const fn at(name: &'static str, lead: Lead, place: Place, when: When) -> Point {
    Point { name, lead, place, when }
}

/// Every point, in the order of a message's life.
pub(crate) const POINTS: [Point; 24] = [
    // Where to begin reading: the first thing that a new owner asks.
    at("batch.before_position", Good, Kafka(OFFSET_FETCH), BeforeForwarding),
    at("batch.in_position", Good, Kafka(OFFSET_FETCH), AfterForwarding),
    at("batch.before_claim", Good, Postgres(&[CLAIM]), BeforeForwarding),
    at("batch.after_claim", Good, Postgres(&[CLAIM, BEGIN, CLAIMED]), BeforeForwarding),
    at("batch.in_handler", Good, Postgres(&[HALF]), BeforeForwarding),
    at("batch.before_commit", Good, Postgres(&[EFFECT, COMMIT]), BeforeForwarding),
    // The outcome is anybody's guess: the commit is on its way when the victim dies.
    at("batch.in_commit", Good, Postgres(&[EFFECT, COMMIT]), AfterForwarding),
    at("batch.after_commit_before_answer", Good, Postgres(&[EFFECT, COMMIT, COMMITTED]), BeforeForwarding),
    at("batch.after_commit_before_offset", Good, Kafka(OFFSET_COMMIT), BeforeForwarding),
    at("batch.in_offset_commit", Good, Kafka(OFFSET_COMMIT), AfterForwarding),
    at("decision.before_commit", Transient, Postgres(&[ENQUEUE, COMMIT]), BeforeForwarding),
    at("decision.after_commit", Transient, Postgres(&[ENQUEUE, COMMIT, COMMITTED]), BeforeForwarding),
    at("retry.before_commit", Transient, Postgres(&[LOCK_RETRIES, COMMIT]), BeforeForwarding),
    at("retry.after_commit", Transient, Postgres(&[LOCK_RETRIES, COMMIT, COMMITTED]), BeforeForwarding),
    at("dead.before_commit", Permanent, Postgres(&[BURY, COMMIT]), BeforeForwarding),
    at("dead.after_commit", Permanent, Postgres(&[BURY, COMMIT, COMMITTED]), BeforeForwarding),
    at("park.before_commit", Held, Postgres(&[PARK, COMMIT]), BeforeForwarding),
    at("park.after_commit", Held, Postgres(&[PARK, COMMIT, COMMITTED]), BeforeForwarding),
    at("release.before_commit", Held, Postgres(&[TAKE_UP, COMMIT]), BeforeForwarding),
    at("release.after_commit", Held, Postgres(&[TAKE_UP, COMMIT, COMMITTED]), BeforeForwarding),
    at("relay.before_publish", Transient, Kafka(PRODUCE), BeforeForwarding),
    at("relay.in_publish", Transient, Kafka(PRODUCE), AfterForwarding),
    at("relay.after_publish_before_cursor", Transient, Postgres(&[ADVANCE]), BeforeForwarding),
    at("relay.after_cursor", Transient, Postgres(&[ADVANCE, ADVANCED]), BeforeForwarding),
];

impl Point {
    /// Whether a process that only relays can die here.
    pub(crate) fn is_of_relay(&self) -> bool {
        self.name.starts_with("relay.")
    }
}

impl Place {
    /// What a proxy waits for; `client_id` is that of the process whose connection is meant.
    pub(crate) fn steps(&self, client_id: &str) -> Vec<Step> {
        match self {
            Postgres(steps) => {
                let step = |(direction, text): &(Direction, &str)| match direction {
                    ToServer => Step::request(*text),
                    ToClient => Step::answer(*text),
                };
                steps.iter().map(step).collect()
            }
            Kafka(api_key) => vec![Step::request(Pattern::kafka_request(*api_key, client_id))],
        }
    }
}
