//! The servers of a benchmark, and what is made on them: topics, groups, scratch databases, each under a name of its own.

use std::net::{Ipv4Addr, TcpListener};
use std::num::NonZeroU16;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use sekali_consumer::admin::{migrate, topics};
use sekali_consumer::config::Config;
use sekali_producer::KafkaCauses;
use sekali_schemas::migrations::Part;
use sekali_worker::stock::create_tables;
use tokio_postgres::Client;

use crate::child::{Child, Origin, Settings, section_for};
use crate::program::Program;

const TIMEOUT: Duration = Duration::from_secs(60);
/// What every name begins with.
pub const PREFIX: &str = "sekali-bench";

/// Servers that the benchmark has for itself: it sees their processes, and may ask them for anything.
#[derive(Debug, Clone, Copy)]
pub struct OwnServers {
    /// Process id of PostgreSQL's postmaster.
    pub postmaster: u32,
    /// Process id of the broker.
    pub broker: u32,
}

/// Where runs take place.
pub struct Stage {
    /// How programs find the servers.
    pub origin: Origin,
    /// Brokers and database.
    pub config: Config,
    /// `None` on a user's servers, of which less is known.
    pub own: Option<OwnServers>,
    made: Mutex<Vec<Made>>,
}

/// What was made and is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Made {
    Topic(String),
    Group(String),
    Database(String),
}

/// A database of one run. Nothing drops it but [`Scratch::remove`].
pub struct Scratch {
    /// Its name.
    pub name: String,
    /// A connection to it.
    pub client: Client,
    admin: Client,
}

/// A name that nobody else uses.
pub fn unique() -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("{PREFIX}-{}", &id[..10])
}

impl Stage {
    /// Reads the configuration. Connects to nothing yet.
    ///
    /// # Errors
    /// As [`Origin::load`].
    pub fn new(origin: Origin, own: Option<OwnServers>) -> Result<Stage, anyhow::Error> {
        Ok(Stage { config: origin.load()?, origin, own, made: Mutex::default() })
    }

    fn made(&self) -> MutexGuard<'_, Vec<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unmake(&self, what: &Made) {
        self.made().retain(|it| it != what);
    }

    /// Removes what an error or an interruption left.
    ///
    /// # Errors
    /// A server does not answer; the text names what is left.
    pub async fn sweep(&self) -> Result<(), anyhow::Error> {
        let left = std::mem::take(&mut *self.made());
        if left.is_empty() {
            return Ok(());
        }
        let (kafka, postgres) = (self.admin()?, self.config.postgres.connect(PREFIX).await?);
        for it in &left {
            let removed = match it {
                Made::Topic(name) => {
                    kafka.delete_topics(&[name], &options()).await.map(drop).map_err(anyhow::Error::from)
                }
                Made::Group(name) => {
                    kafka.delete_groups(&[name], &options()).await.map(drop).map_err(anyhow::Error::from)
                }
                Made::Database(name) => drop_database(&postgres, name).await,
            };
            removed.with_context(|| format!("cannot remove {left:?}: do it by hand"))?;
        }
        Ok(())
    }

    fn admin(&self) -> Result<AdminClient<KafkaCauses>, anyhow::Error> {
        let config = self.config.kafka.client_config()?;
        config.create_with_context(self.config.kafka.causes()).context("cannot create a Kafka client")
    }

    /// Creates a source topic.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn topic(&self, partitions: NonZeroU16) -> Result<String, anyhow::Error> {
        let name = unique();
        let copies = TopicReplication::Fixed(self.config.topics.replication_factor.get().into());
        let topic = NewTopic::new(&name, partitions.get().into(), copies);
        let answers = self.admin()?.create_topics([&topic], &options()).await;
        for answer in answers.with_context(|| format!("cannot create topic {name}"))? {
            answer.map_err(|(name, code)| anyhow!("cannot create topic {name}: {code}"))?;
        }
        self.made().push(Made::Topic(name.clone()));
        Ok(name)
    }

    /// Deletes topics; those that are not there are no error.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn delete_topics(&self, names: &[&str]) -> Result<(), anyhow::Error> {
        self.admin()?.delete_topics(names, &options()).await.context("cannot delete topics")?;
        for name in names {
            self.unmake(&Made::Topic((*name).to_owned()));
        }
        Ok(())
    }

    /// Deletes what a run left on the broker: the group, and the topics that belong to it. The source topic stays.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn forget(&self, child: &Child) -> Result<(), anyhow::Error> {
        let group = child.config()?.group_topics()?;
        let mut names: Vec<&str> = Vec::new();
        for it in &group.topics {
            names.extend(it.retry.iter().map(|it| it.1.as_str()));
            names.push(&it.dlq);
        }
        if child.program.is_product() {
            self.delete_topics(&names).await?;
        }
        self.admin()?.delete_groups(&[&child.group], &options()).await.context("cannot delete the group")?;
        self.unmake(&Made::Group(child.group.clone()));
        Ok(())
    }

    /// Creates a database with the tables of Sekali and of the stock group.
    ///
    /// # Errors
    /// The server refuses; without the right to create databases the text says so.
    pub async fn scratch(&self) -> Result<Scratch, anyhow::Error> {
        let admin = self.config.postgres.connect(PREFIX).await?;
        let name = unique().replace('-', "_");
        admin
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .with_context(|| format!("cannot create database {name}: the login needs CREATEDB"))?;
        self.made().push(Made::Database(name.clone()));
        let client = self.prepare(&name).await?;
        Ok(Scratch { name, client, admin })
    }

    async fn prepare(&self, name: &str) -> Result<Client, anyhow::Error> {
        let mut config = self.config.clone();
        config.postgres = section_for(&config.postgres, name, None)?;
        migrate(&config, &Part::ALL).await?;
        let client = config.postgres.connect(PREFIX).await?;
        create_tables(&client).await.context("cannot create the tables of the stock group")?;
        Ok(client)
    }

    /// A program with a group of its own; the product has a port for its metrics, as it has by default.
    ///
    /// # Errors
    /// No port is free.
    pub fn child(
        &self,
        program: Program,
        scratch: &Scratch,
        topic: &str,
        partitions: NonZeroU16,
    ) -> Result<Child, anyhow::Error> {
        let admin_port = program.is_product().then(free_port).transpose().context("no port is free")?;
        Ok(Child {
            program,
            origin: self.origin.clone(),
            database: scratch.name.clone(),
            through: None,
            topic: topic.to_owned(),
            partitions,
            group: unique(),
            admin_port,
            settings: Settings::default(),
        })
    }

    /// Creates the topics of a product's group. From here on there is something to forget.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn apply_topics(&self, child: &Child) -> Result<(), anyhow::Error> {
        self.made().push(Made::Group(child.group.clone()));
        if child.program.is_product() {
            for it in &topics::apply(&child.config()?).await?.topics {
                if it.name != child.topic {
                    self.made().push(Made::Topic(it.name.clone()));
                }
            }
        }
        Ok(())
    }
}

impl Scratch {
    /// Drops the database, whoever is connected.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn remove(self, stage: &Stage) -> Result<(), anyhow::Error> {
        drop(self.client);
        drop_database(&self.admin, &self.name).await?;
        stage.unmake(&Made::Database(self.name));
        Ok(())
    }
}

/// A port on which nobody listens at this moment.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

async fn drop_database(admin: &Client, name: &str) -> Result<(), anyhow::Error> {
    let dropped = admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    dropped.with_context(|| format!("cannot drop database {name}: drop it by hand"))
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(TIMEOUT)).request_timeout(Some(TIMEOUT))
}
