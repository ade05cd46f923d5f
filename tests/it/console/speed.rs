//! A console of a bad day.

use std::time::{Duration, Instant};

use sekali_tests::harness::TestDatabase;

use super::{Console, id, letters};

const MANY: usize = 100_000;
/// Of a page, from the first byte asked to the last byte answered, over TCP, with its figures.
const PAGE_MAX: Duration = Duration::from_millis(100);
/// Asked again for so long: what else runs on the machine is not what is measured.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_open_dead_letters_are_listed_and_grouped_in_a_tenth_of_a_second() {
    let database = TestDatabase::create().await;
    letters(&database, MANY, "{\"nr\":1}").await;
    database.execute("VACUUM ANALYZE sekali.dead_letter").await;
    let console = Console::start(&database.url(), &[]).await;
    let anna = console.operator("anna").await;
    let middle = format!("/messages?state=open&before={}", id(MANY / 2));
    for (path, part) in [
        ("/", "no warehouse #"),
        ("/messages", "100\u{202f}000 dead letters fit"),
        (middle.as_str(), "Older messages"),
        ("/messages?state=open&consumer=stock&topic=stock", "100\u{202f}000 dead letters fit"),
        ("/api/v1/messages?state=open&first=50", "\"next\""),
    ] {
        let mut best = Duration::MAX;
        let first = Instant::now();
        while PAGE_MAX <= best && first.elapsed() < PATIENCE {
            let begin = Instant::now();
            let answer = anna.get(path).await;
            best = best.min(begin.elapsed());
            assert!(answer.status == 200 && answer.body.contains(part), "{path}: {}", answer.body);
        }
        assert!(best < PAGE_MAX, "{path} takes {best:?}");
    }
}
