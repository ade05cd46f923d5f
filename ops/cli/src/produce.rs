//! `sekali produce`: the lines of a file become records of a topic.

mod client;
mod fields;
mod lines;
mod progress;
mod record;

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use sekali_consumer::config::Needs;
use sekali_producer::OutboundRecord;
use serde::Serialize;

use crate::args::Global;
use crate::commands;
use crate::exit::{Failure, Outcome};
use crate::output;
use client::Client;
use fields::{BadLine, Field};
use lines::{Line, Lines};
use progress::Progress;
use record::Recipe;

/// Bad lines that are kept for the summary; all of them are counted.
const BAD_LINES_SHOWN: usize = 100;

/// Options of `produce`.
#[derive(Debug, Args)]
pub(crate) struct ProduceArgs {
    /// File with one JSON object a line, plain or gzip; "-" reads standard input. Blank lines are passed over.
    file: PathBuf,
    /// Topic to send to. It must exist.
    #[arg(long)]
    topic: String,
    /// Field whose value is the Kafka key: what the event is about. A name, or a JSON Pointer such as /item/sku.
    #[arg(long, value_name = "FIELD", default_value = "sku")]
    key: Field,
    /// Field whose value is the idempotency key.
    #[arg(long, value_name = "FIELD", default_value = "id")]
    id: Field,
    /// Field whose value is the event type.
    #[arg(long = "type", value_name = "FIELD", default_value = "type", conflicts_with = "event_type")]
    type_field: Field,
    /// Event type of every line, instead of a field.
    #[arg(long, value_name = "NAME")]
    event_type: Option<String>,
    /// CloudEvents source of every line, a URI reference.
    #[arg(long, value_name = "URI", default_value = "/sekali/produce")]
    source: String,
    /// What to do at a line that cannot be sent.
    #[arg(long, value_enum, default_value_t = OnError::Stop, value_name = "WHAT")]
    on_error: OnError,
    /// Pass over so many lines first.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Send at most so many lines.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Send every N-th line twice: duplicates to try a consumer with.
    #[arg(long, value_name = "N")]
    repeat_every: Option<NonZeroU64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnError {
    /// Send nothing after it and end with status 1.
    Stop,
    /// Go on, list it at the end and end with status 3.
    Skip,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Summary {
    topic: String,
    /// Records that the broker acknowledged.
    sent: u64,
    /// Lines that could not be sent.
    skipped: u64,
    /// Bytes of the payloads of these records.
    bytes: u64,
    seconds: f64,
    /// The first bad lines.
    bad_lines: VecDeque<BadLineAt>,
}

#[derive(Debug, Serialize)]
struct BadLineAt {
    line: u64,
    problem: String,
}

/// Why reading ended before the end.
enum Stop {
    BadLine(BadLineAt),
    Unreadable(String),
    Refused(Failure),
    Interrupted,
}

pub(crate) async fn run(global: &Global, args: ProduceArgs) -> Result<Outcome, Failure> {
    let config = commands::load(global, Needs::Kafka)?;
    let recipe = Recipe::new(&args)?;
    // The cheapest check first: a wrong file name needs no broker.
    let lines = Lines::open(&args.file).map_err(|error| unreadable(&args, &error))?;
    let client = Client::connect(&config.kafka, &args.topic).await?;
    let lines = lines.bounded(client.bytes_max());
    let interrupted = Arc::new(AtomicBool::new(false));
    let watch = interrupted.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            watch.store(true, Ordering::Relaxed);
        }
    });
    let format = global.output;
    let sending = tokio::task::spawn_blocking(move || Sending::new(args, recipe, client, lines, &interrupted).run());
    let (summary, stop) = sending.await.map_err(|error| Failure::error(format!("produce: {error}")))?;
    output::show(format, &summary, text)?;
    for bad in &summary.bad_lines {
        output::note(&format!("line {} {}", bad.line, bad.problem));
    }
    let sent = summary.sent;
    match stop {
        None if 0 < summary.skipped => Ok(Outcome::Found),
        None => Ok(Outcome::Done),
        Some(Stop::BadLine(bad)) => Err(Failure::error(format!(
            "line {} {}; {sent} records were sent before it and none after it: correct the line and go on with --skip \
             {}, or use --on-error skip",
            bad.line,
            bad.problem,
            bad.line - 1
        ))),
        Some(Stop::Unreadable(why)) => Err(Failure::error(format!("{why}; {sent} records were sent before that"))),
        Some(Stop::Interrupted) => Err(Failure::error(format!("interrupted; {sent} records were sent"))),
        Some(Stop::Refused(failure)) => Err(failure),
    }
}

