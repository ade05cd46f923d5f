//! The command line without any server: what it refuses, how it says so, and with which status.
#![allow(clippy::unwrap_used)] // Also in helpers, which clippy does not count as tests.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use tempfile::TempDir;

struct Bench {
    dir: TempDir,
}

struct Ended {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Bench {
    fn new(config: &str) -> Bench {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("sekali.toml"), config).unwrap();
        Bench { dir }
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, &[], b"")
    }

    fn run_with(&self, arguments: &[&str], env: &[(&str, &str)], stdin: &[u8]) -> Ended {
        let mut command = Command::cargo_bin("sekali").unwrap();
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEKALI_")) {
            command.env_remove(name);
        }
        command.envs(env.iter().copied()).current_dir(self.dir.path()).args(arguments).write_stdin(stdin);
        let output = command.timeout(Duration::from_secs(60)).output().unwrap();
        Ended {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    #[track_caller]
    fn expect(&self, status: i32, texts: &[&str]) {
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is not in\n{}", self.stderr);
        }
        assert_eq!(self.status, status, "{}", self.stderr);
        assert!(self.stdout.is_empty(), "a failure writes no result: {}", self.stdout);
    }
}

fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn config() -> String {
    let (kafka, postgres) = (closed_port(), closed_port());
    format!(
        "[kafka]\nbrokers = \"127.0.0.1:{kafka}\"\n[postgres]\nurl = \"postgres://u:hunter2@127.0.0.1:{postgres}/d\"\n\
         [consumer]\ngroup = \"g\"\ntopics = [\"t\"]\n"
    )
}

#[test]
fn usage_errors_end_with_status_2() {
    let bench = Bench::new(&config());
    for arguments in [
        &["dance"][..],
        &["produce"],
        &["produce", "f.ndjson"],
        &["-o", "xml", "lag"],
        &["produce", "f", "--topic", "t", "--type", "a", "--event-type", "b"],
        &["produce", "f", "--topic", "t", "--repeat-every", "0"],
    ] {
        bench.run(arguments).expect(2, &["try '--help'"]);
    }
    bench.run(&["doctor", "--check", "weather"]).expect(2, &["no check is named \"weather\"", "kafka, topics"]);
    bench.run(&["produce", "f", "--topic", "no good"]).expect(2, &["not a legal topic name"]);
    let help = bench.run(&["--help"]);
    assert!(help.status == 0 && help.stdout.contains("Exit status"), "{}", help.stdout);
    assert_eq!(bench.run(&["--version"]).status, 0);
}

#[test]
fn a_broken_configuration_lists_every_problem() {
    let bench = Bench::new("[kafka]\nbroker = \"x:1\"\n[retry]\njitter = 2\n[consumer]\ntopics = [\"t\"]\n");
    let texts = [
        "5 problems",
        "kafka.broker (sekali.toml): unknown key, did you mean \"brokers\"?",
        "kafka.brokers: is empty",
        "postgres.url: is not set",
        "consumer.group: is required",
        "retry.jitter (sekali.toml): must be 0 to 0.5",
    ];
    bench.run(&["config", "check"]).expect(2, &texts);
    let env = [("SEKALI_RETRY__JITER", "1")];
    let ended = bench.run_with(&["config", "check"], &env, b"");
    ended.expect(2, &["retry.jiter (SEKALI_RETRY__JITER): unknown key, did you mean \"jitter\"?"]);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let bench = Bench::new(&config());
    bench.run(&["--config", "none.toml", "lag"]).expect(2, &["none.toml", "--config", "No such file"]);
    let env = [("SEKALI_CONFIG", "nowhere.toml")];
    bench.run_with(&["lag"], &env, b"").expect(2, &["nowhere.toml"]);
    bench.run(&["produce", "none.ndjson", "--topic", "t"]).expect(1, &["cannot read none.ndjson"]);
    bench.run(&["produce", ".", "--topic", "t"]).expect(1, &["cannot read .:", "directory"]);
    let env = [("SEKALI_POSTGRES__PASSWORD_FILE", "none.secret")];
    bench.run_with(&["migrate"], &env, b"").expect(2, &["postgres.password", "none.secret"]);
}

#[test]
fn without_a_file_the_environment_is_enough() {
    let dir = TempDir::new().unwrap();
    let bench = Bench { dir };
    bench.run(&["config", "check"]).expect(2, &["kafka.brokers", "postgres.url", "consumer.group", "consumer.topics"]);
    let env = [
        ("SEKALI_KAFKA__BROKERS", "b:1"),
        ("SEKALI_POSTGRES__URL", "postgres://u@h/d"),
        ("SEKALI_CONSUMER__GROUP", "g"),
        ("SEKALI_CONSUMER__TOPICS", "[\"t\"]"),
    ];
    let ended = bench.run_with(&["config", "check"], &env, b"");
    assert_eq!((ended.status, ended.stdout.as_str()), (0, "the environment is usable; there is no file\n"));
}

