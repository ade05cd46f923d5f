//! The test bench of Sekali: everything its tests, checks and benchmarks stand on.

pub mod events;
pub mod group;
pub mod harness;
pub mod http;
pub mod performing;
pub mod scripted;
pub mod worker;
