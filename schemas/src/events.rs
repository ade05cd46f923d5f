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

/// An event type as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSchema {
    /// The CloudEvents type.
    pub name: &'static str,
    /// Version of the schema.
    pub version: u32,
    /// The JSON Schema.
    pub schema: &'static str,
}

impl EventSchema {
    const fn of<T: EventType>() -> EventSchema {
        EventSchema { name: T::NAME, version: T::VERSION, schema: T::SCHEMA }
    }
}

/// Every event type.
pub const ALL: [EventSchema; 4] = [
    EventSchema::of::<EmailRequested>(),
    EventSchema::of::<InvoiceCreated>(),
    EventSchema::of::<OrderPlaced>(),
    EventSchema::of::<StockAdjusted>(),
];

/// The `$id` of a schema of ours: what `ce_dataschema` says of an event that follows it.
pub fn schema_id(name: &str, version: u32) -> String {
    format!("urn:sekali:schema:{name}:v{version}")
}

#[cfg(test)]
mod tests;
