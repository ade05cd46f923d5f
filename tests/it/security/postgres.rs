//! A PostgreSQL that takes the group's users only over TLS.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use sekali::private_postgres::{Options, find_binaries};
use sekali_consumer::{Config, Consumer};
use sekali_producer::config::PostgresSection;
use sekali_producer::{Error, SqlError};
use sekali_tests::group::{Group, LIMIT};
use sekali_tests::harness::authority::{Authority, Issued};
use sekali_tests::harness::{Outgoing, Postgres, PrivatePostgres, TestDatabase, eventually, kafka};
use sekali_tests::scripted::Scripted;
use sekali_tests::skip;
use tokio_postgres::error::SqlState;

use super::{Refusal, whole_way};

const PASSWORD: &str = "staple-battery-17";
/// The superuser is the bench's own. The others get in over TLS alone, one of them with a certificate besides its
/// password.
const HBA: &str = "host all postgres 127.0.0.1/32 scram-sha-256\n\
     hostssl all app 127.0.0.1/32 scram-sha-256\n\
     hostssl all certified 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n";

struct Secured {
    server: PrivatePostgres,
    authority: Authority,
}

impl Secured {
    /// Its certificate is for 127.0.0.1, and not for localhost.
    async fn start() -> Secured {
        let authority = Authority::new();
        let Issued { certificate, key, .. } = authority.issue("server", &["127.0.0.1"]);
        let hba = authority.dir().join("pg_hba.conf");
        fs::write(&hba, HBA).unwrap();
        let file = |name: &str, path: PathBuf| (name.to_owned(), path.display().to_string());
        let settings = vec![
            ("ssl".to_owned(), "on".to_owned()),
            file("ssl_cert_file", certificate),
            file("ssl_key_file", key),
            file("ssl_ca_file", authority.file()),
            file("hba_file", hba),
        ];
        let options = Options { fsync: false, settings, ..Options::default() };
        let server = tokio::task::spawn_blocking(|| PrivatePostgres::start(options)).await.unwrap().unwrap();
        let secured = Secured { server, authority };
        for user in ["app", "certified"] {
            let sql = format!("CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{PASSWORD}'");
            secured.bench().admin().await.batch_execute(&sql).await.unwrap();
        }
        secured
    }

    fn bench(&self) -> Postgres {
        Postgres::at(&self.server.url("postgres"))
    }

    fn section(&self, user: &str, place: &str, mode: &str) -> PostgresSection {
        let (host, database) = place.split_once('/').unwrap();
        PostgresSection {
            url: Some(format!("postgres://{user}@{host}:{}/{database}?sslmode={mode}", self.server.port()).into()),
            password: Some(PASSWORD.into()),
            ssl_root_cert_file: mode.starts_with("verify").then(|| self.authority.file()),
            ..PostgresSection::default()
        }
    }

