//! One transaction of an operation: its next letters, judged under locks and changed together.

use std::collections::HashMap;

use deadpool_postgres::ClientWrapper;
use uuid::Uuid;

use super::letter::{self, Locked, RowKey};
use super::run::Claimed;
use super::write::{self, Decided};
use crate::core::operator::{Change, Told, decide};
use crate::core::verdict::Row;
use crate::executor::seal_and_commit;

type Error = tokio_postgres::Error;

/// What a transaction came to.
pub(super) enum Step {
    /// It was the turn of so many letters.
    Did(u64),
    /// Somebody else was faster: nothing is changed, and it is to be tried again.
    Again,
    /// There is nothing more to do.
    Done,
    /// The operation was cancelled, or another process has it.
    NotOurs,
}

/// The operation's row stays locked to the end: who cancels it waits, and who carries it out is alone.
const KEEP: &str = "UPDATE sekali.operation SET until = clock_timestamp() + $3 * interval '1 ms' \
     WHERE id = $1 AND owner = $2 AND state = 'running'";
const NEXT: &str = "SELECT nr, dead_letter_id FROM sekali.operation_item WHERE operation_id = $1 AND outcome IS NULL \
     ORDER BY nr LIMIT $2";
const END: &str = "UPDATE sekali.operation SET state = 'done', ended_at = now(), owner = NULL WHERE id = $1";

pub(super) async fn run(client: &ClientWrapper, claimed: &Claimed, size: u32) -> Result<Step, Error> {
    client.batch_execute("BEGIN").await?;
    if client.execute(KEEP, &[&claimed.id, &claimed.owner, &claimed.ttl_ms]).await? == 0 {
        client.batch_execute("ROLLBACK").await?;
        return Ok(Step::NotOurs);
    }
    let next = client.prepare_cached(NEXT).await?;
    let rows = client.query(&next, &[&claimed.id, &i64::from(size)]).await?;
    let items: Vec<(i32, Uuid)> = rows.iter().map(|it| (it.get(0), it.get(1))).collect();
    if items.is_empty() {
        client.execute(END, &[&claimed.id]).await?;
        seal_and_commit(client).await?;
        return Ok(Step::Done);
    }
    let ids: Vec<Uuid> = items.iter().map(|it| it.1).collect();
    let mut inbox = letter::lock_rows(client, &ids).await?;
    let letters = letter::lock(client, &ids).await?;
    let decided = judge(claimed, &items, &letters, &mut inbox);
    if !write::write(client, claimed, &decided).await? {
        client.batch_execute("ROLLBACK").await?;
        return Ok(Step::Again);
    }
    seal_and_commit(client).await?;
    Ok(Step::Did(items.len() as u64))
}

/// Judges letters in their order; one sees what those before it changed in the inbox.
fn judge<'a>(
    claimed: &Claimed,
    items: &[(i32, Uuid)],
    letters: &'a HashMap<Uuid, Locked>,
    inbox: &mut HashMap<RowKey, Row>,
) -> Vec<Decided<'a>> {
    let mut decided = Vec::with_capacity(items.len());
    for (nr, id) in items {
        let Some(locked) = letters.get(id) else {
            decided.push(Decided {
                nr: *nr,
                id: *id,
                locked: None,
                had_row: false,
                change: Err(Told::Gone),
                record: None,
            });
            continue;
        };
        let row = inbox.get(&locked.row_key()).copied();
        let mut change = decide(claimed.act, locked.letter, row, claimed.bounds);
        let mut record = None;
        if let Ok(Change { publish: true, row, .. }) = change {
            record = locked.record(row.map_or(1, |it| it.1));
            if record.is_none() {
                change = Err(Told::NoRoute);
            }
        }
        if let Ok(Change { row: Some((state, attempt)), .. }) = change {
            let fingerprint = row.map_or(0, |it| it.fingerprint);
            inbox.insert(locked.row_key(), Row { state, attempt, fingerprint });
        }
        decided.push(Decided { nr: *nr, id: *id, locked: Some(locked), had_row: row.is_some(), change, record });
    }
    decided
}
