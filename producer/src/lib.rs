//! Idempotent Kafka producer and transactional outbox.
//!
//! Two ways to publish an [`Event`]:
//!
//! * [`Producer::send`] at once, resolved on the broker's acknowledgement;
//! * [`outbox::enqueue`] inside your own database transaction: the record exists if and only if the transaction commits.
//!   The [`Relay`] publishes it, in order per key, at least once.
//!
//! A service that only publishes needs `sekali migrate --only outbox` once, these lines, and a relay: `sekali relay` beside
//! it, or [`Relay::run`] as a loop of its own.
//!
//! ```no_run
//! # async fn example(pool: deadpool_postgres::Pool) -> Result<(), Box<dyn std::error::Error>> {
//! use sekali_producer::{Event, ResourceId, outbox};
//! use sekali_schemas::events::StockAdjusted;
//!
//! let mut client = pool.get().await?;
//! let tx = client.transaction().await?;
//! let sold = StockAdjusted { sku: "SKU-1".to_owned(), delta: -1, occurred_at: None };
//! outbox::enqueue(&tx, &Event::of("stock", ResourceId::new("SKU-1")?, &sold)?).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! What is sent through either is idempotent towards the broker (`acks=all`), and lands on the partition where a JVM
//! client would put the same key ([`partition_for`]). Consumers recognise a repetition by the `idempotency-key` header.

pub mod client_context;
pub mod config;
mod contract;
mod error;
mod event;
pub mod metrics;
mod oauth;
pub mod outbox;
mod partition;
mod polled;
mod producer;
mod record;
mod registry;
mod relay;
pub mod schemas;
#[cfg(feature = "opentelemetry")]
mod trace;

pub use client_context::{KafkaCauses, explain};
pub use contract::{Contract, Refusal};
pub use deadpool_postgres;
pub use error::{Error, ErrorKind, SqlError};
pub use event::{Event, InvalidEvent, Mode, ResourceId};
pub use oauth::{Token, TokenProvider};
pub use outbox::InTransaction;
pub use partition::partition_for;
pub use polled::PolledProducer;
pub use producer::{Delivery, Producer};
pub use record::{IntoRecord, OutboundRecord};
pub use relay::{LastAnswer, Relay};
