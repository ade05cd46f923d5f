//! A process that does nothing but publish the outbox.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sekali_producer::{Error, LastAnswer, Relay};
use sekali_schemas::migrations::Part;
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::config::Config;
use crate::probes::{self, Health};

/// Publishes the outbox of a database until `shutdown`, as one of any number of processes, with the admin port of the
/// configuration. Of the configuration it needs `kafka` and `postgres`.
///
/// # Errors
/// The database cannot be reached at the start or has no outbox, a property of Kafka is refused, or the admin port cannot
/// be opened. Later outages are waited out.
pub async fn run_relay(config: &Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let pool = config.postgres.pool("sekali-relay")?;
    let client = admin::connect(&pool).await?;
    admin::require_parts(&client, &[Part::Outbox]).await?;
    drop(client);
    let recorder = config.admin.listen.and_then(|_| probes::recorder(None));
    sekali_producer::metrics::describe_and_register();
    let relay = Relay::new(pool, &config.kafka, &config.relay)?;
    let stop = CancellationToken::new();
    let serving = match config.admin.listen {
        Some(listen) => {
            let health = RelayHealth { answered: relay.last_answer(), patience: config.relay.lease_ttl * 2 };
            Some(tokio::spawn(probes::serve(listen, recorder, Arc::new(health), stop.clone()).await?))
        }
        None => None,
    };
    let stop_relay = CancellationToken::new();
    let ask = async {
        shutdown.await;
        stop_relay.cancel();
    };
    tokio::join!(relay.run(stop_relay.clone()), ask);
    stop.cancel();
    if let Some(serving) = serving {
        // What is left of a request at the end is of no interest.
        let _cut_off = serving.await;
    }
    Ok(())
}

struct RelayHealth {
    answered: LastAnswer,
    patience: Duration,
}

impl Health for RelayHealth {
    /// Whoever can answer this lives: the relay waits out whatever happens to Kafka and the database.
    fn dead(&self) -> Option<&'static str> {
        None
    }

    fn unready(&self) -> Option<&'static str> {
        let answers = self.answered.age().is_some_and(|it| it <= self.patience);
        (!answers).then_some("the database does not say who leads")
    }
}
