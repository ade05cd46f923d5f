//! The flows in a real browser, with and without JavaScript: `tests/browser/flows.mjs`.

use std::path::PathBuf;
use std::process::Command;

use sekali_tests::group::Group;
use sekali_tests::harness::{Outgoing, Program, target_dir, workspace_root};
use sekali_tests::skip;

use super::{Console, LIMIT, TOKEN};
use crate::dlq::{Repairable, message, states_become};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// What drives the browser asks for it.
const NODE_MIN: u32 = 20;
/// Directory for the pictures; those of the README come into `ops/console`.
const SCREENSHOTS: &str = "SEKALI_TEST_SCREENSHOTS";

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|it| it.join(program)).find(|it| it.is_file())
}

fn hostile() -> Outgoing {
    // Without an idempotency key: invalid.
    Outgoing::new(
        "<img src=x onerror=alert(1)>".to_owned(),
        "{\"nr\": 12345678901234567890,\"html\":\"<script>alert(1)</script>\"}",
    )
    .header("note", "<script>alert(1)</script>".to_owned())
    .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flows_work_in_a_browser_and_nothing_serious_stands_in_anybodys_way() {
    let Some(node) = find("node") else { skip!("node is not installed: scripts/setup.sh all") };
    let version =
        Command::new(&node).arg("--version").output().map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    let version = version.unwrap_or_default();
    let major = version.trim_start_matches('v').split('.').next().and_then(|it| it.parse::<u32>().ok());
    if major.is_none_or(|it| it < NODE_MIN) {
        skip!("node {NODE_MIN} or newer is needed, and this is {}", version.trim());
    }
    let Some(browser) = BROWSERS.into_iter().find_map(find) else { skip!("no chromium: scripts/setup.sh all") };
    let scripts = workspace_root().join("tests/browser");
    if !scripts.join("node_modules/playwright-core").is_dir() {
        let installed = Command::new("npm").args(["ci"]).current_dir(&scripts).output();
        match installed {
            Ok(output) if output.status.success() => {}
            Ok(output) => skip!("npm ci in tests/browser: {}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => skip!("npm cannot be run: {error}"),
        }
    }
    let shots = std::env::var_os(SCREENSHOTS).map_or_else(|| target_dir().join("console"), PathBuf::from);
    std::fs::create_dir_all(&shots).unwrap();

    let group = Group::new("console-browser", 2, |_| {}).await;
    let handler = Repairable::default();
    let member = group.start(handler.clone()).await;
    let of = |cause: &'static str, count| (0..count).map(move |nr| message(&format!("{cause}{nr}"), nr, cause));
    group.produce(of("stock", 12).chain(of("price", 5)).chain([hostile()])).await;
    states_become(&group, "all are dead", [18, 0, 0, 0]).await;
    handler.repair(&handler.stock);
    handler.repair(&handler.price);
    let topics = format!("[\"{}\"]", group.topic);
    let kafka = [
        ("SEKALI_KAFKA__BROKERS", group.kafka.bootstrap()),
        ("SEKALI_CONSUMER__GROUP", group.name()),
        ("SEKALI_CONSUMER__TOPICS", topics.as_str()),
    ];
    let console = Console::of(&group, &kafka).await;
    let flows = Program::at(&node).arg(scripts.join("flows.mjs"));
    let mut flows = flows
        .env("CONSOLE_URL", format!("http://{}", console.address))
        .env("CONSOLE_TOKEN", TOKEN)
        .env("CHROMIUM", browser)
        .env("SCREENSHOTS", &shots)
        .spawn();
    let status = flows.wait(4 * LIMIT).await;
    let said = format!("{}{}{}", flows.stdout(), flows.stderr(), console.process.stderr());
    assert!(status.success(), "{said}");
    assert_eq!(said.matches("ok: ").count(), 5, "{said}");
    states_become(&group, "both causes took effect", [1, 0, 17, 0]).await;
    member.stop().await.unwrap();
}
