//! The product's own metrics, read from outside.

use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);

/// All of them; `None` while the port is closed.
pub(super) async fn scrape(port: u16) -> Option<String> {
    let url = format!("http://127.0.0.1:{port}/metrics");
    let asked = tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None).build().into();
        agent.get(&url).call().ok()?.body_mut().read_to_string().ok()
    });
    asked.await.ok()?
}

/// Sum of the series of a metric with this label.
pub(super) fn sum(text: &str, name: &str, label: &str) -> f64 {
    let series = text.lines().filter(|it| it.starts_with(name) && it.contains(label));
    series.filter_map(|it| it.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}