    /// The user who needs a certificate, with one that names somebody.
    fn certified(&self, name: &str, place: &str) -> PostgresSection {
        let Issued { certificate, key, .. } = self.authority.issue(name, &[]);
        PostgresSection {
            ssl_cert_file: Some(certificate),
            ssl_key_file: Some(key),
            ..self.section("certified", place, "verify-full")
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_works_over_tls_and_with_a_certificate() {
    if let Err(reason) = find_binaries() {
        skip!("{reason:#}");
    }
    let (secured, kafka) = (Secured::start().await, kafka().await);
    for user in ["app", "certified"] {
        let database = TestDatabase::create_on(&secured.bench()).await;
        let place = format!("127.0.0.1/{}", database.name());
        let group = Group::with_database(kafka, kafka.bootstrap(), database, user, 2, |config| {
            config.postgres = match user {
                "app" => secured.section(user, &place, "verify-full"),
                _ => secured.certified(user, &place),
            };
        })
        .await;
        whole_way(&group).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_cancelled_over_tls_too() {
    if let Err(reason) = find_binaries() {
        skip!("{reason:#}");
    }
    let secured = Secured::start().await;
    let section = secured.section("app", "127.0.0.1/postgres", "verify-full");
    let client = section.connect("test").await.unwrap();
    let row = client.query_one("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
    let (tls, token) = (section.tls().unwrap(), client.cancel_token());
    let sleeping = tokio::spawn(async move { client.batch_execute("SELECT pg_sleep(25)").await });
    let begun = "SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(25)' AND state = 'active'";
    let admin = secured.bench().admin().await;
    eventually("the statement runs", Duration::from_secs(10), async || {
        admin.query_opt(begun, &[]).await.unwrap().is_some()
    })
    .await;
    tls.cancel(&token).await.unwrap();
    let error = sleeping.await.unwrap().unwrap_err();
    assert_eq!(SqlError::of(&error).state(), Some(&SqlState::QUERY_CANCELED));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_refused_for_a_while_burns_no_attempt() {
    if let Err(reason) = find_binaries() {
        skip!("{reason:#}");
    }
    let (secured, kafka) = (Secured::start().await, kafka().await);
    let database = TestDatabase::create_on(&secured.bench()).await;
    let place = format!("127.0.0.1/{}", database.name());
    let group = Group::with_database(kafka, kafka.bootstrap(), database, "rotated", 1, |config| {
        config.postgres = secured.section("app", &place, "verify-full");
        config.retry.delays = vec![Duration::from_millis(100)];
    })
    .await;
    let member = group.start(Scripted::default()).await;
    group.produce([Outgoing::new("before", "{}").id("before")]).await;
    group.settled().await;
    let password = async |to: &str| {
        let sql = format!(
            "ALTER ROLE app PASSWORD '{to}'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'"
        );
        secured.bench().admin().await.batch_execute(&sql).await.unwrap();
    };
    password("rotated").await;
    group.produce((0..10).map(|it| Outgoing::new(format!("k{it}"), "{}").id(&format!("k{it}")))).await;
    eventually("the member tries and is refused", LIMIT, async || {
        10 < secured.server.log().matches("password authentication failed").count()
    })
    .await;
    password(PASSWORD).await;
    group.settled().await;
    assert_eq!(group.effects().await.len(), 11);
    assert_eq!(group.database.scalar::<i32>("SELECT max(attempt) FROM effect").await, 1);
    assert_eq!(group.dead_letters().await, []);
    member.stop().await.unwrap();
}

/// What a member says that starts with this section.
async fn start(section: PostgresSection) -> Result<(), Error> {
    let brokers = kafka().await.bootstrap();
    let config = Group::configure(brokers, "postgres://u@h/d", "never-made", |config: &mut Config| {
        config.postgres = section;
    });
    Consumer::connect(config, Scripted::default()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_trusted_is_told_why_and_no_secret_is_shown() {
    if let Err(reason) = find_binaries() {
        skip!("{reason:#}");
    }
    let secured = Secured::start().await;
    let stranger = Authority::new();
    let (here, by_name) = ("127.0.0.1/postgres", "localhost/postgres");
    let with_root = |mode: &str, authority: &Authority| PostgresSection {
        ssl_root_cert_file: Some(authority.file()),
        ..secured.section("app", here, mode)
    };
    let wrong = |section| PostgresSection { password: Some("wrong-staple".into()), ..section };
    for (what, section, said) in [
        ("no encryption", secured.section("app", here, "disable"), "add sslmode=verify-full to postgres.url"),
        ("a wrong password", wrong(secured.section("app", here, "verify-full")), "check postgres.password"),
        ("an unknown authority", with_root("verify-full", &stranger), "set postgres.ssl_root_cert_file"),
        ("the same without names", with_root("verify-ca", &stranger), "set postgres.ssl_root_cert_file"),
        ("the same as libpq does it", with_root("require", &stranger), "set postgres.ssl_root_cert_file"),
        ("a wrong name", secured.section("app", by_name, "verify-full"), "another name than the host of postgres.url"),
        ("no certificate", secured.section("certified", here, "verify-full"), "set postgres.ssl_cert_file"),
        ("somebody else's certificate", secured.certified("app", here), "postgres.ssl_cert_file names another user"),
    ] {
        let refusal = Refusal::begin();
        let error = start(section).await.unwrap_err().chain();
        refusal.is(what, &error, &[said], &[PASSWORD, "wrong-staple", "postgres://"]);
    }
    for (what, section) in [
        ("prefer", secured.section("app", here, "prefer")),
        ("require", secured.section("app", here, "require")),
        ("a name that is not looked at", secured.section("app", by_name, "verify-ca")),
        ("an authority for require", with_root("require", &secured.authority)),
        ("a certificate", secured.certified("certified", here)),
    ] {
        let connected = section.connect("test").await;
        assert!(connected.is_ok(), "{what}: {}", connected.unwrap_err().chain());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_not_taken_for_a_dead_one() {
    if let Err(reason) = find_binaries() {
        skip!("{reason:#}");
    }
    let options = Options { fsync: false, ..Options::default() };
    let server = tokio::task::spawn_blocking(|| PrivatePostgres::start(options)).await.unwrap().unwrap();
    for mode in ["require", "verify-full"] {
        let url = format!("{}?sslmode={mode}", server.url("postgres"));
        let section = PostgresSection { url: Some(url.into()), ..PostgresSection::default() };
        let refusal = Refusal::begin();
        let error = start(section).await.unwrap_err().chain();
        refusal.is(mode, &error, &["the server does not offer it", "sslmode=disable"], &["postgres://"]);
    }
    let section = PostgresSection { url: Some(server.url("postgres").into()), ..PostgresSection::default() };
    assert!(section.connect("test").await.is_ok(), "without a word, TLS is not needed");
}
