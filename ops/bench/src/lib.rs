//! The benchmark: programs that drain a topic of stock events into PostgreSQL, the loads that they get, and what each
//! run cost.
//!
//! Every program is a process of its own on a database and a group of its own, does the same work on the same records,
//! and is judged by the same oracle. A run lasts from the begin of its first transaction to the commit of its last one,
//! on PostgreSQL's clock (`track_commit_timestamp`), so that no program reports on itself.
//!
//! `make bench` runs all of it on servers of its own, `sekali bench` a part of it on a user's.

pub mod child;
mod fault;
mod hand;
mod handler;
pub mod load;
pub mod machine;
mod naive;
pub mod offsets;
pub mod oracle;
pub mod postgres;
pub mod process;
pub mod produce;
mod program;
pub mod report;
mod retail;
pub mod run;
pub mod stage;
pub mod targets;
mod write;

pub use fault::Fault;
pub use program::{Pace, Program};
pub use retail::retail;
