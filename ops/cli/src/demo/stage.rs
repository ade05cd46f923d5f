//! What the demo plays on: a broker inside this process, a throw-away database, and the settings of the group.

use std::net::SocketAddr;
use std::time::Duration;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use sekali_consumer::{Config, SqlError, admin};
use sekali_schemas::migrations::Part;
use sekali_worker::stock::create_tables;
use tokio_postgres::Client;

use super::{DLQ_NAME, GROUP, PARTITIONS, SESSION_TIMEOUT, TOPIC};
use crate::exit::Failure;
use crate::private_postgres::{Options, PrivatePostgres};

const DATABASE: &str = "postgres";

/// Short, so that the demo is: two retries take one and a half seconds.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];

/// A fault for the verdict to find: at commit, the inbox forgets what it has just noted as processed.
const BREAK_INBOX: &str = "\
    CREATE FUNCTION sekali.forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
        DELETE FROM sekali.inbox WHERE consumer_id = NEW.consumer_id AND key = NEW.key AND state = 1; \
        RETURN NULL; \
    END $$; \
    CREATE CONSTRAINT TRIGGER forget AFTER INSERT ON sekali.inbox DEFERRABLE INITIALLY DEFERRED \
        FOR EACH ROW EXECUTE FUNCTION sekali.forget();";

/// Broker and database. Dropping it stops both.
pub(super) struct Stage {
    pub(super) config: Config,
    pub(super) client: Client,
    pub(super) postgres: PrivatePostgres,
    broker: MockCluster<'static, DefaultProducerContext>,
}

impl Stage {
    /// Starts both and makes topics and tables.
    pub(super) async fn build() -> Result<Stage, Failure> {
        let broker =
            MockCluster::new(1).map_err(|error| Failure::error(format!("cannot start the broker: {error}")))?;
        // Commits need not wait for the disk: nobody will miss this data after a power cut.
        let options = Options { fsync: false, ..Options::default() };
        let postgres = tokio::task::spawn_blocking(move || PrivatePostgres::start(options))
            .await
            .map_err(|error| Failure::error(format!("cannot start PostgreSQL: {error}")))?
            .map_err(|error| Failure::error(format!("{error:#}")))?;
        let config = Config::from_toml(&settings(&broker.bootstrap_servers(), &postgres, None))?;
        create_topics(&broker, &config)?;
        admin::migrate(&config, &Part::ALL).await?;
        let client = config.postgres.connect("sekali-demo").await?;
        create_tables(&client).await.map_err(failed)?;
        Ok(Stage { config, client, postgres, broker })
    }

    /// Makes the inbox forget, so that duplicates are counted twice.
    pub(super) async fn break_inbox(&self) -> Result<(), Failure> {
        self.client.batch_execute(BREAK_INBOX).await.map_err(failed)
    }

    /// The configuration file of a worker with this admin port.
    pub(super) fn settings(&self, admin: SocketAddr) -> String {
        settings(&self.brokers(), &self.postgres, Some(admin))
    }

    /// Address of the broker.
    pub(super) fn brokers(&self) -> String {
        self.broker.bootstrap_servers()
    }

    /// Connection URL of the database; contains the password.
    pub(super) fn database_url(&self) -> String {
        self.postgres.url(DATABASE)
    }

    /// Name and version of the database server.
    pub(super) async fn database_version(&self) -> Result<String, Failure> {
        let row = self.client.query_one("SHOW server_version", &[]).await.map_err(failed)?;
        let version: &str = row.get(0);
        Ok(version.split(' ').next().unwrap_or_default().to_owned())
    }
}

/// What went wrong with a statement of the demo's own.
pub(super) fn failed(error: tokio_postgres::Error) -> Failure {
    Failure::error(format!("the demo's database refused a statement: {}", SqlError::of(&error)))
}

/// The mock cluster does not tell how long its topics keep records, so that nothing may be forgotten.
fn settings(brokers: &str, postgres: &PrivatePostgres, admin: Option<SocketAddr>) -> String {
    let url = postgres.url(DATABASE);
    let session = SESSION_TIMEOUT.as_secs();
    let delays = RETRY_DELAYS.map(|it| format!("\"{}ms\"", it.as_millis())).join(", ");
    let admin = admin.map_or("none".to_owned(), |it| it.to_string());
    format!(
        "[kafka]\nbrokers = \"{brokers}\"\n\n[postgres]\nurl = \"{url}\"\n\n[consumer]\ngroup = \"{GROUP}\"\n\
         topics = [\"{TOPIC}\"]\nsession_timeout = \"{session}s\"\n\n[retry]\ndelays = [{delays}]\n\n\
         [topics]\npartitions = {PARTITIONS}\n\n[inbox]\nretention = \"forever\"\n\n[relay]\nlease_ttl = \"2s\"\n\n\
         [admin]\nlisten = \"{admin}\"\n"
    )
}

/// The mock cluster knows no requests that create topics, so that `sekali topics apply` cannot.
fn create_topics(broker: &MockCluster<'static, DefaultProducerContext>, config: &Config) -> Result<(), Failure> {
    let topics = config.group_topics().map_err(|error| Failure::error(error.to_string()))?;
    for topic in &topics.topics {
        let retries = topic.retry.iter().map(|(_, name)| name);
        for name in [&topic.source, &topic.dlq].into_iter().chain(retries) {
            broker
                .create_topic(name, PARTITIONS, 1)
                .map_err(|error| Failure::error(format!("cannot create topic {name}: {error}")))?;
        }
        debug_assert_eq!(topic.dlq, DLQ_NAME);
    }
    Ok(())
}
