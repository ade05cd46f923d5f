use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use sekali_consumer::Config;
use sekali_consumer::schemas::Headers;

use super::run::mail_server;
use super::*;

const REQUEST: &str =
    r#"{"email_type":"reminder","user_id":"u-1","period":"2026-11","to":"a@b.test","subject":"s","text":"t"}"#;

fn key(payload: Option<&str>) -> Result<String, KeyError> {
    let headers = Headers::builder().text("idempotency-key", "reminder:u-2:2026-11").build();
    let payload = payload.map(|it| it.to_owned().into());
    let record =
        Record { topic: Arc::from("t"), partition: 0, offset: 7, timestamp_ms: None, key: None, payload, headers };
    key_of(&record).map(|it| it.as_str().to_owned())
}

#[test]
fn a_mail_is_known_by_type_user_and_period_whatever_the_headers_say() {
    assert_eq!(key(Some(REQUEST)).as_deref(), Ok("reminder:u-1:2026-11"));
    assert_eq!(key(Some(&REQUEST.replace("2026-11", "a:b"))).as_deref(), Ok("reminder:u-1:a:b"));
    // These could take the place of another mail.
    assert_eq!(key(Some(&REQUEST.replace("u-1", "u:1"))), Err(KeyError::Unreadable));
    assert_eq!(key(Some(&REQUEST.replace("reminder", "a:b"))), Err(KeyError::Unreadable));
    assert_eq!(key(Some(&REQUEST.replace("u-1", ""))), Err(KeyError::Empty));
    for unreadable in [None, Some("{}"), Some("mail"), Some(r#"{"email_type":1}"#)] {
        assert_eq!(key(unreadable), Err(KeyError::Missing), "{unreadable:?}");
    }
}

#[derive(Parser)]
#[command(args_override_self = true)]
struct Cli {
    #[command(flatten)]
    email: EmailArgs,
}

/// Errors of the arguments, or nothing.
fn start(arguments: &[&str], password: Option<&str>) -> Option<String> {
    let given = ["email", "--smtp-host", "mail.test", "--from", "Shop <shop@example.test>"];
    let cli = Cli::try_parse_from(given.iter().chain(arguments)).unwrap();
    mail_server(&cli.email, password.map(Into::into), Duration::from_secs(60)).err().map(|it| it.chain())
}

#[test]
fn a_password_is_neither_sent_in_the_clear_nor_shown() {
    let user = ["--smtp-user", "shop"];
    assert_eq!(start(&[], None), None);
    assert_eq!(start(&user, Some("hunter2")), None);
    let in_the_clear = start(&["--smtp-user", "shop", "--smtp-tls", "none"], Some("hunter2")).unwrap();
    assert!(in_the_clear.contains("needs TLS") && !in_the_clear.contains("hunter2"), "{in_the_clear}");
    assert!(start(&user, None).unwrap().contains("go together"));
    assert!(start(&[], Some("hunter2")).unwrap().contains("go together"));
    let twice = start(&["--smtp-user", "shop", "--smtp-password-file", "/no/such/file"], Some("hunter2")).unwrap();
    assert!(twice.contains("both set") && !twice.contains("hunter2"), "{twice}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hunter2\n").unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(start(&["--smtp-user", "shop", "--smtp-password-file", path], None), None);
}

#[test]
fn a_mail_ends_before_its_effect_is_cut_off() {
    assert_eq!(start(&["--smtp-timeout-ms", "29999"], None), None);
    for beside in ["0", "30000"] {
        assert!(start(&["--smtp-timeout-ms", beside], None).unwrap().contains("perform_timeout"), "{beside}");
    }
    assert!(start(&["--from", "a@müller.test"], None).is_some());
}

#[test]
fn the_sample_configuration_is_a_valid_one() {
    let config = Config::from_toml(include_str!("../../email.toml")).unwrap();
    assert_eq!((config.consumer_name(), config.consumer.topics.len()), ("email", 1));
}
