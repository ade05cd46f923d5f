//! A service that stores every order of a topic exactly once.

use sekali_consumer::{Config, Consumer, Error, Failure, Handler, Message, Reply, Transaction, shutdown_signal};

#[derive(serde::Deserialize)]
struct Order {
    id: String,
    customer: String,
    cents: i64,
}

struct StoreOrders;

impl Handler for StoreOrders {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        // Bytes that are no order go to the dead letters at once; any other error is tried again.
        let order: Order = message.json()?;
        if order.cents <= 0 {
            return Err(Failure::permanent("an order costs something").with_code("PRICE"));
        }
        // Commits together with the inbox row of the message: both or neither, and never twice.
        let insert = "INSERT INTO placed_order (id, customer, cents) VALUES ($1, $2, $3)";
        tx.execute_cached(insert, &[&order.id, &order.customer, &order.cents]).await?;
        Ok(Reply::done())
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let path = std::env::args_os().nth(1).unwrap_or("orders.toml".into());
    let config = Config::load(Some(path.as_ref()))?;
    Consumer::connect(config, StoreOrders).await?.run(shutdown_signal()).await
}
