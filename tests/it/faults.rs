//! Kinds of fault that others had in public: `tests/README.md` says which test stands for which.

mod bench;
mod database;
mod inbox;
mod input;
mod memory;
mod metrics;
mod offsets;
mod outbox;
mod probes;
mod rebalances;
mod retries;
mod shutdown;
