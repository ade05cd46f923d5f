//! The reference consumer groups of Sekali, as a library: handlers and their tables.
//!
//! * [`stock`] keeps quantities by SKU and a ledger of every movement.
//! * [`invoice`] makes one invoice for each order, whether it comes over Kafka or over HTTP.
//! * [`email`] sends one mail for each type, user and period.
//! * [`log`] sets up the log lines of a program as its configuration says.

pub mod email;
pub mod invoice;
pub mod log;
pub mod stock;
