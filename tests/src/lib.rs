//! The test bench of Sekali: everything its tests, checks and benchmarks stand on.

pub mod harness;
