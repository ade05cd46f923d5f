use std::time::Duration;

use crate::args::HealthArgs;
use crate::exit::{Failure, Outcome};
use crate::output;

/// Of an answer that is no success: the reason comes first.
const REASON_BYTES_MAX: usize = 300;

pub(super) async fn run(args: HealthArgs) -> Result<Outcome, Failure> {
    let asked = tokio::task::spawn_blocking(move || ask(&args.url, args.timeout)).await;
    asked.map_err(|error| Failure::error(format!("health: {error}")))?
}

fn ask(url: &str, timeout: Duration) -> Result<Outcome, Failure> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        // What is asked is beside this process, wherever a proxy leads.
        .proxy(None)
        .build()
        .into();
    let remedy = "does the process run, and is admin.listen an address that is reached from here?";
    let mut answer = agent
        .get(url)
        .call()
        .map_err(|error| Failure::error(format!("{url} does not answer within {timeout:?}: {error}; {remedy}")))?;
    let status = answer.status();
    let body = answer.body_mut().read_to_string().unwrap_or_default();
    let first: String = body.lines().next().unwrap_or_default().chars().take(REASON_BYTES_MAX).collect();
    if !status.is_success() {
        return Err(Failure::error(format!("{url} answers {}: {first}", status.as_u16())));
    }
    output::print("ok\n")?;
    Ok(Outcome::Done)
}
