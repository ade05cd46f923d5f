//! The sections of the configuration that Kafka, PostgreSQL and the relay need, for every program to share.
//!
//! Unknown keys are errors. `validate` methods append every problem to a list, so that a program can report all at once.

pub mod duration;
mod kafka;
mod postgres;
mod registry;
mod relay;
mod schemas;
pub mod secret;

pub(crate) use kafka::is_secret_property;
pub use kafka::{Compression, KafkaSection, SecurityProtocol};
pub use postgres::{PostgresSection, PostgresTls};
pub use registry::RegistrySection;
pub use relay::RelaySection;
pub use schemas::{SchemasSection, Validate};

#[cfg(test)]
mod tests;
