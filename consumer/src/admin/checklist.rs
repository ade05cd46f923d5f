//! The checklist of production for consumers that must not count twice, held against the running deployment.

mod database;
mod measured;
mod records;
mod sample;

use deadpool_postgres::Pool;
use sekali_producer::Error;
use serde::Serialize;

use super::kafka::Cluster;
use super::{postgres, require_schema, topics};
use crate::config::{Config, Order};

pub use measured::{Measured, Prometheus};

/// How a point stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Works, and will hurt one day; or nobody can tell.
    Warning,
    /// Loses messages, counts twice, or stops one day.
    Failure,
}

impl Verdict {
    /// In lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failure => "failure",
        }
    }
}

/// One of the ten points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Point {
    /// 1 to 10.
    pub number: u8,
    /// What is to be.
    pub name: &'static str,
    /// The worst of what was found.
    pub verdict: Verdict,
    /// What was found, with numbers.
    pub figure: String,
    /// What to do about it; empty when there is nothing to do.
    pub remedy: String,
}

/// What is to be, in the order of the numbers.
pub const NAMES: [&str; 10] = [
    "keys are stable and business-made",
    "deduplication is durable",
    "failures are classified",
    "backoff and attempts are bounded",
    "dead letters are kept and acted on",
    "leases and timeouts fit the durations",
    "resources are serialised",
    "offsets are committed after the transaction",
    "metrics are scraped and rules loaded",
    "a crash drill was run",
];

/// What is found about one point.
#[derive(Debug, Default)]
struct Findings(Vec<(Verdict, String, String)>);

impl Findings {
    fn ok(&mut self, figure: impl Into<String>) {
        self.0.push((Verdict::Ok, figure.into(), String::new()));
    }

    fn warn(&mut self, figure: impl Into<String>, remedy: impl Into<String>) {
        self.0.push((Verdict::Warning, figure.into(), remedy.into()));
    }

    fn fail(&mut self, figure: impl Into<String>, remedy: impl Into<String>) {
        self.0.push((Verdict::Failure, figure.into(), remedy.into()));
    }

    /// Nobody can tell, and that is no good sign.
    fn error(&mut self, error: &Error) {
        self.fail(error.chain(), "");
    }

    fn point(self, number: u8) -> Point {
        let verdict = self.0.iter().map(|it| it.0).max().unwrap_or(Verdict::Warning);
        let text = |of: fn(&(Verdict, String, String)) -> &String| {
            let parts: Vec<&str> = self.0.iter().map(|it| of(it).as_str()).filter(|it| !it.is_empty()).collect();
            parts.join("; ")
        };
        let (figure, remedy) = (text(|it| &it.1), text(|it| &it.2));
        Point { number, name: NAMES[usize::from(number) - 1], verdict, figure, remedy }
    }
}

/// Looks at all ten points. Changes nothing, and joins no group.
pub async fn checklist(config: &Config, measured: &Measured) -> Vec<Point> {
    let mut findings: [Findings; 10] = Default::default();
    bounds(config, &mut findings[3]);
    measured::durations(config, measured, &mut findings[5]);
    measured::scraped(config, measured, &mut findings[8]);
    match connect(config).await {
        Ok(pool) => look(config, &pool, measured, &mut findings).await,
        Err(error) => {
            for number in [0, 1, 2, 3, 4, 6, 7, 9] {
                findings[number].error(&error);
            }
        }
    }
    (1..).zip(findings).map(|(number, it)| it.point(number)).collect()
}

async fn connect(config: &Config) -> Result<Pool, Error> {
    let pool = config.postgres.pool("sekali-checklist")?;
    require_schema(&*postgres::connect(&pool).await?).await?;
    Ok(pool)
}

async fn look(config: &Config, pool: &Pool, measured: &Measured, findings: &mut [Findings; 10]) {
    let [keys, durable, classes, bounded, dead, _, serialised, offsets, _, drill] = findings;
    let found = async {
        let cluster = Cluster::connect(&config.kafka).await?;
        topics::look(config, &cluster).await
    };
    match found.await {
        Ok(found) => {
            database::retention(config, &found, durable);
            database::bounded(config, pool, &found, bounded).await;
            database::dead_letter_topics(config, pool, &found, dead).await;
            match sample::take(config, &found).await {
                Ok(sample) => {
                    records::keys(config, pool, &sample, keys).await;
                    records::serialised(config, &sample, measured, serialised);
                    records::offsets(config, pool, &sample, offsets).await;
                }
                Err(error) => [keys, serialised, offsets].into_iter().for_each(|it| it.error(&error)),
            }
        }
        Err(error) => {
            let all = [keys, &mut *durable, bounded, &mut *dead, serialised, offsets];
            all.into_iter().for_each(|it| it.error(&error));
        }
    }
    database::durable(pool, durable).await;
    database::classes(config, pool, classes).await;
    database::acted_on(config, pool, dead).await;
    database::drill(config, pool, drill).await;
}

/// Most attempts that are still a bound in practice.
const ATTEMPTS_MAX: u16 = 50;

/// Point 4, as far as the configuration says it.
fn bounds(config: &Config, findings: &mut Findings) {
    let retry = &config.retry;
    let path = humantime::format_duration(std::time::Duration::from_secs(config.retry_path_max().as_secs()));
    findings.ok(format!("{} attempts within {path}, jitter {:.0} %", config.max_attempts(), retry.jitter * 100.0));
    if retry.delays.is_empty() {
        findings.warn("no delays: the first failure is the last", "set retry.delays");
    }
    if ATTEMPTS_MAX < config.max_attempts() {
        findings.warn(format!("more than {ATTEMPTS_MAX} attempts"), "lower retry.max_attempts");
    }
    if retry.jitter == 0.0 && !retry.delays.is_empty() {
        findings.warn("no jitter: what failed together comes back together", "set retry.jitter to 0.1");
    }
    if retry.dead_letters_ahead_max == 0 {
        findings.warn(
            "no budget of dead letters: an outage buries everything",
            "set retry.dead_letters_ahead_max, 1000 for instance",
        );
    }
    if config.consumer.order == Order::None {
        findings.ok("failed messages are overtaken (consumer.order = \"none\")");
    }
}

#[cfg(test)]
mod tests;
