//! The integration tests: one program, so that its tests share one broker and one database server.

mod cli;
mod example;
mod harness;
mod counts;
mod dead_letter;
mod outcomes;
mod relay;
mod retry;
mod stock;
