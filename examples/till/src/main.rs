//! A till without `async`: each line of a file, `SKU QUANTITY`, is a sale. The shelf and `stock.adjusted` change in one
//! transaction; `sekali relay` publishes.

use postgres::{Client, NoTls};
use sekali_producer::{Event, ResourceId, outbox};
use sekali_schemas::events::StockAdjusted;

type AnyError = Box<dyn std::error::Error>;

/// Says whether there was enough of it.
fn sell(client: &mut Client, topic: &str, sku: &str, quantity: i64) -> Result<bool, AnyError> {
    let mut tx = client.transaction()?;
    const TAKE: &str = "UPDATE shelf SET quantity = quantity - $2 WHERE sku = $1 AND $2 <= quantity";
    // Locks the row of the SKU: that is what keeps its events in order.
    if tx.execute(TAKE, &[&sku, &quantity])? == 0 {
        return Ok(false);
    }
    let sold = StockAdjusted { sku: sku.to_owned(), delta: -quantity, occurred_at: None };
    let event = Event::of(topic, ResourceId::new(sku.to_owned())?, &sold)?.source("/till")?;
    outbox::sync::enqueue(&mut tx, &event)?;
    tx.commit()?;
    Ok(true)
}

fn main() -> Result<(), AnyError> {
    let mut client = Client::connect(&std::env::var("DATABASE_URL")?, NoTls)?;
    let topic = std::env::var("STOCK_TOPIC").unwrap_or("stock".to_owned());
    let sales = std::env::args_os().nth(1).ok_or("name the file with the sales")?;
    for line in std::fs::read_to_string(sales)?.lines() {
        let (sku, quantity) = line.split_once(' ').ok_or("a sale is a SKU and a quantity")?;
        let sold = sell(&mut client, &topic, sku, quantity.parse()?)?;
        println!("{sku} {}", if sold { "sold" } else { "not there" });
    }
    Ok(())
}
