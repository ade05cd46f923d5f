//! Both ways in, as one process.

use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select, try_join};
use sekali_consumer::http::HttpInbox;
use sekali_consumer::{Config, Consumer, Error, ErrorKind, Inbox, SqlError, admin, shutdown_signal};
use sekali_producer::Contract;
use tokio::net::TcpListener;

use super::{Invoices, create_tables, webhooks};

/// What the invoice group needs beside its configuration.
#[derive(Debug, Clone, clap::Args)]
pub struct InvoiceArgs {
    /// Address of POST /webhooks/orders.
    #[arg(long, env = "SEKALI_INVOICE_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// How long a request waits for another one of the same key before it gets 409, in milliseconds.
    #[arg(long, default_value_t = 5000, value_name = "MS")]
    pub wait_ms: u32,
    /// Topic of the events invoice.created, which must be there.
    #[arg(long, default_value = "invoice.created", value_name = "TOPIC")]
    pub created_topic: String,
    /// Create the table invoice first, where it is missing.
    #[arg(long)]
    pub create_tables: bool,
}

/// Consumes the configured topics and serves HTTP until SIGTERM or SIGINT.
///
/// # Errors
/// As [`Consumer::connect`] and [`Consumer::run`], the topic of the events is missing, or the address cannot be opened.
pub async fn run(config: Config, arguments: InvoiceArgs) -> Result<(), Error> {
    admin::topics::require(&config.kafka, &[&arguments.created_topic]).await?;
    let (postgres, name) = (config.postgres.clone(), config.consumer_name().to_owned());
    let drain_timeout = config.consumer.drain_timeout;
    let contract = Contract::new(&config.schemas, &config.registry)?.map(Arc::new);
    let invoices = Invoices::new(arguments.created_topic).under(contract);
    let consumer = Consumer::connect(config, invoices.clone()).await?;
    let listener = TcpListener::bind(arguments.listen).await.map_err(|error| {
        let doing = format!("open {} for POST /webhooks/orders (set --listen to another address)", arguments.listen);
        Error::new(ErrorKind::System, doing).because(error)
    })?;
    // Connections of its own: requests and batches do not wait for each other's.
    let pool = postgres.pool("sekali-worker")?;
    let connect = || Error::new(ErrorKind::Postgres, "connect to postgresql for requests");
    let client = pool.get().await.map_err(|error| connect().because(error))?;
    // Not before it is clear that everything else is in place: a failed start writes nothing.
    if arguments.create_tables {
        let failed = |error| Error::new(ErrorKind::Postgres, "create the table invoice").because(SqlError::of(&error));
        create_tables(&client).await.map_err(failed)?;
    }
    let inbox = HttpInbox::new(Inbox::open(&client, &name).await?, pool.clone());
    drop(client);
    let router = webhooks(inbox.wait(Duration::from_millis(arguments.wait_ms.into())), invoices);

    let stop = shutdown_signal().shared();
    let consuming = consumer.run(stop.clone());
    try_join(consuming, serve(listener, router, stop, drain_timeout)).await?;
    Ok(())
}

/// Takes no new request once `stop` completes, and finishes those in hand.
async fn serve(
    listener: TcpListener,
    router: axum::Router,
    stop: impl Future<Output = ()> + Clone + Send + 'static,
    drain_timeout: Duration,
) -> Result<(), Error> {
    tracing::info!(address = listener.local_addr().ok().map(tracing::field::display), "waiting for orders over http");
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone()).into_future();
    let late = async {
        stop.await;
        tokio::time::sleep(drain_timeout).await;
    };
    match select(pin!(serving), pin!(late)).await {
        Either::Left((ended, _)) => {
            ended.map_err(|error| Error::new(ErrorKind::System, "serve orders over http").because(error))
        }
        Either::Right(_) => {
            tracing::warn!("requests that did not end in time were cut off, and have done nothing");
            Ok(())
        }
    }
}
