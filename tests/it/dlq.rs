//! Dead letters as an operator sees them: `sekali dlq` as a process, beside a group that works.

mod closing;
mod filters;
mod flow;
mod hold;
mod replay;
mod transfer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sekali_consumer::{Failure, Handler, Message, Reply, Transaction};
use sekali_tests::group::Group;
use sekali_tests::harness::{self, Ended, Outgoing, Process, Program, ended, eventually};

const LIMIT: Duration = Duration::from_secs(60);

/// Fails messages with header `cause` for good until that cause is repaired; counts every effect.
#[derive(Clone, Default)]
pub(crate) struct Repairable {
    pub(crate) stock: Arc<AtomicBool>,
    pub(crate) price: Arc<AtomicBool>,
}

impl Repairable {
    pub(crate) fn repair(&self, cause: &AtomicBool) {
        cause.store(true, Ordering::SeqCst);
    }
}

impl Handler for Repairable {
    async fn handle(&self, message: &Message, tx: &Transaction<'_>) -> Result<Reply, Failure> {
        const INSERT: &str =
            "INSERT INTO effect (key, key_text, attempt, partition, \"offset\") VALUES ($1, $2, $3, $4, $5)";
        let (offset, key) = (message.origin().offset, message.idempotency_key());
        match message.headers().text("cause") {
            Some("stock") if !self.stock.load(Ordering::SeqCst) => {
                return Err(Failure::permanent(format!("no warehouse {offset} has \"{}\"", key.as_str())));
            }
            Some("price") if !self.price.load(Ordering::SeqCst) => {
                return Err(Failure::permanent(format!("a price of -{offset} is none")).with_code("PRICE"));
            }
            Some("slow") => tokio::time::sleep(Duration::from_millis(300)).await,
            _ => {}
        }
        let attempt = i32::try_from(message.attempt()).map_err(Failure::permanent)?;
        tx.execute_cached(INSERT, &[&key.uuid(), &key.as_str(), &attempt, &message.origin().partition, &offset])
            .await?;
        Ok(Reply::done())
    }
}

pub(crate) fn message(key: &str, place: usize, cause: &str) -> Outgoing {
    Outgoing::new(key.to_owned(), format!("{{\"nr\":{place}}}"))
        .id(&format!("{key}:{place}"))
        .header("cause", cause.to_owned())
}

fn environment(group: &Group) -> Vec<(&'static str, String)> {
    vec![
        ("SEKALI_POSTGRES__URL", group.database.url()),
        ("SEKALI_KAFKA__BROKERS", group.kafka.bootstrap().to_owned()),
        ("SEKALI_CONSUMER__GROUP", group.name().to_owned()),
        ("SEKALI_ACTOR", "anna".to_owned()),
    ]
}

/// Runs `sekali dlq` and what follows, with its result as JSON.
async fn dlq(group: &Group, arguments: &[&str]) -> Ended {
    sekali(group, &[&["dlq"], arguments, &["-o", "json"]].concat(), &[]).await
}

/// The same with other environment variables.
async fn sekali(group: &Group, arguments: &[&str], env: &[(&str, &str)]) -> Ended {
    let mut command = harness::sekali(arguments);
    command.envs(environment(group)).envs(env.iter().copied());
    ended(command).await
}

/// Starts `sekali dlq` and does not wait.
fn start(group: &Group, arguments: &[&str]) -> Process {
    let program = Program::of_workspace("sekali").arg("dlq").args(arguments).args(["-o", "json"]);
    environment(group).iter().fold(program, |program, (name, value)| program.env(name, value)).spawn()
}

/// Letters in each state: open, replaying, resolved, discarded.
pub(crate) async fn states(group: &Group) -> [i64; 4] {
    const SQL: &str = "SELECT ARRAY(SELECT (SELECT count(*) FROM sekali.dead_letter WHERE state = it) \
         FROM unnest(ARRAY['open', 'replaying', 'resolved', 'discarded']) WITH ORDINALITY AS of (it, nr) ORDER BY nr)";
    group.database.scalar::<Vec<i64>>(SQL).await.try_into().unwrap()
}

pub(crate) async fn states_become(group: &Group, what: &str, expected: [i64; 4]) {
    eventually(what, 2 * LIMIT, async || match states(group).await {
        found if found == expected => Ok(()),
        found => Err(format!("{found:?} instead of {expected:?}")),
    })
    .await;
}

/// Every effect happened once, and so many of them there are.
pub(crate) async fn once(group: &Group, count: usize) {
    let effects = group.effects().await;
    let twice: Vec<_> = effects.iter().filter(|it| *it.1 != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(effects.len(), count);
}
