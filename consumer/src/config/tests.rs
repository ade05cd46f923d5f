use std::ffi::OsString;
use std::io::Write;

use super::*;

const MINIMAL: &str = r#"
    [kafka]
    brokers = "localhost:9092"
    [postgres]
    url = "postgres://u@localhost/d"
    [consumer]
    group = "stock"
    topics = ["stock.adjusted"]
"#;

/// The minimal configuration with more lines for some sections.
fn with(sections: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let mut text = MINIMAL.to_owned();
    for (section, lines) in sections {
        let head = format!("[{section}]");
        if text.contains(&head) {
            text = text.replace(&head, &format!("{head}\n{lines}"));
        } else {
            text.push_str(&format!("{head}\n{lines}\n"));
        }
    }
    problems(Config::from_toml(&text))
}

fn with_env(text: &str, needs: Needs, env: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let mut found = Problems::default();
    let mut given = Given::default();
    given.add_toml("sekali.toml", text, &mut found);
    given.add_env(env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))), &mut found);
    problems(Config::of(given, needs, found))
}

fn problems(result: Result<Config, Error>) -> Result<Config, Vec<String>> {
    result.map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::Config);
        let source = std::error::Error::source(&error).unwrap();
        source.downcast_ref::<Problems>().unwrap().list.iter().map(ToString::to_string).collect()
    })
}

#[test]
fn the_minimal_file_has_the_documented_defaults() {
    let config = with(&[]).unwrap();
    assert_eq!((config.consumer_name(), config.max_attempts()), ("stock", 6));
    // 2 + 8 + 30 + 120 + 300 seconds, 10 % more, and an hour of taken locks.
    assert_eq!(config.retry_path_max(), Duration::from_secs(506 + 3600));
    let topics = config.group_topics().unwrap().topics;
    assert_eq!(topics[0].retry[4].1, "stock.adjusted.stock.retry.5m");
    assert_eq!(topics[0].dlq, "stock.adjusted.stock.dlq");
    let (group, topics) = ("stock".to_owned(), vec!["stock.adjusted".to_owned()]);
    let defaults = ConsumerSection { group, topics, ..ConsumerSection::default() };
    assert_eq!(config.consumer, defaults);
    assert_eq!(config.retry, RetrySection::default());
    assert_eq!(config.kafka.message_bytes_max.unwrap().get(), 1_048_576 + 65_536);
}

#[test]
fn every_problem_is_reported_at_once_with_its_key_and_place() {
    let text = r#"
        typo = 1
        [kafka]
        broker = "localhost:9092"
        [consumer]
        group = "stock"
        topics = "stock"
        executors = 0
        group_protocol = "new"
        handler_timeout = "soon"
        batch_messages_max = 100
        buffer_messages_max = 150
        [retry]
        delays = ["8s", "2s"]
        jitter = 0.9
        max_attempts = 40000
        [admin]
        listen = "here"
        [log]
        filter = "info,=debug=x"
    "#;
    let env = [("SEKALI_INBOX__RETENTION", "7d"), ("SEKALI_CONSUMR__GROUP", "x"), ("SEKALI_OTHER", "not ours")];
    let found = with_env(text, Needs::Everything, &env).unwrap_err();
    let expected = [
        "typo (sekali.toml): unknown section",
        "consumr (SEKALI_CONSUMR__GROUP): unknown section, did you mean \"consumer\"?",
        "kafka.broker (sekali.toml): unknown key, did you mean \"brokers\"?",
        "consumer.executors (sekali.toml): expected a whole number of at least 1",
        "consumer.group_protocol (sekali.toml): must be one of \"classic\", \"consumer\"",
        "consumer.handler_timeout (sekali.toml): expected a duration with its unit",
        "consumer.topics (sekali.toml): expected a list such as [\"first\", \"second\"], found a text",
        "admin.listen (sekali.toml): is not an address and port",
        "kafka.brokers: is empty",
        "postgres.url: is not set",
        "consumer.topics (sekali.toml): is required",
        "consumer.buffer_messages_max (sekali.toml): must be at least twice consumer.batch_messages_max",
        "retry.delays (sekali.toml): must not get shorter: 2s follows 8s",
        "retry.max_attempts (sekali.toml): must be at most 32767, is 40000",
        "retry.jitter (sekali.toml): must be 0 to 0.5, is 0.9",
        "inbox.retention (SEKALI_INBOX__RETENTION): is 7days, but topics keep records for 7days",
        "log.filter (sekali.toml): is not a filter",
    ];
    for expected in expected {
        assert!(found.iter().any(|it| it.starts_with(expected)), "{expected}\nin\n{}", found.join("\n"));
    }
    assert_eq!(found.len(), expected.len(), "{}", found.join("\n"));
}

