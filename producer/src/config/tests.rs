use std::io::Write as _;
use std::time::Duration;

use secrecy::SecretString;

use super::*;

fn kafka(toml: &str) -> KafkaSection {
    toml::from_str(toml).unwrap()
}

fn problems(section: &KafkaSection) -> Vec<String> {
    let mut problems = Vec::new();
    section.validate(&mut problems);
    problems
}

#[test]
fn what_carries_the_guarantee_is_refused_with_the_reason() {
    let mut section = KafkaSection::new("localhost:9092");
    for key in [
        "enable.auto.commit",
        "enable.auto.offset.store",
        "group.id",
        "isolation.level",
        "enable.idempotence",
        "acks",
        "request.required.acks",
        "partitioner",
        "auto.offset.reset",
        "partition.assignment.strategy",
        "bootstrap.servers",
        "metadata.broker.list",
        "sasl.password",
        "transactional.id",
        "allow.auto.create.topics",
        "enable.partition.eof",
        "dr_msg_cb",
        "go.delivery.reports",
        "message.timeout.ms",
        "plugin.library.paths",
        "max.in.flight",
        "compression.codec",
        "linger.ms",
        "message.max.bytes",
        "batch.size",
        "ssl.key.password",
        "ssl.certificate.location",
        "sasl.oauthbearer.method",
        "enable.sasl.oauthbearer.unsecure.jwt",
    ] {
        section.properties = [(key.to_owned(), "6".to_owned())].into();
        let found = problems(&section);
        assert!(found.len() == 1 && found[0].starts_with(&format!("kafka.properties.\"{key}\" ")), "{key}: {found:?}");
    }
    section.properties = [("enable.auto.commit".to_owned(), "true".to_owned())].into();
    let expected = "kafka.properties.\"enable.auto.commit\" is set by the runtime: offsets are committed only after the \
                    database transaction";
    assert_eq!(problems(&section), [expected]);
}

#[test]
fn the_client_may_be_tuned_and_ours_come_last() {
    let section = kafka(
        r#"
        brokers = "a:1,b:2"
        linger = "20ms"
        compression = "zstd"
        message_bytes_max = 2000000
        batch_bytes_max = 500000
        [properties]
        "test.mock.num.brokers" = "3"
        "fetch.queue.backoff.ms" = "10"
        "max.in.flight" = "5"
        "#,
    );
    assert_eq!(problems(&section), [""; 0]);
    let config = section.producer_config().unwrap();
    for (key, value) in [
        ("bootstrap.servers", "a:1,b:2"),
        ("client.id", "sekali"),
        ("security.protocol", "plaintext"),
        ("test.mock.num.brokers", "3"),
        ("fetch.queue.backoff.ms", "10"),
        ("max.in.flight.requests.per.connection", "5"),
        ("linger.ms", "20"),
        ("enable.idempotence", "true"),
        ("acks", "all"),
        ("partitioner", "murmur2_random"),
        ("compression.type", "zstd"),
        ("message.max.bytes", "2000000"),
        ("batch.size", "500000"),
    ] {
        assert_eq!(config.get(key), Some(value), "{key}");
    }
    assert_eq!(config.get("max.in.flight"), None, "one property must not stand under two names");
    let plain = KafkaSection::new("a:1").producer_config().unwrap();
    for (key, value) in [("linger.ms", Some("5")), ("compression.type", Some("lz4")), ("batch.size", None)] {
        assert_eq!(plain.get(key), value, "{key}");
    }
}

#[test]
fn a_login_needs_its_parts() {
    let half = kafka("brokers = \"a:1\"\nsecurity_protocol = \"sasl_ssl\"\nsasl_mechanism = \"PLAIN\"");
    assert_eq!(problems(&half).len(), 2, "{:?}", problems(&half));
    let none = kafka("brokers = \"a:1\"\nsecurity_protocol = \"sasl_plaintext\"");
    assert!(problems(&none)[0].contains("kafka.sasl_mechanism is not set"));
    let useless = kafka("brokers = \" \"\nsasl_username = \"u\"");
    assert_eq!(problems(&useless).len(), 2);
    let both = kafka(
        "brokers = \"a:1\"\nsecurity_protocol = \"sasl_ssl\"\nsasl_mechanism = \"SCRAM-SHA-256\"\nsasl_username = \"u\"\n\
         sasl_password = \"p\"\nsasl_password_file = \"/f\"",
    );
    assert_eq!(problems(&both), ["kafka.sasl_password and kafka.sasl_password_file are both set: keep one of them"]);
}