#[test]
fn the_printed_configuration_is_complete_and_has_no_secrets() {
    let bench = Bench::new(&config());
    let ended = bench.run(&["config", "print"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    assert!(!ended.stdout.contains("hunter2") && ended.stdout.contains("url = \"***\""), "{}", ended.stdout);
    let printed: toml::Table = ended.stdout.parse().unwrap();
    assert_eq!(printed["consumer"]["executors"].as_integer(), Some(2));
    assert_eq!(printed["retry"]["delays"].as_array().unwrap().len(), 5);
    let defaults = bench.run(&["config", "print", "--defaults"]);
    assert!(
        defaults.stdout.contains("brokers = \"\"") && defaults.stdout.contains("\n# name =\n"),
        "{}",
        defaults.stdout
    );
    let json: serde_json::Value = serde_json::from_str(&bench.run(&["-o", "json", "config", "print"]).stdout).unwrap();
    assert_eq!(json["inbox"]["retention"], "9days");
}

#[test]
fn servers_that_do_not_answer_are_noticed_within_seconds() {
    let bench = Bench::new(&config());
    fs::write(bench.dir.path().join("f.ndjson"), "{\"id\":\"1\",\"sku\":\"a\",\"type\":\"t\"}\n").unwrap();
    let commands = [&["topics", "plan"][..], &["topics", "apply"], &["lag"], &["produce", "f.ndjson", "--topic", "t"]];
    std::thread::scope(|scope| {
        for arguments in commands {
            let bench = &bench;
            scope.spawn(move || {
                let started = Instant::now();
                bench.run(arguments).expect(1, &["failed to reach kafka", "check kafka.brokers"]);
                assert!(started.elapsed() < Duration::from_secs(20), "{arguments:?} took {:?}", started.elapsed());
            });
        }
    });
    let ended = bench.run(&["migrate"]);
    ended.expect(1, &["failed to reach postgresql", "check postgres.url"]);
    assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
}

#[test]
fn the_doctor_reports_what_it_could_not_look_at() {
    let bench = Bench::new(&config());
    let ended = bench.run(&["doctor", "-o", "json"]);
    assert_eq!(ended.status, 3, "{}", ended.stderr);
    let checks: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let status = |name: &str| {
        let found = checks.as_array().unwrap().iter().find(|it| it["name"] == name);
        found.unwrap_or_else(|| panic!("no check {name}"))["status"].as_str().unwrap().to_owned()
    };
    assert_eq!((status("kafka").as_str(), status("postgres").as_str()), ("fail", "fail"));
    for name in
        ["topics", "retention", "schema", "permissions", "clock", "connections", "durability", "outbox", "relay"]
    {
        assert_eq!(status(name), "skipped", "{name}");
    }
    let one = bench.run(&["doctor", "--check", "schema"]);
    assert_eq!((one.status, one.stdout.lines().count()), (3, 2), "{}", one.stdout);
}

#[test]
fn completions_are_printed_for_every_shell() {
    let bench = Bench::new("");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = bench.run(&["completions", shell]);
        assert!(ended.status == 0 && ended.stdout.contains("migrate"), "{shell}: {}", ended.stderr);
    }
}

/// Answers requests, one after the other, with these status lines and bodies.
fn answering(answers: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            // Up to the empty line behind the headers: closing on something unread would reset the connection.
            let request = BufReader::new(stream.try_clone().unwrap());
            let headers = request.lines().map(Result::unwrap).take_while(|it| !it.is_empty()).count();
            assert!(0 < headers, "a request has a first line");
            let length = body.len();
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").unwrap();
        }
    });
    format!("http://{address}/readyz")
}

#[test]
fn health_is_what_the_process_answers() {
    let bench = Bench::new("");
    let url = answering(&[("200 OK", "ok\n"), ("503 Service Unavailable", "the database is away\nmore\n")]);
    let well = bench.run(&["health", "--url", &url]);
    assert_eq!((well.status, well.stdout.as_str(), well.stderr.as_str()), (0, "ok\n", ""));
    // By the variable, as an image sets it, and past a proxy of the environment.
    let env = [("SEKALI_HEALTH_URL", url.as_str()), ("http_proxy", "http://127.0.0.1:1")];
    let unready = bench.run_with(&["health"], &env, b"");
    unready.expect(1, &["/readyz answers 503: the database is away\n"]);
}

#[test]
fn health_of_what_does_not_answer_is_bad_and_does_not_hang() {
    let bench = Bench::new("");
    let url = format!("http://127.0.0.1:{}/readyz", closed_port());
    bench.run(&["health", "--url", &url]).expect(1, &["does not answer", "admin.listen"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/readyz", silent.local_addr().unwrap());
    let started = Instant::now();
    bench.run(&["health", "--url", &url, "--timeout", "300ms"]).expect(1, &["does not answer within 300ms"]);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
