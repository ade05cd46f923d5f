//! The integration tests: one program, so that its tests share one broker and one database server.

mod harness;
mod relay;
