//! The quantity of one SKU, written only if its version is still the one that was read.

use sekali_consumer::schemas::events::StockAdjusted;
use sekali_consumer::{Failure, Transaction};

const READ: &str = "SELECT quantity, version FROM public.stock WHERE sku = $1";

const MAKE: &str = "INSERT INTO public.stock (sku, quantity, version) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING";

const SET: &str = "UPDATE public.stock SET quantity = $3, version = version + 1 WHERE sku = $1 AND version = $2";

/// How often somebody else may be faster before the message comes later.
const TRIES: usize = 5;

/// Compares and sets. Whoever else writes the row by its version, a service as well as another message, is neither
/// overwritten nor waited for longer than its transaction takes.
pub(super) async fn adjust(event: &StockAdjusted, tx: &Transaction<'_>) -> Result<(), Failure> {
    for _ in 0..TRIES {
        let (quantity, version) = match tx.query_cached(READ, &[&event.sku]).await?.first() {
            Some(row) => (row.get::<_, i64>(0), row.get::<_, i64>(1)),
            None => {
                tx.execute_cached(MAKE, &[&event.sku]).await?;
                (0, 0)
            }
        };
        let overflow = || Failure::permanent("the quantity leaves 64 bits").with_code("22003");
        let quantity = quantity.checked_add(event.delta).ok_or_else(overflow)?;
        if tx.execute_cached(SET, &[&event.sku, &version, &quantity]).await? == 1 {
            return Ok(());
        }
    }
    Err(Failure::contended("others changed the row each time"))
}