fn unreadable(args: &ProduceArgs, error: &std::io::Error) -> Failure {
    Failure::error(format!("cannot read {}: {error}; name a readable file of JSON lines", args.file.display()))
}

fn text(summary: &Summary) -> String {
    let rate = summary.sent as f64 / summary.seconds.max(0.001);
    format!(
        "sent {} records ({} bytes) to {} in {:.1} s, {rate:.0} a second; {} bad lines",
        summary.sent, summary.bytes, summary.topic, summary.seconds, summary.skipped
    )
}

struct Sending<'a> {
    args: ProduceArgs,
    recipe: Recipe,
    client: Client,
    lines: Lines,
    interrupted: &'a AtomicBool,
    progress: Progress,
    skipped: u64,
    bad_lines: VecDeque<BadLineAt>,
}

impl<'a> Sending<'a> {
    fn new(
        args: ProduceArgs,
        recipe: Recipe,
        client: Client,
        lines: Lines,
        interrupted: &'a AtomicBool,
    ) -> Sending<'a> {
        let progress = Progress::new(lines.total_bytes());
        Sending { args, recipe, client, lines, interrupted, progress, skipped: 0, bad_lines: VecDeque::new() }
    }

    fn run(mut self) -> (Summary, Option<Stop>) {
        let started = Instant::now();
        let mut stop = self.send_lines().err();
        // Whatever stopped the reading: what was handed over is waited for, so that the numbers are true.
        if let Err(failure) = self.client.finish() {
            stop = Some(Stop::Refused(failure));
        }
        self.progress.end();
        let summary = Summary {
            topic: self.args.topic,
            sent: self.client.acknowledged(),
            skipped: self.skipped,
            bytes: self.client.acknowledged_bytes(),
            seconds: started.elapsed().as_secs_f64(),
            bad_lines: self.bad_lines,
        };
        (summary, stop)
    }

    fn send_lines(&mut self) -> Result<(), Stop> {
        let mut line = Vec::new();
        let mut tried = 0_u64;
        while self.args.limit.is_none_or(|limit| tried < limit) {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Stop::Interrupted);
            }
            let read = self.lines.next(&mut line).map_err(|error| self.broken(&error))?;
            let number = self.lines.number();
            match read {
                Line::End => break,
                Line::Text | Line::TooLong if number <= self.args.skip => continue,
                Line::Text if line.iter().all(u8::is_ascii_whitespace) => continue,
                Line::Text => match self.recipe.record(&line).and_then(|it| self.client.check_size(&it).map(|()| it)) {
                    Ok(record) => self.send(&record, number)?,
                    Err(bad) => self.bad(number, &bad)?,
                },
                Line::TooLong => self.bad(number, &BadLine::TooLong { bytes_max: self.client.bytes_max() })?,
            }
            tried += 1;
            self.progress.at(self.lines.read_bytes(), tried);
        }
        Ok(())
    }

    fn send(&self, record: &OutboundRecord, number: u64) -> Result<(), Stop> {
        self.client.send(record, number).map_err(Stop::Refused)?;
        match self.args.repeat_every {
            Some(every) if number.is_multiple_of(every.get()) => {
                self.client.send(record, number).map_err(Stop::Refused)
            }
            _ => Ok(()),
        }
    }

    fn bad(&mut self, line: u64, bad: &BadLine) -> Result<(), Stop> {
        let at = BadLineAt { line, problem: bad.to_string() };
        self.skipped += 1;
        if self.args.on_error == OnError::Stop {
            return Err(Stop::BadLine(at));
        }
        if self.bad_lines.len() < BAD_LINES_SHOWN {
            self.bad_lines.push_back(at);
        }
        Ok(())
    }

    fn broken(&self, error: &std::io::Error) -> Stop {
        let (file, number) = (self.args.file.display(), self.lines.number());
        Stop::Unreadable(format!("cannot read {file} after line {number}: {error}"))
    }
}
