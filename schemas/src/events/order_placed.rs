use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::flaw::{currency, number, text};
use super::{EventType, Flaw};
use crate::IdempotencyKey;
use crate::idempotency::KeyError;

/// A customer placed an order. The Kafka key is the order's id.
///
/// Its idempotency key is `order.placed:` and the order's id: whatever follows from an order follows once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OrderPlaced {
    /// Identity of the order, byte for byte.
    #[schemars(length(min = 1, max = 100))]
    pub order_id: String,
    /// Who placed it.
    #[schemars(length(min = 1, max = 200))]
    pub customer: String,
    /// ISO 4217 code of the currency, for instance `EUR`.
    #[schemars(regex(pattern = "^[A-Z]{3}$"))]
    pub currency: String,
    /// What was ordered.
    #[schemars(length(min = 1, max = 1000))]
    pub lines: Vec<OrderLine>,
    /// When it was placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed_at: Option<Timestamp>,
}

/// One article of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OrderLine {
    /// Stock keeping unit, byte for byte (case counts).
    #[schemars(length(min = 1, max = 200))]
    pub sku: String,
    /// How many units.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub quantity: i64,
    /// Price of one unit in the currency's minor unit, for instance cents.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub unit_price_minor: i64,
}

const LINES_MAX: usize = 1000;
const QUANTITY_MAX: i64 = 1_000_000;
const UNIT_PRICE_MAX: i64 = 1_000_000_000;
/// So that the total of an order that was checked always fits.
const _: () = assert!(LINES_MAX as i128 * QUANTITY_MAX as i128 * (UNIT_PRICE_MAX as i128) < i64::MAX as i128);

impl OrderPlaced {
    /// Sum of the lines in the currency's minor unit. `None` beyond 64 bits, which no order reaches that
    /// [`check`](EventType::check) lets pass.
    pub fn total_minor(&self) -> Option<i64> {
        self.lines.iter().try_fold(0_i64, |sum, it| sum.checked_add(it.quantity.checked_mul(it.unit_price_minor)?))
    }

    /// `order.placed:` and the order's id.
    ///
    /// # Errors
    /// As [`OrderPlaced::key_of`], which [`check`](EventType::check) refuses.
    pub fn idempotency_key(&self) -> Result<IdempotencyKey, KeyError> {
        OrderPlaced::key_of(&self.order_id)
    }

    /// The same of an order of which no more is known than its id.
    ///
    /// # Errors
    /// The id is empty, or makes a key that is too long.
    pub fn key_of(order_id: &str) -> Result<IdempotencyKey, KeyError> {
        if order_id.is_empty() {
            return Err(KeyError::Empty);
        }
        IdempotencyKey::new(format!("{}:{order_id}", OrderPlaced::NAME))
    }
}

impl EventType for OrderPlaced {
    const NAME: &'static str = "order.placed";
    const VERSION: u32 = 1;
    const SCHEMA: &'static str = include_str!("../../json/order.placed.v1.json");

    fn check(&self) -> Result<(), Flaw> {
        text("order_id", &self.order_id, 100)?;
        text("customer", &self.customer, 200)?;
        currency("currency", &self.currency)?;
        if self.lines.is_empty() {
            return Err(Flaw::Empty("lines"));
        }
        if LINES_MAX < self.lines.len() {
            return Err(Flaw::TooLong("lines", LINES_MAX));
        }
        for line in &self.lines {
            text("lines.sku", &line.sku, 200)?;
            number("lines.quantity", line.quantity, 1..=QUANTITY_MAX)?;
            number("lines.unit_price_minor", line.unit_price_minor, 0..=UNIT_PRICE_MAX)?;
        }
        Ok(())
    }
}
