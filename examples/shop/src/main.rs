//! A shop: `POST /orders` stores an order and publishes `order.placed`, both or neither.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use sekali_producer::config::{KafkaSection, PostgresSection, RelaySection};
use sekali_producer::{Event, Relay, ResourceId, deadpool_postgres::Pool, outbox};
use sekali_schemas::events::{EventType, OrderPlaced};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

struct Shop {
    pool: Pool,
    topic: String,
    /// Tells the relay of this process that something was enqueued.
    relay: Arc<Notify>,
}

/// Says whether the order is new. Whoever repeats a request gets the same answer and publishes nothing.
async fn place(shop: &Shop, order: &OrderPlaced) -> Result<bool, AnyError> {
    let total = order.total_minor().ok_or("the total is too large")?;
    let mut client = shop.pool.get().await?;
    let tx = client.transaction().await?;
    const INSERT: &str =
        "INSERT INTO shop_order (id, customer, total_minor) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    let is_new = tx.execute(INSERT, &[&order.order_id, &order.customer, &total]).await? == 1;
    if is_new {
        let event = Event::of(&shop.topic, ResourceId::new(order.order_id.clone())?, order)?
            .idempotency_key(order.idempotency_key()?)
            .source("/shop")?;
        outbox::enqueue(&tx, &event).await?;
    }
    tx.commit().await?;
    shop.relay.notify_one();
    Ok(is_new)
}

async fn post_order(State(shop): State<Arc<Shop>>, Json(order): Json<OrderPlaced>) -> Result<StatusCode, StatusCode> {
    order.check().map_err(|_| StatusCode::UNPROCESSABLE_ENTITY)?;
    match place(&shop, &order).await {
        Ok(true) => Ok(StatusCode::CREATED),
        Ok(false) => Ok(StatusCode::OK),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let url = std::env::var("DATABASE_URL")?.into();
    let pool = PostgresSection { url: Some(url), ..PostgresSection::default() }.pool("shop")?;
    // Any number of these services may run: one of their relays leads, and another takes over when it is gone.
    let kafka = KafkaSection::new(std::env::var("KAFKA_BROKERS")?);
    let relay = Relay::new(pool.clone(), &kafka, &RelaySection::default())?;
    let topic = std::env::var("ORDERS_TOPIC").unwrap_or("orders".to_owned());
    let shop = Arc::new(Shop { pool, topic, relay: relay.wake_handle() });
    let stop = CancellationToken::new();
    let publishing = tokio::spawn(relay.run(stop.clone()));

    let listener = tokio::net::TcpListener::bind(std::env::var("LISTEN")?).await?;
    let router = Router::new().route("/orders", post(post_order)).with_state(shop);
    let asked_to_stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, router).with_graceful_shutdown(asked_to_stop).await?;
    stop.cancel();
    Ok(publishing.await?)
}
