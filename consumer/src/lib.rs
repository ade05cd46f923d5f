//! Consumes Kafka into PostgreSQL, and counts nothing twice.
//!
//! A [`Handler`] writes a business change through the [`Transaction`] that also holds the inbox row of its message.
//! Both commit together, and only then is the Kafka offset committed. A record that Kafka delivers again finds its
//! decision in the inbox and is a duplicate. A message that fails goes through retry topics with delays and ends, if
//! nothing helps, in the dead-letter store.
//!
//! ```no_run
//! use sekali_consumer::{Config, Consumer, Failure, Handler, Message, Reply, Transaction};
//!
//! struct Orders;
//!
//! impl Handler for Orders {
//!     async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
//!         let order: serde_json::Value = message.json()?;
//!         tx.execute_cached("INSERT INTO orders (body) VALUES ($1)", &[&order]).await?;
//!         Ok(Reply::done())
//!     }
//! }
//!
//! # async fn example() -> Result<(), sekali_consumer::Error> {
//! let config = Config::load(Some("sekali.toml".as_ref()))?;
//! Consumer::connect(config, Orders).await?.run(sekali_consumer::shutdown_signal()).await
//! # }
//! ```

pub mod admin;
mod batch;
mod caught_up;
mod clock;
pub mod config;
pub mod core;
mod driver;
mod effects;
mod executor;
mod failure;
mod handler;
mod held;
mod holds;
mod housekeeping;
#[cfg(feature = "http")]
pub mod http;
mod incoming;
mod kafka;
pub mod lock;
pub mod metrics;
pub mod once;
pub mod operate;
mod pauses;
mod postgres;
mod probes;
mod process_name;
mod relaying;
mod retention;
mod routes;
mod runtime;
mod transaction;

pub use config::Config;
pub use deadpool_postgres;
pub use effects::{Effect, Lease, Performing};
pub use failure::{Failure, FailureClass};
pub use handler::{Handler, Reply};
pub use once::Inbox;
pub use relaying::run_relay;
pub use runtime::{Consumer, shutdown_signal};
pub use sekali_producer::{Error, ErrorKind, SqlError, outbox};
pub use sekali_schemas::{self as schemas, IdempotencyKey, Message, Record};
pub use tokio_postgres;
pub use transaction::Transaction;
