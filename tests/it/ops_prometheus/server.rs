//! A real Prometheus over the rules of the repository, with shorter times.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sekali::private_postgres::free_port;
use sekali_tests::harness::{Process, Program, eventually, target_dir, workspace_root};
use serde_json::Value;
use tempfile::TempDir;

/// By how much the times of the rules are shortened: ten minutes become ten seconds.
const FASTER: u64 = 60;

pub(super) struct Prometheus {
    port: u16,
    _process: Process,
    _directory: TempDir,
}

/// The program: that of `ops/tools/install.sh`, or of the system.
pub(super) fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = [target_dir().join("tools/bin")].into_iter().chain(std::env::split_paths(&path));
    directories.map(|it| it.join("prometheus")).find(|it| it.is_file())
}

/// The rules with all their times shortened: those in brackets, after `offset`, of `for`, and the limits of what is
/// counted in seconds.
pub(super) fn faster(rules: &str) -> String {
    let mut lines = Vec::new();
    for line in rules.lines() {
        let words: Vec<String> = line.split(' ').map(|word| shorter(word).unwrap_or_else(|| word.to_owned())).collect();
        lines.push(limits(&words.join(" ")));
    }
    lines.join("\n") + "\n"
}

/// A word in which each duration is shorter; `None` when there is none.
fn shorter(word: &str) -> Option<String> {
    let seconds = |text: &str| -> Option<u64> {
        let unit = text.chars().last()?;
        let factor = [('s', 1), ('m', 60), ('h', 3600), ('d', 86400)].into_iter().find(|it| it.0 == unit)?.1;
        Some(text[..text.len() - 1].parse::<u64>().ok()? * factor)
    };
    let short = |text: &str| seconds(text).map(|it| format!("{}s", it.div_ceil(FASTER)));
    if let Some(all) = short(word.trim_end_matches(')')) {
        return Some(all + &word[word.trim_end_matches(')').len()..]);
    }
    let mut out = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after.split_once(']')?;
        out += &format!("{before}[{}]", short(inside)?);
        rest = behind;
    }
    (!out.is_empty()).then(|| out + rest)
}

/// A comparison of an age in seconds with a number.
fn limits(line: &str) -> String {
    let Some((left, limit)) = line.rsplit_once(" > ") else { return line.to_owned() };
    let is_age = left.contains("_seconds") && !left.contains("_bucket") && !left.contains("process_start");
    match limit.parse::<u64>() {
        Ok(limit) if is_age => format!("{left} > {}", limit.div_ceil(FASTER)),
        _ => line.to_owned(),
    }
}

impl Prometheus {
    /// Starts one that scrapes these ports each second, each with the name of its database's outbox.
    pub(super) async fn start(program: &Path, targets: &[(u16, &str)]) -> Prometheus {
        let directory = TempDir::new().unwrap();
        let port = free_port().unwrap();
        let rules = std::fs::read_to_string(workspace_root().join("ops/prometheus/rules.yaml")).unwrap();
        let rules = faster(&rules);
        std::fs::write(directory.path().join("rules.yaml"), rules).unwrap();
        let target = |(port, outbox): &(u16, &str)| {
            format!("{{targets: [\"127.0.0.1:{port}\"], labels: {{namespace: n, pod: pod-{port}, outbox: {outbox}}}}}")
        };
        let targets: Vec<String> = targets.iter().map(target).collect();
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yaml]\n\
             scrape_configs:\n  - job_name: sekali\n    static_configs: [{}]\n",
            targets.join(", ")
        );
        let config = directory.path().join("prometheus.yml");
        std::fs::write(&config, text).unwrap();
        let process = Program::at(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .spawn();
        let prometheus = Prometheus { port, _process: process, _directory: directory };
        let ready = async || prometheus.get("/-/ready", &[]).await.is_some();
        eventually("Prometheus is ready", Duration::from_secs(60), ready).await;
        prometheus
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Option<String> {
        let url = self.url() + path;
        let parameters: Vec<(String, String)> =
            parameters.iter().map(|it| (it.0.to_owned(), it.1.to_owned())).collect();
        let asked = tokio::task::spawn_blocking(move || {
            let mut request = ureq::get(&url);
            for (name, value) in &parameters {
                request = request.query(name, value);
            }
            request.call().ok()?.body_mut().read_to_string().ok()
        });
        asked.await.unwrap()
    }

    /// Names of the alerts that fire now, with one of their summaries.
    pub(super) async fn firing(&self) -> Vec<(String, String)> {
        let body = self.get("/api/v1/alerts", &[]).await.unwrap_or_default();
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        let alerts = body["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().filter(|it| it["state"] == "firing");
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        firing.map(|it| (text(&it["labels"]["alertname"]), text(&it["annotations"]["summary"]))).collect()
    }

    /// How many finite values a query had since a moment, in seconds since 1970.
    pub(super) async fn values(&self, query: &str, since: u64, until: u64) -> Result<usize, String> {
        let (since, until) = (since.to_string(), until.to_string());
        let parameters = [("query", query), ("start", &since), ("end", &until), ("step", "1")];
        let body = self.get("/api/v1/query_range", &parameters).await.ok_or("refused")?;
        let body: Value = serde_json::from_str(&body).map_err(|it| it.to_string())?;
        let series = body["data"]["result"].as_array().cloned().unwrap_or_default();
        let values = series.iter().flat_map(|it| it["values"].as_array().cloned().unwrap_or_default());
        let finite = |it: &Value| it[1].as_str().and_then(|it| it.parse::<f64>().ok()).is_some_and(f64::is_finite);
        Ok(values.filter(finite).count())
    }

    /// Rules that could not be evaluated, with their errors.
    pub(super) async fn broken_rules(&self) -> Vec<String> {
        let body: Value = serde_json::from_str(&self.get("/api/v1/rules", &[]).await.unwrap()).unwrap();
        let groups = body["data"]["groups"].as_array().cloned().unwrap_or_default();
        let rules: Vec<Value> =
            groups.iter().flat_map(|it| it["rules"].as_array().cloned().unwrap_or_default()).collect();
        assert!(60 < rules.len(), "{} rules are loaded", rules.len());
        let broken = rules.iter().filter(|it| it["health"] == "err");
        broken.map(|it| format!("{}: {}", it["name"], it["lastError"])).collect()
    }
}

#[test]
fn times_are_shortened_and_nothing_else() {
    let cases = [
        ("for: 10m", "for: 10s"),
        ("rate(x_total[5m]) > 0.1", "rate(x_total[5s]) > 0.1"),
        ("increase(dead_total[10m])) > 20", "increase(dead_total[10s])) > 20"),
        ("a:lag_seconds:max > 300", "a:lag_seconds:max > 5"),
        ("delta(a:lag_seconds:max[30m]) > 600", "delta(a:lag_seconds:max[30s]) > 10"),
        ("avg_over_time(r5m[6h] offset 15m) + 0.001", "avg_over_time(r5m[360s] offset 15s) + 0.001"),
        ("changes(process_start_time_seconds[15m]) > 2", "changes(process_start_time_seconds[15s]) > 2"),
        ("interval: 30s", "interval: 1s"),
    ];
    for (given, expected) in cases {
        assert_eq!(faster(given), format!("{expected}\n"));
    }
}