#[test]
fn a_login_by_token_or_certificate_needs_its_parts_too() {
    let sasl = "brokers = \"a:1\"\nsecurity_protocol = \"sasl_ssl\"\nsasl_mechanism = \"OAUTHBEARER\"\n";
    let ssl = "brokers = \"a:1\"\nsecurity_protocol = \"ssl\"\n";
    for (text, said) in [
        (format!("{sasl}sasl_username = \"u\"\nsasl_password = \"p\""), "logs in with a token: remove them"),
        (sasl.replace("sasl_ssl", "ssl"), "kafka.sasl_* is set but"),
        ("brokers = \"a:1\"\noauth_token_file = \"/t\"".to_owned(), "kafka.oauth_token_file is set but not used"),
        (format!("{ssl}ssl_certificate_file = \"/c\""), "kafka.ssl_key_file belong together"),
        (format!("{ssl}ssl_key_password = \"hunter2\""), "but kafka.ssl_key_file is not"),
        ("brokers = \"a:1\"\nssl_certificate_file = \"/c\"\nssl_key_file = \"/k\"".to_owned(), "nobody would ask"),
        ("brokers = \"a:1\"\nlinger = \"16m\"\nmessage_bytes_max = 5".to_owned(), "kafka.linger must be"),
        ("brokers = \"a:1\"\nmessage_bytes_max = 5".to_owned(), "kafka.message_bytes_max must be from 1000 to"),
    ] {
        let found = problems(&kafka(&text)).join("; ");
        assert!(found.contains(said) && !found.contains("hunter2"), "{text}: {found}");
    }
    // The program may give a provider after the configuration was read.
    let mut section = kafka(sasl);
    assert_eq!(problems(&section), [""; 0]);
    let error = section.client_config().unwrap_err().chain();
    assert!(error.contains("set kafka.oauth_token_file"), "{error}");
    section.set_tokens(|| Err("none today".into()));
    assert_eq!(section.client_config().unwrap().get("sasl.mechanism"), Some("OAUTHBEARER"));
    assert_eq!(section.causes().token().unwrap().err().unwrap().to_string(), "none today");
    section.set_tokens(|| panic!("hunter2"));
    assert_eq!(section.causes().token().unwrap().err().unwrap().to_string(), "the token provider panicked");
    assert!(KafkaSection::new("a:1").causes().token().is_none());
    let certificate =
        kafka(&format!("{ssl}ssl_certificate_file = \"/c\"\nssl_key_file = \"/k\"\nssl_key_password = \"p\""));
    let config = certificate.client_config().unwrap();
    for (key, value) in [("ssl.certificate.location", "/c"), ("ssl.key.location", "/k"), ("ssl.key.password", "p")] {
        assert_eq!(config.get(key), Some(value));
    }
}

#[test]
fn a_password_file_loses_its_line_end_only() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b" pass word \r\n").unwrap();
    let mut section = KafkaSection::new("a:1");
    section.sasl_password_file = Some(file.path().to_owned());
    assert_eq!(section.client_config().unwrap().get("sasl.password"), Some(" pass word "));
    section.sasl_password_file = Some("/no/such/file".into());
    let error = section.client_config().unwrap_err().chain();
    assert!(error.starts_with("failed to read kafka.sasl_password_file /no/such/file: "), "{error}");
}

#[test]
fn unknown_keys_and_bare_numbers_are_errors() {
    let error = toml::from_str::<KafkaSection>("brokers = \"a:1\"\nbroker = \"b\"").unwrap_err().to_string();
    assert!(error.contains("unknown field `broker`"), "{error}");
    for wrong in ["lease_ttl = 10", "lease_ttl = \"10\"", "lease_ttl = \"soon\""] {
        let error = toml::from_str::<RelaySection>(wrong).unwrap_err().to_string();
        assert!(error.contains("such as \"250ms\", \"5s\" or \"2m\""), "{error}");
    }
    assert!(toml::from_str::<RelaySection>("page_messages_max = 0").is_err());
}

#[test]
fn sections_show_no_secret_and_read_back() {
    let mut section = kafka("brokers = \"a:1\"\nsasl_password = \"hunter2\"\nssl_key_password = \"hunter2\"");
    section.properties =
        [("ssl.keystore.password".to_owned(), "hunter2".to_owned()), ("retry.backoff.ms".to_owned(), "7".to_owned())]
            .into();
    let postgres = PostgresSection {
        url: Some(SecretString::from("postgres://u:hunter2@h/d")),
        password: Some(SecretString::from("hunter2")),
        ..PostgresSection::default()
    };
    let shown =
        format!("{}{}{section:?}{postgres:?}", toml::to_string(&section).unwrap(), toml::to_string(&postgres).unwrap());
    assert!(shown.contains("retry.backoff.ms") && shown.contains(secret::HIDDEN));
    // `Debug` is for developers, but a panic message may print it.
    assert!(!shown.contains("hunter2"), "{shown}");
    let relay: RelaySection = toml::from_str(&toml::to_string(&RelaySection::default()).unwrap()).unwrap();
    assert_eq!(relay, RelaySection::default());
}

