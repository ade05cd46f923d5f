//! What an operator does about messages, keys, topics and leases. Functions return plain data; whoever calls them decides
//! how it looks. What changes something takes an [`Actor`] and is recorded in `sekali.audit`, in the same transaction.

mod actor;
pub mod drill;
pub mod held;
pub mod inbox;
pub mod locks;
pub mod outbox;
pub mod pauses;
pub mod retries;
mod rows;

pub use actor::Actor;
pub use rows::{Listed, key_bytes, open, shown_key};
