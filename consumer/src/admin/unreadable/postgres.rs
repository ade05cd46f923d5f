//! Messages that wait in tables.

use sekali_producer::{Error, ErrorKind, SqlError};
use sekali_schemas::{Header, Headers};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::{Place, Tally};
use crate::admin;
use crate::config::Config;

/// Rows that are read at once.
const PAGE_ROWS: i64 = 500;

/// Keyset pages: `$2` is the last id of the page before. Sorted by the column, not by its text.
const DEAD_LETTERS: &str = "SELECT dead_letter.id::text, payload, header_names, header_values FROM sekali.dead_letter \
     JOIN sekali.consumer ON consumer.id = consumer_id \
     WHERE consumer.name = $1 AND state = 'open' AND ($2::text IS NULL OR dead_letter.id > $2::uuid) \
     ORDER BY dead_letter.id LIMIT $3";
const HELD: &str = "SELECT seq::text, payload, header_names, header_values FROM sekali.held_message \
     JOIN sekali.consumer ON consumer.id = consumer_id \
     WHERE consumer.name = $1 AND ($2::text IS NULL OR seq > $2::bigint) ORDER BY held_message.seq LIMIT $3";
/// Rows that are published vanish a little later: those are on their topic as well.
const OUTBOX: &str = "SELECT id::text, payload, header_names, header_values FROM sekali.outbox, sekali.outbox_cursor \
     WHERE topic = ANY ($1) AND NOT pg_visible_in_snapshot(xid, published) \
     AND ($2::text IS NULL OR id > $2::bigint) ORDER BY outbox.id LIMIT $3";

pub(super) async fn read(config: &Config, tally: &mut Tally) -> Result<(), Error> {
    let pool = config.postgres.pool("sekali-schemas")?;
    let client = admin::connect(&pool).await?;
    admin::require_schema(&client).await?;
    let topics = config
        .group_topics()
        .map_err(|error| Error::new(ErrorKind::Config, "name the topics of the group").because(error))?;
    let retry: Vec<String> = topics.topics.into_iter().flat_map(|it| it.retry).map(|it| it.1).collect();
    let name = config.consumer_name();
    pages(&client, Place::DeadLetter, DEAD_LETTERS, (&name, Type::TEXT), tally).await?;
    pages(&client, Place::Held, HELD, (&name, Type::TEXT), tally).await?;
    pages(&client, Place::Outbox, OUTBOX, (&retry, Type::TEXT_ARRAY), tally).await
}

async fn pages(
    client: &Client,
    place: Place,
    sql: &str,
    of: (&(dyn ToSql + Sync), Type),
    tally: &mut Tally,
) -> Result<(), Error> {
    let mut last: Option<String> = None;
    loop {
        let params = [(of.0, of.1.clone()), (&last as &(dyn ToSql + Sync), Type::TEXT), (&PAGE_ROWS, Type::INT8)];
        let rows = client.query_typed(sql, &params).await.map_err(|error| {
            Error::new(ErrorKind::Postgres, "read the messages that wait").because(SqlError::of(&error))
        })?;
        rows.iter().for_each(|row| add(place, row, tally));
        match rows.last() {
            Some(row) if rows.len() as i64 == PAGE_ROWS => last = Some(row.get(0)),
            _ => return Ok(()),
        }
    }
}

fn add(place: Place, row: &Row, tally: &mut Tally) {
    let (names, values): (Vec<&str>, Vec<Option<&[u8]>>) = (row.get(2), row.get(3));
    let headers: Headers = names.iter().zip(values).map(|(name, value)| Header { name, value }).collect();
    tally.add(place, || row.get(0), &headers, row.get(1));
}
