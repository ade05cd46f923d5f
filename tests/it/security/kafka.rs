//! A broker that wants a login or a certificate.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use sekali_consumer::admin;
use sekali_consumer::admin::doctor::{Status, doctor};
use sekali_producer::Producer;
use sekali_producer::config::{KafkaSection, SecurityProtocol};
use sekali_tests::group::Group;
use sekali_tests::harness::authority::{Authority, Issued};
use sekali_tests::harness::own_broker::{PASSWORD, SecuredPorts, USER};
use sekali_tests::harness::{Kafka, OwnBroker, Program};
use sekali_tests::skip;

use super::tokens::unsigned;
use super::{Refusal, whole_way};

/// A broker whose certificate is for 127.0.0.1, and not for localhost.
pub(super) struct Secured {
    pub(super) broker: OwnBroker,
    pub(super) authority: Authority,
    pub(super) ports: SecuredPorts,
}

impl Secured {
    pub(super) async fn start() -> Result<Secured, anyhow::Error> {
        let authority = Authority::new();
        let (broker, ports) = OwnBroker::start_secured(&authority).await?;
        Ok(Secured { broker, authority, ports })
    }

    /// The bench's own clients, as groups want them.
    pub(super) fn bench(&self) -> &'static Kafka {
        Box::leak(Box::new(self.broker.kafka().clone()))
    }

    pub(super) fn login(&self, mechanism: &str) -> KafkaSection {
        let mut section = KafkaSection::new(self.ports.login());
        section.security_protocol = SecurityProtocol::SaslSsl;
        section.sasl_mechanism = Some(mechanism.to_owned());
        section.ssl_ca_file = Some(self.authority.file());
        section
    }

    fn password(&self, mechanism: &str, password: &str) -> KafkaSection {
        let mut section = self.login(mechanism);
        section.sasl_username = Some(USER.to_owned());
        section.sasl_password = Some(password.into());
        section
    }

    fn certificate(&self, of: &Authority) -> KafkaSection {
        let Issued { certificate, key, .. } = of.issue("worker", &[]);
        let mut section = KafkaSection::new(self.ports.mutual());
        section.security_protocol = SecurityProtocol::Ssl;
        section.ssl_ca_file = Some(self.authority.file());
        section.ssl_certificate_file = Some(certificate);
        section.ssl_key_file = Some(key);
        section
    }

    fn token_file(&self, name: &str, lifetime: Duration) -> (KafkaSection, PathBuf) {
        let path = self.authority.dir().join(name);
        fs::write(&path, unsigned(lifetime)).unwrap();
        let mut section = self.login("OAUTHBEARER");
        section.oauth_token_file = Some(path.clone());
        (section, path)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_works_with_every_login() {
    let secured = match Secured::start().await {
        Ok(secured) => secured,
        Err(reason) => skip!("{reason:#}"),
    };
    let bench = secured.bench();
    for (label, section) in [
        ("plain", secured.password("PLAIN", PASSWORD)),
        ("scram256", secured.password("SCRAM-SHA-256", PASSWORD)),
        ("scram512", secured.password("SCRAM-SHA-512", PASSWORD)),
        ("certificate", secured.certificate(&secured.authority)),
        ("token", secured.token_file("token", Duration::from_secs(3600)).0),
    ] {
        let change = |config: &mut sekali_consumer::Config| {
            let bytes = config.kafka.message_bytes_max;
            config.kafka = section.clone();
            config.kafka.message_bytes_max = bytes;
        };
        let group = Group::on(bench, &section.brokers, label, 2, change).await;
        whole_way(&group).await;
        let lag = admin::lag(&group.config).await.unwrap_or_else(|error| panic!("{label}: {}", error.chain()));
        assert!(lag.iter().all(|it| it.lag == 0), "{label}: {lag:?}");
        let checks = doctor(&group.config, &["kafka".to_owned(), "topics".to_owned()]).await;
        let failed: Vec<_> = checks.iter().filter(|it| it.status == Status::Fail).collect();
        assert!(!checks.is_empty() && failed.is_empty(), "{label}: {failed:?}");
        if label == "token" {
            operator(&secured, &group).await;
        }
    }
}

/// The command line has clients of its own.
async fn operator(secured: &Secured, group: &Group) {
    let (config, records) = (secured.authority.dir().join("sekali.toml"), secured.authority.dir().join("records"));
    fs::write(&config, group.config.print()).unwrap();
    fs::write(&records, "{\"id\":\"e-1\",\"sku\":\"SKU-1\",\"type\":\"stock.adjusted\",\"delta\":-1}\n").unwrap();
    let sekali = || Program::of_workspace("sekali").env("SEKALI_POSTGRES__URL", group.database.url());
    for arguments in [
        vec!["produce".to_owned(), records.display().to_string(), "--topic".to_owned(), group.topic.clone()],
        vec!["topics".to_owned(), "apply".to_owned()],
    ] {
        let mut ended = sekali().args(["--config", &config.display().to_string()]).args(&arguments).spawn();
        let status = ended.wait(Duration::from_secs(60)).await;
        assert!(status.success(), "{arguments:?}: {}{}", ended.stdout(), ended.stderr());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_known_is_told_why_and_no_secret_is_shown() {
    let secured = match Secured::start().await {
        Ok(secured) => secured,
        Err(reason) => skip!("{reason:#}"),
    };
    let stranger = Authority::new();
    let with = |mut section: KafkaSection, change: &dyn Fn(&mut KafkaSection)| {
        change(&mut section);
        section
    };
    let by_name = format!("localhost:{}", secured.ports.login);
    let (expired, _) = secured.token_file("expired", Duration::ZERO);
    let (missing, path) = secured.token_file("missing", Duration::ZERO);
    fs::remove_file(path).unwrap();
    let plain = || secured.password("PLAIN", PASSWORD);
    let certificate = || secured.certificate(&secured.authority);
    for (what, section, said) in [
        (
            "a wrong password",
            secured.password("PLAIN", "wrong-horse"),
            "check kafka.sasl_username, kafka.sasl_password",
        ),
        ("a wrong SCRAM", secured.password("SCRAM-SHA-512", "wrong-horse"), "check kafka.sasl_username"),
        ("an unknown authority", with(plain(), &|it| it.ssl_ca_file = Some(stranger.file())), "kafka.ssl_ca_file"),
        ("a wrong name", with(plain(), &|it| it.brokers.clone_from(&by_name)), "the names in kafka.brokers"),
        ("a token that ran out", expired, "kafka.oauth_token_file"),
        ("no token", missing, "cannot be read"),
        ("no source of tokens", secured.login("OAUTHBEARER"), "set kafka.oauth_token_file, or give"),
        (
            "no certificate",
            with(certificate(), &|it| (it.ssl_certificate_file, it.ssl_key_file) = (None, None)),
            "kafka.ssl_certificate_file",
        ),
        ("a stranger's certificate", secured.certificate(&stranger), "kafka.ssl_certificate_file"),
        ("no encryption", with(plain(), &|it| it.security_protocol = SecurityProtocol::SaslPlaintext), "kafka"),
    ] {
        let refusal = Refusal::begin();
        let error = match Producer::connect(&section).await {
            Ok(_) => panic!("{what} was accepted"),
            Err(error) => error.chain(),
        };
        refusal.is(what, &error, &[said], &[PASSWORD, "wrong-horse", "eyJ"]);
    }
}
