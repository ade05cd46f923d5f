//! The workloads.

mod batches;
mod copies;
mod drain;
mod failures;
mod inbox;
mod latency;
mod members;
mod metrics;
mod partitions;
mod retries;
mod skew;
pub(crate) mod steady;

use crate::bench::Bench;
use crate::relay;

/// In the order in which they run: later ones use the rate of the first.
pub(crate) const ALL: [(&str, &str); 10] = [
    ("W1", "drain a topic"),
    ("W2", "latency under a steady load"),
    ("W3", "copies of records"),
    ("W4", "events that fail"),
    ("W5", "skewed keys"),
    ("W6", "a large inbox"),
    ("W7", "batch sizes"),
    ("W8", "partitions, members that come, go and die"),
    ("W9", "retries"),
    ("W10", "the relay"),
];

pub(crate) async fn run(name: &str, bench: &mut Bench) -> Result<(), anyhow::Error> {
    match name {
        "W1" => drain::run(bench).await,
        "W2" => latency::run(bench).await,
        "W3" => copies::run(bench).await,
        "W4" => failures::run(bench).await,
        "W5" => skew::run(bench).await,
        "W6" => inbox::run(bench).await,
        "W7" => batches::run(bench).await,
        "W8" => {
            partitions::run(bench).await?;
            members::run(bench).await
        }
        "W9" => retries::run(bench).await,
        _ => relay::run(bench).await,
    }
}
