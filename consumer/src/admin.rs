//! What an operator does with a group: tables, topics, lag, diagnosis. Functions return plain data; whoever calls them
//! decides how it looks.

pub mod checklist;
pub mod doctor;
mod kafka;
mod lag;
mod migrate;
mod postgres;
mod retention;
pub mod topics;
pub mod unreadable;
pub(crate) mod waiting;

pub(crate) use kafka::Cluster;
pub use lag::{PartitionLag, lag};
pub use migrate::{AppliedMigration, MigrationReport, migrate, require_parts, require_schema, schema_version};
pub(crate) use postgres::connect;
pub(crate) use retention::require_inbox_retention;
pub(crate) use waiting::{Waiting, read as read_waiting};
