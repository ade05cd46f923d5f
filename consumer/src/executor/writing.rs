//! What a transaction writes for its messages once their handler has answered.

use deadpool_postgres::ClientWrapper;
use serde_json::Value;
use uuid::Uuid;

use super::Shared;
use crate::Failure;
use crate::batch::{self, Batch, Fate};
use crate::held::{self, HeldBatch};
use crate::postgres::dead_letter;
use crate::postgres::decision::{self, From};
use crate::postgres::hold::{self, Head};
use crate::postgres::inbox;

/// Writes results, decisions and parked messages of a batch. Whether something that was held may run now.
pub(crate) async fn write<H>(
    client: &ClientWrapper,
    shared: &Shared<H>,
    batch: &Batch<'_>,
    written: &mut batch::Outcome<'_>,
) -> Result<bool, Failure> {
    let consumer_id = shared.consumer_id;
    store_results(client, consumer_id, &written.results).await?;
    if !written.parked.is_empty() {
        let parked: Vec<_> = written.parked.iter().map(|it| &it.record.message).collect();
        hold::park(client, consumer_id, &parked).await?;
    }
    if !written.failed.is_empty() {
        let from = if batch.retry { From::Retry } else { From::Source };
        let taken = decision::write(&shared.desk(client), from, &written.failed).await?;
        let mut taken = taken.into_iter();
        for fate in &mut written.fates {
            // Buried before: this is another copy of it.
            if matches!(fate, Fate::Failed(..)) && taken.next() == Some(false) {
                *fate = Fate::Duplicate;
            }
        }
    }
    if !batch.retry {
        return Ok(false);
    }
    let processed = batch.items().iter().zip(&written.fates).filter(|(_, fate)| **fate == Fate::Processed);
    let replayed: Vec<Uuid> = processed.filter_map(|(it, _)| Some(it.record.message.replay()?.letter)).collect();
    dead_letter::resolve(client, &replayed, &shared.worker).await?;
    let ends = |fate: &Fate| match fate {
        Fate::Processed => true,
        Fate::Failed(decision, _) => !shared.rule.holds(*decision),
        Fate::Duplicate | Fate::KeyReuseIgnored | Fate::Held => false,
    };
    let decided = batch.items().iter().zip(&written.fates).filter(|(_, fate)| ends(fate));
    let heads: Vec<Head<'_>> =
        decided.filter_map(|(it, _)| Some((it.record.message.hold_key()?, it.record.message.key()))).collect();
    if heads.is_empty() { Ok(false) } else { Ok(hold::heads_decided(client, consumer_id, &heads).await?) }
}

pub(super) async fn write_held<H>(
    client: &ClientWrapper,
    shared: &Shared<H>,
    batch: &HeldBatch,
    outcome: &held::Outcome<'_>,
) -> Result<(), Failure> {
    let consumer_id = shared.consumer_id;
    store_results(client, consumer_id, &outcome.results).await?;
    if !outcome.failed.is_empty() {
        decision::write(&shared.desk(client), From::Held, &outcome.failed).await?;
    }
    let of = |wanted: fn(&Option<Fate>) -> bool| {
        let chosen = batch.items.iter().zip(&outcome.fates).filter(move |(_, fate)| wanted(fate));
        chosen.map(|(it, _)| it.record.message.key()).collect::<Vec<_>>()
    };
    let processed = of(|it| *it == Some(Fate::Processed));
    hold::remove(client, consumer_id, &batch.decided(&outcome.fates), &processed).await?;
    hold::delete_empty(client, consumer_id, batch.keys()).await?;
    Ok(())
}

pub(crate) async fn store_results(
    client: &ClientWrapper,
    consumer_id: i16,
    results: &[(Uuid, Value)],
) -> Result<(), Failure> {
    if results.is_empty() {
        return Ok(());
    }
    let (keys, values): (Vec<Uuid>, Vec<&Value>) = results.iter().map(|(key, value)| (*key, value)).unzip();
    Ok(inbox::store_results(client, consumer_id, &keys, &values).await?)
}
