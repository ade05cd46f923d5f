//! Event types: each has a JSON Schema (2020-12) in `schemas/json` and a Rust type, kept in step by a test.

mod stock_adjusted;

pub use stock_adjusted::StockAdjusted;

/// An event type that producers and consumers share.
pub trait EventType {
    /// Its name, for instance `stock.adjusted`; the CloudEvents type.
    const NAME: &'static str;
    /// Version of its JSON Schema.
    const VERSION: u32;
    /// The JSON Schema itself, as checked in.
    const SCHEMA: &'static str;
}

#[cfg(test)]
mod tests;