#[test]
fn relay_limits_are_checked() {
    let mut problems = Vec::new();
    RelaySection::default().validate(&mut problems);
    assert!(problems.is_empty());
    let wrong = RelaySection {
        lease_ttl: Duration::from_millis(999),
        poll_busy: Duration::ZERO,
        page_messages_max: 50_001.try_into().unwrap(),
        ..RelaySection::default()
    };
    wrong.validate(&mut problems);
    let slow = RelaySection { poll_busy: Duration::from_secs(1), ..RelaySection::default() };
    slow.validate(&mut problems);
    assert_eq!(problems.len(), 4, "{problems:?}");
}

fn postgres(url: &str) -> PostgresSection {
    PostgresSection { url: Some(SecretString::from(url)), ..PostgresSection::default() }
}

#[test]
fn a_connection_has_every_timeout() {
    let mut section = postgres("postgres://u@h1,h2:5433/d?options=-c%20work_mem%3D8MB&target_session_attrs=read-write");
    section.password = Some(SecretString::from("p w"));
    let config = section.connection_config("sekali worker").unwrap();
    let timeouts = "-c statement_timeout=30000 -c lock_timeout=30000 -c idle_in_transaction_session_timeout=35000";
    assert_eq!(config.get_options().unwrap(), format!("-c work_mem=8MB {timeouts}"));
    assert_eq!(config.get_password(), Some(&b"p w"[..]));
    assert_eq!(config.get_application_name(), Some("sekali worker"));
    assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(5)));
    assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(30)));
    assert_eq!(config.get_keepalives_idle(), Duration::from_secs(10));
    assert_eq!(config.get_hosts().len(), 2);
}

#[test]
fn an_unusable_url_is_explained_without_being_shown() {
    for (url, said) in [
        ("postgres://u:hunter2@h/d?sslmode=verify", "sslmode must be disable, prefer, require"),
        ("host=h password=hunter2 sslrootcert=/hunter2", "use postgres.ssl_root_cert_file"),
        ("postgres://u:hunter2@h:port/d", "not a connection url"),
        ("hunter2", "not a connection url"),
        ("user=hunter2", "names no host"),
    ] {
        let mut problems = Vec::new();
        postgres(url).validate(&mut problems);
        assert!(problems.len() == 1 && problems[0].contains(said), "{url}: {problems:?}");
        assert!(!problems[0].contains("hunter2"), "{problems:?}");
    }
    for url in ["postgres://u@h/d?sslmode=disable", "postgres://u@h/d?sslmode=allow", "host=h sslmode=prefer"] {
        let mut problems = Vec::new();
        postgres(url).validate(&mut problems);
        assert!(problems.is_empty(), "{url}: {problems:?}");
    }
    let mut problems = Vec::new();
    PostgresSection { statement_timeout: Duration::ZERO, ..PostgresSection::default() }.validate(&mut problems);
    assert_eq!(problems.len(), 2);
}

#[test]
fn files_for_tls_need_a_mode_that_looks_at_them() {
    let mut section = postgres("postgres://u:hunter2@h/d");
    section.ssl_root_cert_file = Some("/no/such/file".into());
    let mut problems = Vec::new();
    section.validate(&mut problems);
    assert!(problems.len() == 1 && problems[0].contains("add sslmode=verify-full"), "{problems:?}");
    let error = section.pool("test").unwrap_err().chain();
    assert!(error.contains("add sslmode=verify-full") && !error.contains("hunter2"), "{error}");

    section.url = Some("postgres://u@h/d?sslmode=verify-full".into());
    let error = section.pool("test").unwrap_err().chain();
    assert!(error.starts_with("failed to read postgres.ssl_root_cert_file /no/such/file: "), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    section.ssl_root_cert_file = Some(file.path().to_owned());
    let error = section.pool("test").unwrap_err().chain();
    assert!(error.contains("holds no certificate in PEM form"), "{error}");

    section.ssl_cert_file = Some(file.path().to_owned());
    problems.clear();
    section.validate(&mut problems);
    assert_eq!(problems, ["postgres.ssl_cert_file and postgres.ssl_key_file belong together: set both or none"]);
}