#[test]
fn values_that_do_not_fit_together_are_refused() {
    for (section, lines, expected) in [
        ("consumer", "drain_timeout = \"150s\"", "consumer.drain_timeout (text): must be shorter than half"),
        ("consumer", "handler_timeout = \"5m\"", "consumer.handler_timeout (text): must be shorter than"),
        ("consumer", "session_timeout = \"6m\"", "consumer.session_timeout (text): must not exceed"),
        ("consumer", "max_poll_interval = \"45s\"", "consumer.drain_timeout: must be shorter than half"),
        ("consumer", "executors = 6", "postgres.pool_max_connections: must be at least consumer.executors + 4 = 10"),
        ("consumer", "handler_timeout = \"31s\"", "postgres.statement_timeout: must be at least"),
        (
            "consumer",
            "order = \"none\"\nafter_dead_letter = \"hold\"",
            "consumer.after_dead_letter (text): is \"hold\", which needs",
        ),
        ("consumer", "held_messages_max = 10", "consumer.held_messages_max (text): must be at least"),
        ("consumer", "stall_timeout = \"10ms\"", "consumer.stall_timeout (text): must be at least 1s"),
        ("consumer", "name = \"\"", "consumer.name (text): must not be empty"),
        ("postgres", "statement_timeout = \"5m\"", "postgres.statement_timeout (text): must be shorter than"),
        ("retry", "delays = []\nmax_attempts = 2", "retry.delays (text): 2 attempts need at least one delay"),
        ("retry", "delays = [\"1500us\"]", "retry.delays (text): each must be a whole number of milliseconds"),
        ("retry", "jitter = nan", "retry.jitter (text): must be 0 to 0.5"),
        ("topics", "retry_retention = \"9m\"", "topics.retry_retention (text): must be at least twice"),
        ("topics", "source_retention = \"30d\"", "inbox.retention: is 9days, but topics keep records for 30days"),
        ("topics", "retry_template = \"{topic}.{group}\"", "topics.retry_template (text): template"),
        ("topics", "dlq_template = \"dlq\"", "topics.dlq_template (text): template"),
        ("relay", "lease_ttl = \"10ms\"", "relay.lease_ttl (text): must be at least 1s"),
        ("kafka", "properties = { \"group.id\" = \"x\" }", "kafka.properties"),
        ("kafka", "message_bytes_max = 1000", "kafka.message_bytes_max"),
        ("kafka", "security_protocol = \"sasl_ssl\"", "kafka.sasl_mechanism: is not set"),
    ] {
        let found = with(&[(section, lines)]).unwrap_err();
        assert!(found.iter().any(|it| it.starts_with(expected)), "{lines}: {expected}\nin\n{}", found.join("\n"));
    }
    let cycle = Config::from_toml(&MINIMAL.replace("stock.adjusted", "stock.adjusted\", \"stock.adjusted.stock.dlq"));
    assert!(problems(cycle).unwrap_err()[0].contains("cycle"));
    let illegal = Config::from_toml(&MINIMAL.replace("\"stock\"", "\"stock group\""));
    assert!(problems(illegal).unwrap_err()[0].contains("not a legal topic name"));
}

#[test]
fn the_new_group_protocol_refuses_a_session_timeout_that_was_given() {
    with(&[("consumer", "group_protocol = \"consumer\"")]).unwrap();
    let both = "group_protocol = \"consumer\"\nsession_timeout = \"45s\"";
    let found = with(&[("consumer", both)]).unwrap_err();
    assert!(found[0].starts_with("consumer.session_timeout (text): does not exist with"), "{found:?}");
}

#[test]
fn no_retries_at_all_is_a_policy() {
    let config = with(&[("retry", "delays = []")]).unwrap();
    assert_eq!((config.max_attempts(), config.group_topics().unwrap().topics[0].retry.len()), (1, 0));
    assert_eq!(config.retry_path_max(), config.retry.contended_age_max);
}

