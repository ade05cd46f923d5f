//! Whether a run did what it should: computed from what was produced, not from what any program says.

use std::collections::HashMap;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::load::Load;

/// What is wrong; `None` when every event is in the ledger once and every quantity is the sum of its events.
///
/// # Errors
/// The database does not answer.
pub async fn check(client: &Client, load: &Load) -> Result<Option<String>, anyhow::Error> {
    let good = load.events().iter().filter(|it| !load.dies(it));
    let mut expected: HashMap<Uuid, (&str, i64)> = good.map(|it| (it.key, (load.sku(it), it.delta))).collect();
    let rows = client.query("SELECT key, sku, delta FROM public.stock_movement", &[]).await?;
    for row in &rows {
        let (key, sku, delta): (Uuid, &str, i64) = (row.get(0), row.get(1), row.get(2));
        match expected.remove(&key) {
            None => return Ok(Some(format!("event {key} is in the ledger twice, or was never produced"))),
            Some(wanted) if wanted != (sku, delta) => return Ok(Some(format!("event {key} is in the ledger altered"))),
            Some(_) => {}
        }
    }
    if !expected.is_empty() {
        return Ok(Some(format!("{} events are lost", expected.len())));
    }
    let dead: i64 = client.query_one("SELECT count(*) FROM sekali.dead_letter", &[]).await?.get(0);
    if dead as usize != load.expected().1 {
        return Ok(Some(format!("{dead} dead letters instead of {}", load.expected().1)));
    }
    let mut totals = load.totals();
    for row in &client.query("SELECT sku, quantity, version FROM public.stock", &[]).await? {
        let (sku, found): (&str, (i64, i64)) = (row.get(0), (row.get(1), row.get(2)));
        let wanted = totals.remove(sku);
        if wanted != Some(found) {
            return Ok(Some(format!("SKU {sku} has (quantity, version) {found:?}, expected {wanted:?}")));
        }
    }
    Ok(if totals.is_empty() { None } else { Some(format!("{} SKUs have no stock row", totals.len())) })
}
