//! The wire contract of Sekali: what a record, a header, a topic name, an event type and a table row look like.
//!
//! Data only. Nothing here talks to Kafka or PostgreSQL; the crates that do agree on these definitions.
//!
//! * [`Record`] is what Kafka holds, [`Message`] what a handler gets.
//! * [`control`] names every header that Sekali writes, once, with a typed reader and writer.
//! * [`IdempotencyKey`] is the identity of the business action, and its 128-bit form the primary key of the inbox.
//! * [`topics`] builds retry and dead-letter topic names from templates and reads them back.
//! * [`cloudevents`] is the Kafka binding of CloudEvents 1.0, [`confluent`] the wire format of a schema registry.
//! * [`asyncapi`] describes all of it for others; [`compatibility`] tells whether a new schema accepts what an old one does.
//! * [`cause`] takes out of an error's text what varies, so that failures of one cause can be counted together.
//! * [`migrations`] holds the SQL of schema `sekali`.

pub mod array_literal;
pub mod asyncapi;
pub mod cause;
pub mod cloudevents;
pub mod compatibility;
pub mod confluent;
pub mod control;
pub mod events;
mod fingerprint;
mod headers;
pub mod idempotency;
pub mod inbox;
mod message;
pub mod migrations;
mod record;
pub mod topics;
mod yaml;

pub use fingerprint::fingerprint;
pub use headers::{Arena, Header, Headers, HeadersBuilder, Parts};
pub use idempotency::IdempotencyKey;
pub use message::{DecodeError, Framing, Invalid, Message, Origin, ReadAs};
pub use record::Record;