#[test]
fn the_retry_path_counts_reused_tiers_and_never_overflows() {
    let config = with(&[("retry", "delays = [\"1s\", \"10s\"]\nmax_attempts = 5\njitter = 0.5")]).unwrap();
    // 1 + 10 + 10 + 10, half as much again.
    assert_eq!(config.retry_path_max(), Duration::from_millis(46_500) + Duration::from_secs(3600));
    let fewer = with(&[("retry", "delays = [\"1s\", \"10s\"]\nmax_attempts = 2\njitter = 0.0")]).unwrap();
    assert_eq!(fewer.retry_path_max(), Duration::from_secs(3601));
    let mut huge = config;
    huge.retry.delays = vec![Duration::MAX; 3];
    assert_eq!(huge.retry_path_max(), Duration::MAX);
}

#[test]
fn the_environment_overrides_the_file_and_reads_what_the_key_expects() {
    let env = [
        ("SEKALI_CONSUMER__GROUP", "12345"),
        ("SEKALI_CONSUMER__TOPICS", "[\"a\", \"b\"]"),
        ("SEKALI_CONSUMER__EXECUTORS", "3"),
        ("SEKALI_CONSUMER__DRAIN_TIMEOUT", "5s"),
        ("SEKALI_RETRY__DELAYS", "['1s', '2s']"),
        ("SEKALI_RETRY__JITTER", "0"),
        ("SEKALI_RELAY__EMBEDDED", "false"),
        ("SEKALI_POSTGRES__PASSWORD", "0123"),
        ("SEKALI_ADMIN__LISTEN", "none"),
        ("SEKALI_KAFKA__PROPERTIES__SOCKET_KEEPALIVE_ENABLE", "true"),
    ];
    let config = with_env(MINIMAL, Needs::Everything, &env).unwrap();
    assert_eq!(config.consumer.group, "12345");
    assert_eq!(config.consumer.topics, ["a", "b"]);
    assert_eq!((config.consumer.executors.get(), config.consumer.drain_timeout), (3, Duration::from_secs(5)));
    assert_eq!((config.retry.delays.len(), config.retry.jitter, config.relay.embedded), (2, 0.0, false));
    assert!(config.postgres.password.is_some() && config.admin.listen.is_none());
    assert_eq!(config.kafka.properties["socket.keepalive.enable"], "true");
}

#[test]
fn a_secret_in_a_file_replaces_the_one_in_the_configuration() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "from the file").unwrap();
    let text = MINIMAL.replace("[postgres]", "[postgres]\npassword = \"from the text\"");
    let path = file.path().to_str().unwrap();
    let config = with_env(&text, Needs::Everything, &[("SEKALI_POSTGRES__PASSWORD_FILE", path)]).unwrap();
    let connection = config.postgres.connection_config("test").unwrap();
    assert_eq!(connection.get_password(), Some(&b"from the file"[..]));
    let both = [("SEKALI_POSTGRES__PASSWORD_FILE", path), ("SEKALI_POSTGRES__PASSWORD", "x")];
    let found = with_env(MINIMAL, Needs::Everything, &both).unwrap_err();
    assert!(found[0].contains("keep one of them"), "{found:?}");
}

#[test]
fn a_program_is_asked_only_for_the_sections_that_it_needs() {
    let kafka = "[kafka]\nbrokers = \"b:1\"";
    with_env(kafka, Needs::Kafka, &[]).unwrap();
    assert!(with_env(kafka, Needs::Postgres, &[]).unwrap_err()[0].starts_with("postgres.url"));
    assert!(with_env(kafka, Needs::Group, &[]).unwrap_err()[0].starts_with("consumer.group"));
    with_env("", Needs::Nothing, &[]).unwrap();
    let found = with_env("[retry]\njitter = 3", Needs::Kafka, &[]).unwrap_err();
    assert!(found.iter().any(|it| it.starts_with("retry.jitter")), "what is given is checked: {found:?}");
}

#[test]
fn neither_problems_nor_the_printed_form_show_secrets() {
    const SECRET: &str = "hunter2";
    let secrets = format!(
        "[kafka]\nbrokers = \"b:1\"\nsecurity_protocol = \"sasl_ssl\"\nsasl_mechanism = \"PLAIN\"\n\
         sasl_username = \"u\"\nsasl_password = \"{SECRET}\"\n\
         properties = {{ \"ssl.keystore.password\" = \"{SECRET}\" }}\n\
         [postgres]\nurl = \"postgres://u:{SECRET}@h/d\"\n[consumer]\ngroup = \"g\"\ntopics = [\"t\"]"
    );
    let config = Config::from_toml(&secrets).unwrap();
    assert!(!config.print().contains(SECRET) && config.print().contains("***"), "{}", config.print());
    assert!(!format!("{config:?}").contains(SECRET));
    for wrong in [
        format!("[postgres]\npassword = [\"{SECRET}\"]"),
        format!("[postgres]\nurl = \"{SECRET}\""),
        format!("[kafka]\nsasl_password = {{ {SECRET} = 1 }}"),
        format!("[kafka]\nsasl_password = \"{SECRET}"),
        format!("[kafka]\nsasl_password = {SECRET}"),
    ] {
        let error = Config::from_toml(&wrong).unwrap_err();
        assert!(!error.chain().contains(SECRET), "{}", error.chain());
    }
}

