//! Servers as containers, where a Docker engine answers.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use testcontainers::core::{ContainerPort, IntoContainerPort};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, Image, ImageExt};
use testcontainers_modules::{kafka::apache, postgres};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{CONTAINERS_VARIABLE, Server};
use crate::harness::kafka::Kafka;
use crate::harness::versions;

const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running container; removed when dropped.
pub(super) enum Container {
    Kafka { _it: Box<ContainerAsync<apache::Kafka>> },
    Postgres { _it: Box<ContainerAsync<postgres::Postgres>> },
}

/// Container, address, origin.
pub(super) async fn start(server: Server) -> Result<(Container, String, String), anyhow::Error> {
    ensure!(std::env::var(CONTAINERS_VARIABLE).as_deref() != Ok("never"), "{CONTAINERS_VARIABLE} is never");
    engine_answers().await?;
    match server {
        Server::Kafka => kafka().await,
        Server::Postgres => postgres().await,
    }
}

async fn kafka() -> Result<(Container, String, String), anyhow::Error> {
    const PORT: ContainerPort = apache::KAFKA_PORT;
    let image = apache::Kafka::default().with_jvm_image().with_tag(versions::kafka());
    // The image knows every broker setting by a name of this form.
    let settings = crate::harness::own_broker::SETTINGS
        .iter()
        .map(|(name, value)| (format!("KAFKA_{}", name.to_uppercase().replace('.', "_")), *value));
    let image = settings
        .fold(image.with_startup_timeout(START_TIMEOUT), |image, (name, value)| image.with_env_var(name, value));
    let container = image.start().await?;
    let (address, origin) = place(&container, PORT).await?;
    let kafka = Kafka::at(&address)?;
    kafka.warm_up(START_TIMEOUT).await;
    Ok((Container::Kafka { _it: Box::new(container) }, address, origin))
}

async fn postgres() -> Result<(Container, String, String), anyhow::Error> {
    let image = postgres::Postgres::default()
        .with_tag(versions::POSTGRES_IMAGE)
        .with_cmd(["postgres", "-c", "fsync=off", "-c", "max_connections=300"])
        .with_startup_timeout(START_TIMEOUT);
    let container = image.start().await?;
    let (address, origin) = place(&container, 5432.tcp()).await?;
    let url = format!("postgres://postgres:postgres@{address}/postgres");
    Ok((Container::Postgres { _it: Box::new(container) }, url, origin))
}

async fn place<I: Image>(it: &ContainerAsync<I>, port: ContainerPort) -> Result<(String, String), anyhow::Error> {
    let host = it.get_host().await?.to_string().replace("localhost", "127.0.0.1");
    let address = format!("{host}:{}", it.get_host_port_ipv4(port).await?);
    let image = it.image();
    Ok((address, format!("container of {}", image.name())))
}

/// Asks before testcontainers does, which would wait and log errors on machines without Docker.
async fn engine_answers() -> Result<(), anyhow::Error> {
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    let ask = async {
        if let Some(path) = host.strip_prefix("unix://") {
            ping(tokio::net::UnixStream::connect(path).await?).await
        } else if let Some(address) = host.strip_prefix("tcp://") {
            ping(tokio::net::TcpStream::connect(address).await?).await
        } else {
            bail!("DOCKER_HOST is of a form not known here")
        }
    };
    tokio::time::timeout(Duration::from_secs(5), ask)
        .await
        .context("the Docker engine is silent")?
        .context("no Docker engine")
}

async fn ping(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), anyhow::Error> {
    stream.write_all(b"GET /_ping HTTP/1.0\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let status = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    ensure!(status.contains(" 200 "), "it answers {status:?}");
    Ok(())
}
