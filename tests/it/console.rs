//! The console: `sekali console` as a process, asked over HTTP as a browser or another site would.

mod browser;
mod flows;
mod hostile;
mod login;
mod look;
mod pauses;
mod speed;
mod wire;

use std::time::Duration;

use sekali_tests::group::Group;
use sekali_tests::harness::{Process, Program, TestDatabase, eventually};

use wire::{Answer, Client};

const LIMIT: Duration = Duration::from_secs(60);
const TOKEN: &str = "a token of the tests, long enough";

/// A console of a database.
struct Console {
    process: Process,
    /// Host and port.
    address: String,
}

impl Console {
    /// Starts one with a token, which allows actions; `env` says what else is set.
    async fn start(url: &str, env: &[(&str, &str)]) -> Console {
        let acting = [("SEKALI_CONSOLE__TOKEN", TOKEN), ("SEKALI_CONSOLE__READ_ONLY", "false")];
        Console::with(url, &[&acting, env].concat()).await
    }

    /// Starts one with nothing but these variables.
    async fn with(url: &str, env: &[(&str, &str)]) -> Console {
        let program = Program::of_workspace("sekali").arg("console");
        let program = program.env("SEKALI_POSTGRES__URL", url).env("SEKALI_CONSOLE__LISTEN", "127.0.0.1:0");
        let mut process = env.iter().fold(program, |program, (name, value)| program.env(name, *value)).spawn();
        let mut address = String::new();
        eventually("the console listens", LIMIT, async || {
            let said = process.stderr();
            if let Some(found) = said.split("console on http://").nth(1).and_then(|it| it.split('/').next()) {
                address = found.to_owned();
                return Ok(());
            }
            assert!(process.is_running(), "{said}");
            Err(said)
        })
        .await;
        Console { process, address }
    }

    async fn of(group: &Group, env: &[(&str, &str)]) -> Console {
        Console::start(&group.database.url(), env).await
    }

    /// Somebody who has not logged in.
    fn stranger(&self) -> Client {
        Client::new(&self.address)
    }

    /// A program with the token.
    fn program(&self, name: &str) -> Client {
        self.stranger().header("authorization", &format!("Bearer {TOKEN}")).header("sekali-actor", name)
    }

    /// Somebody who has logged in with the form.
    async fn operator(&self, name: &str) -> Client {
        let stranger = self.stranger();
        let csrf = stranger.get("/login").await.csrf();
        let form = [("csrf", csrf.as_str()), ("name", name), ("token", TOKEN), ("next", "/operations")];
        let answer = stranger.post("/login", &form).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/operations")), "{}", answer.body);
        let cookie = answer.header("set-cookie").expect("a login begins a session").to_owned();
        for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        stranger.header("cookie", cookie.split(';').next().unwrap_or_default())
    }
}

/// Number of the operation that a form has begun.
fn operation(answer: &Answer) -> i64 {
    assert_eq!(answer.status, 303, "{}", answer.body);
    let place = answer.header("location").unwrap_or_default();
    place.strip_prefix("/operations/").and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{place}"))
}

/// Writes dead letters of a consumer without any group: so many, with a payload.
async fn letters(database: &TestDatabase, count: usize, payload: &str) {
    const SQL: &str = "INSERT INTO sekali.dead_letter (id, consumer_id, key, key_text, reason, class, code, message, cause, \
         attempts, origin_topic, origin_partition, origin_offset, resource_key, payload, header_names, header_values, \
         group_fingerprint, first_failed_at, last_failed_at) \
         SELECT (lpad(to_hex(nr), 8, '0') || '-0000-7000-8000-000000000000')::uuid, \
         (SELECT id FROM sekali.consumer WHERE name = 'stock'), gen_random_uuid(), 'key-' || nr, 'permanent', 'permanent', \
         'CODE', 'no warehouse ' || nr, 'no warehouse #', 1, 'stock', nr % 12, nr, convert_to('sku-' || nr % 500, 'UTF8'), \
         convert_to($1, 'UTF8'), '{}', '{}', nr % 40, now() - nr % 1440 * interval '1 minute', \
         now() - nr % 1440 * interval '1 minute' FROM generate_series(1, $2::int) AS nr";
    database.execute("INSERT INTO sekali.consumer (name) VALUES ('stock') ON CONFLICT DO NOTHING").await;
    let count = i32::try_from(count).expect("a test's number of letters");
    let inserted = database.connect().await.execute(SQL, &[&payload, &count]).await;
    inserted.unwrap_or_else(|error| panic!("{error:?}"));
}

/// Id of a letter of [`letters`].
fn id(nr: usize) -> String {
    format!("{nr:08x}-0000-7000-8000-000000000000")
}

async fn open_letters(database: &TestDatabase) -> i64 {
    database.scalar("SELECT count(*) FROM sekali.dead_letter WHERE state = 'open'").await
}