#[test]
fn syntax_errors_name_the_line() {
    let found = with_env("[kafka]\nbrokers = \n", Needs::Nothing, &[]).unwrap_err();
    assert!(found[0].starts_with("syntax (sekali.toml line 2): not TOML: "), "{found:?}");
    let found = with_env("kafka = 1", Needs::Nothing, &[]).unwrap_err();
    assert!(found[0].contains("is a section"), "{found:?}");
}

#[test]
fn retention_may_last_forever_and_then_outlives_every_topic() {
    let endless = ("topics", "source_retention = \"3000d\"");
    assert!(with(&[endless]).unwrap_err()[0].starts_with("inbox.retention"));
    let config = with(&[endless, ("inbox", "retention = \"forever\"")]).unwrap();
    assert_eq!(config.inbox.retention, None);
    assert!(config.print().contains("retention = \"forever\"\n"), "{}", config.print());
    let variable = with_env(MINIMAL, Needs::Everything, &[("SEKALI_INBOX__RETENTION", "forever")]).unwrap();
    assert_eq!(variable.inbox.retention, None);
    let found = with(&[("inbox", "retention = \"never\"")]).unwrap_err();
    assert!(found[0].starts_with("inbox.retention (text): expected a duration with its unit"), "{found:?}");
}

#[test]
fn every_problem_of_schemas_and_registry_is_found() {
    let found = with(&[
        ("schemas", "directory = \"/no/such/place\"\nconsume = \"sometimes\""),
        ("registry", "url = \"https://user:secret@host\"\nuser = \"u\"\nsubject = \"all\"\ntimeout = \"0s\""),
    ]);
    let found = found.unwrap_err();
    for key in [
        "schemas.consume",
        "schemas.directory",
        "registry.url",
        "registry.user",
        "registry.subject",
        "registry.timeout",
    ] {
        assert!(found.iter().any(|it| it.starts_with(&format!("{key} (text)"))), "{key}: {found:#?}");
    }
    assert!(found.len() == 6 && !found.iter().any(|it| it.contains("secret")), "{found:#?}");
}

#[test]
fn what_is_printed_can_be_read_back() {
    let config = with(&[("retry", "max_attempts = 9"), ("kafka", "properties = { \"socket.timeout.ms\" = \"9\" }")]);
    let config = config.unwrap();
    let printed = config.print();
    let again = Config::from_toml(&printed.replace("url = \"***\"", "url = \"postgres://u@localhost/d\"")).unwrap();
    assert_eq!(again.consumer, config.consumer);
    assert_eq!(again.retry, config.retry);
    assert_eq!(again.topics, config.topics);
    assert_eq!(again.kafka.properties, config.kafka.properties);
    assert!(printed.lines().all(|it| it.len() <= 120), "{printed}");
    Config::print_defaults().parse::<toml::Table>().unwrap();
}

#[test]
fn every_key_of_every_section_is_explained() {
    fn known<S: serde::de::DeserializeOwned>() -> Vec<String> {
        let unknown = figment::value::Dict::from([("no such key".to_owned(), figment::value::Value::from(1))]);
        match figment::value::Value::from(unknown).deserialize::<S>().err().unwrap().kind {
            figment::error::Kind::UnknownField(_, known) => known.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }
    for (docs, known) in [
        (print::foreign::KAFKA, known::<KafkaSection>()),
        (print::foreign::POSTGRES, known::<PostgresSection>()),
        (print::foreign::RELAY, known::<RelaySection>()),
        (print::foreign::SCHEMAS, known::<SchemasSection>()),
        (print::foreign::REGISTRY, known::<RegistrySection>()),
        (ConsumerSection::DOCS, known::<ConsumerSection>()),
    ] {
        let explained: Vec<&str> = docs.keys.iter().filter(|it| !it.1.is_empty()).map(|it| it.0).collect();
        assert_eq!(explained, known);
    }
}
