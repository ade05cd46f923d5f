//! A real Kafka, a real PostgreSQL, and the means to disturb both.
//!
//! * [`kafka()`] and [`postgres()`] give the servers that the whole run of the suite shares; a test gets topics
//!   ([`Kafka::create_topics`]) and a database ([`TestDatabase`]) of its own there.
//! * [`OwnBroker`] and [`PrivatePostgres`] are for tests that must kill theirs.
//! * [`pooler::Pooler`] is a PgBouncer in front of a database.
//! * [`authority::Authority`] issues certificates, for servers that demand them.
//! * [`smtp::MailServer`] and [`http_provider::HttpProvider`] are the outside world of effects,
//!   [`registry::SchemaRegistry`] that of schemas.
//! * [`Proxy`] stands in the way of a TCP connection, [`Process`] is a program of the workspace that can be killed.
//! * [`eventually`] waits for a condition; nothing else in the suite sleeps.
//! * [`skip!`](crate::skip) ends a test that cannot run here, aloud.

pub mod authority;
mod command;
mod eventually;
pub mod http_provider;
mod kafka;
pub mod own_broker;
mod paths;
pub mod pooler;
mod postgres;
mod process;
pub mod proxy;
pub mod registry;
pub mod servers;
mod skip;
pub mod smtp;
pub mod versions;

pub use command::{Ended, ended, sekali};
pub use eventually::{Outcome, eventually};
pub use kafka::{GroupView, Kafka, Outgoing, Place, kafka, unique};
pub use own_broker::OwnBroker;
pub use paths::{program, target_dir, workspace_root};
pub use postgres::{Postgres, TestDatabase, connect, postgres};
pub use process::{Process, Program};
pub use proxy::Proxy;
pub use sekali::private_postgres::PrivatePostgres;
pub use skip::{note_skip, skips_file};
