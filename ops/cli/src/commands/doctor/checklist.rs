use std::net::Ipv4Addr;
use std::time::Duration;

use sekali_consumer::admin::checklist::{self, Measured, Point, Prometheus, Verdict};
use sekali_consumer::config::{Config, Needs};
use serde_json::Value;

use crate::args::{DoctorArgs, Global};
use crate::exit::{Failure, Outcome};
use crate::output;

/// Longest wait for an answer over HTTP.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer: all rules of a large Prometheus.
const BYTES_MAX: u64 = 32 << 20;

pub(super) async fn run(global: &Global, args: DoctorArgs) -> Result<Outcome, Failure> {
    let config = super::super::load(global, Needs::Everything)?;
    let worker = match args.admin {
        Some(url) => Some(metrics(&url).await),
        None => worker_beside(&config).await.map(Ok),
    };
    let prometheus = match args.prometheus {
        Some(url) => Some(prometheus(&url, &config.consumer.group).await),
        None => None,
    };
    let measured = Measured { worker, prometheus };
    let points = checklist::checklist(&config, &measured).await;
    output::show(global.output, &points, |points| {
        // Sentences, not columns: a finding may be longer than a terminal is wide.
        let line = |it: &Point| {
            let found = format!("{:>2} {:<8} {}: {}\n", it.number, it.verdict.as_str(), it.name, it.figure);
            if it.remedy.is_empty() { found } else { format!("{found}{:12}-> {}\n", "", it.remedy) }
        };
        points.iter().map(line).collect()
    })?;
    let failed = points.iter().any(|it| it.verdict == Verdict::Failure);
    Ok(if failed { Outcome::Found } else { Outcome::Done })
}

async fn metrics(url: &str) -> Result<String, String> {
    get(format!("{}/metrics", url.trim_end_matches('/')), None).await
}

/// The worker on the configured port of this machine or pod, where there is one and it is of the group.
async fn worker_beside(config: &Config) -> Option<String> {
    let mut listen = config.admin.listen?;
    if listen.ip().is_unspecified() {
        listen.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let found = metrics(&format!("http://{listen}")).await.ok()?;
    Measured::are_of(&found, &config.consumer.group).then_some(found)
}

async fn prometheus(url: &str, group: &str) -> Result<Prometheus, String> {
    let url = url.trim_end_matches('/');
    let query = |text: String| json(format!("{url}/api/v1/query"), Some(text));
    let (build_info, buckets, rules) = tokio::join!(
        query("sekali_build_info".to_owned()),
        query(Prometheus::buckets_query(group)),
        json(format!("{url}/api/v1/rules"), None)
    );
    Ok(Prometheus { build_info: build_info?, buckets: buckets?, rules: rules? })
}

async fn json(url: String, query: Option<String>) -> Result<Value, String> {
    serde_json::from_str(&get(url, query).await?).map_err(|_| "the answer is no JSON: is this Prometheus?".to_owned())
}

async fn get(url: String, query: Option<String>) -> Result<String, String> {
    let asked = tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into();
        let mut answer = agent
            .get(&url)
            .query_pairs(query.map(|it| ("query", it)))
            .call()
            .map_err(|error| format!("{url}: {error}"))?;
        let body = answer.body_mut().with_config().limit(BYTES_MAX).read_to_string();
        body.map_err(|error| format!("{url}: {error}"))
    });
    asked.await.map_err(|error| error.to_string())?
}
