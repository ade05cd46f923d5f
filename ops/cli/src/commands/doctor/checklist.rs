use std::time::Duration;

use sekali_consumer::admin::checklist::{self, Measured, Point, Prometheus, Verdict};
use sekali_consumer::config::Needs;
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
    let measured = Measured { worker: worker(args.admin).await, prometheus: prometheus(args.prometheus).await };
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

async fn worker(url: Option<String>) -> Option<Result<String, String>> {
    Some(get(format!("{}/metrics", url?.trim_end_matches('/'))).await)
}

async fn prometheus(url: Option<String>) -> Option<Result<Prometheus, String>> {
    let url = url?;
    let url = url.trim_end_matches('/');
    let (build_info, rules) =
        tokio::join!(json(format!("{url}/api/v1/query?query=sekali_build_info")), json(format!("{url}/api/v1/rules")));
    Some(build_info.and_then(|build_info| Ok(Prometheus { build_info, rules: rules? })))
}

async fn json(url: String) -> Result<Value, String> {
    serde_json::from_str(&get(url).await?).map_err(|_| "the answer is no JSON: is this Prometheus?".to_owned())
}

async fn get(url: String) -> Result<String, String> {
    let asked = tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into();
        let mut answer = agent.get(&url).call().map_err(|error| format!("{url}: {error}"))?;
        let body = answer.body_mut().with_config().limit(BYTES_MAX).read_to_string();
        body.map_err(|error| format!("{url}: {error}"))
    });
    asked.await.map_err(|error| error.to_string())?
}
