//! The integration tests: one program, so that its tests share one broker and one database server.
// clippy.toml allows it in test functions; this, in the functions that they share.
#![allow(clippy::unwrap_used)]

mod cli;
mod console;
mod crash;
mod dead_letter;
mod dlq;
mod effects;
mod email;
mod example;
mod faults;
mod harness;
mod identity;
mod invoice;
mod lock;
mod once;
mod operator;
mod ops_kit;
mod ops_prometheus;
mod order;
mod outage;
mod outbox;
mod outcomes;
mod pooler;
mod probes;
mod rebalance;
mod relay;
mod relay_at_scale;
mod retention;
mod retry;
mod schemas;
mod security;
mod shop_and_till;
mod stall;
mod stock;
mod trouble;
