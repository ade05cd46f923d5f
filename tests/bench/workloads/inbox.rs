//! W6: what the inbox costs when it is large already.

use sekali_benchmark::Program;
use sekali_benchmark::load::{Keys, Load, Shape};
use sekali_benchmark::report::Row;
use sekali_benchmark::run::{Measured, Run};
use sekali_benchmark::stage::Scratch;
use sekali_benchmark::targets::{Target, median_ratio};

use crate::PARTITIONS;
use crate::bench::{Bench, say};

const WORKLOAD: &str = "W6";
const ROUNDS: usize = 2;
const CONSUMER: &str = "large";
const MILLION: i64 = 1_000_000;

/// Keys and rows that are there, and the goals for 1 and for 10 million beside none.
const KINDS: [(&str, Keys, [f64; 2]); 2] =
    [("version 7", Keys::Ordered, [0.95, 0.90]), ("random", Keys::Random, [0.75, 0.60])];

pub(super) async fn run(bench: &mut Bench) -> Result<(), anyhow::Error> {
    let events = bench.options.events;
    let sizes: &[i64] = if bench.options.large { &[0, MILLION, 10 * MILLION] } else { &[0, MILLION] };
    for (name, keys, goals) in KINDS {
        let load = Load::new(Shape { keys, ..Shape::new(events) });
        let topic = bench.topic(&load, PARTITIONS).await?;
        let case = |rows: &i64| format!("{name} keys, {} M rows", rows / MILLION);
        let mut rows: Vec<Row> = sizes.iter().map(|it| Row::new(WORKLOAD, case(it), Program::M1, events)).collect();
        for _ in 0..bench.options.rounds_at_most(ROUNDS) {
            for (row, size) in rows.iter_mut().zip(sizes) {
                let measured = run_on(bench, &load, &topic, keys, *size).await?;
                say(&row.case, Program::M1, &measured);
                row.runs.push(measured);
            }
        }
        for (row, goal) in rows[1..].iter().zip(goals) {
            let what = format!("{} by an empty inbox", row.case);
            let ratio = median_ratio(&row.rates(), &rows[0].rates());
            bench.report.targets.push(Target::at_least("T12", what, ratio, goal));
        }
        if keys == Keys::Ordered {
            let wal = rows[1].spread(|it| it.wal_bytes_per_event).median;
            bench.report.targets.push(Target::at_most("T12", "WAL bytes an event, version 7 keys", wal, 400.0));
        }
        bench.report.rows.extend(rows);
    }
    Ok(())
}

async fn run_on(bench: &Bench, load: &Load, topic: &str, keys: Keys, rows: i64) -> Result<Measured, anyhow::Error> {
    let scratch = bench.stage().scratch().await?;
    fill(&scratch, keys, rows).await?;
    let mut run = Run::new(Program::M1, load, topic, PARTITIONS);
    run.settings.name = Some(CONSUMER.to_owned());
    let measured = run.on(bench.stage(), &scratch).await;
    scratch.remove(bench.stage()).await?;
    measured
}

/// Rows as the consumer would have left them; keys of version 7 are older than those of the load.
async fn fill(scratch: &Scratch, keys: Keys, rows: i64) -> Result<(), anyhow::Error> {
    let key = match keys {
        Keys::Ordered => {
            "(lpad(to_hex(1290000000000 + n / 4), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || \
             '8' || substr(md5(n::text), 1, 15))::uuid"
        }
        Keys::Random => "gen_random_uuid()",
    };
    scratch.client.execute("INSERT INTO sekali.consumer (name) VALUES ($1)", &[&CONSUMER]).await?;
    let sql = format!(
        "INSERT INTO sekali.inbox (key, fingerprint, consumer_id, state, attempt) \
         SELECT {key}, n, (SELECT id FROM sekali.consumer WHERE name = $1), 1, 1 FROM generate_series(1, $2::bigint) AS n"
    );
    scratch.client.execute(&sql, &[&CONSUMER, &rows]).await?;
    Ok(scratch.client.batch_execute("VACUUM ANALYZE sekali.inbox").await?)
}
