use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::flaw::text;
use super::{EventType, Flaw};

/// The quantity of one SKU changed. The Kafka key is the SKU.
///
/// Members that are not named here are ignored, so that a producer may add some before its consumers know them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StockAdjusted {
    /// Stock keeping unit, byte for byte (case counts).
    #[schemars(length(min = 1, max = 200))]
    pub sku: String,
    /// Change of the quantity in units: negative when goods leave.
    pub delta: i64,
    /// When the goods moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<Timestamp>,
}

impl EventType for StockAdjusted {
    const NAME: &'static str = "stock.adjusted";
    const VERSION: u32 = 1;
    const SCHEMA: &'static str = include_str!("../../json/stock.adjusted.v1.json");

    fn check(&self) -> Result<(), Flaw> {
        text("sku", &self.sku, 200)
    }
}
