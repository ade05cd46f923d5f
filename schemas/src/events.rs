//! Event types: each has a JSON Schema (2020-12) in `schemas/json` and a Rust type, kept in step by a test.

mod email_requested;
mod flaw;
mod invoice_created;
mod order_placed;
mod stock_adjusted;

pub use email_requested::EmailRequested;
pub use flaw::Flaw;
pub use invoice_created::InvoiceCreated;
pub use order_placed::{OrderLine, OrderPlaced};
pub use stock_adjusted::StockAdjusted;

/// An event type that producers and consumers share.
pub trait EventType {
    /// Its name, for instance `stock.adjusted`; the CloudEvents type.
    const NAME: &'static str;
    /// Version of its JSON Schema.
    const VERSION: u32;
    /// The JSON Schema itself, as checked in.
    const SCHEMA: &'static str;

    /// Holds the values against what the schema says beyond types: lengths, ranges, patterns. U+0000 is refused as
    /// well, which is legal in JSON and in no text of PostgreSQL.
    ///
    /// # Errors
    /// The first member that the schema refuses. Never quotes a value.
    fn check(&self) -> Result<(), Flaw>;
}

#[cfg(test)]
mod tests;
