use serde::{Deserialize, Serialize};

use super::flaw::{currency, number, text};
use super::{EventType, Flaw};
use crate::IdempotencyKey;
use crate::idempotency::KeyError;

/// An order has its invoice. The Kafka key is the order's id.
///
/// Its idempotency key is `invoice.created:` and the invoice's reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InvoiceCreated {
    /// Reference of the invoice, as printed on it.
    #[schemars(length(min = 1, max = 100))]
    pub reference: String,
    /// The order that it is for.
    #[schemars(length(min = 1, max = 100))]
    pub order_id: String,
    /// What is to be paid, in the currency's minor unit.
    #[schemars(range(min = 0))]
    pub total_minor: i64,
    /// ISO 4217 code of the currency.
    #[schemars(regex(pattern = "^[A-Z]{3}$"))]
    pub currency: String,
}

impl InvoiceCreated {
    /// `invoice.created:` and the reference.
    ///
    /// # Errors
    /// It is longer than a key may be, which [`check`](EventType::check) refuses.
    pub fn idempotency_key(&self) -> Result<IdempotencyKey, KeyError> {
        IdempotencyKey::new(format!("{}:{}", InvoiceCreated::NAME, self.reference))
    }
}

impl EventType for InvoiceCreated {
    const NAME: &'static str = "invoice.created";
    const VERSION: u32 = 1;
    const SCHEMA: &'static str = include_str!("../../json/invoice.created.v1.json");

    fn check(&self) -> Result<(), Flaw> {
        text("reference", &self.reference, 100)?;
        text("order_id", &self.order_id, 100)?;
        number("total_minor", self.total_minor, 0..=i64::MAX)?;
        currency("currency", &self.currency)
    }
}
