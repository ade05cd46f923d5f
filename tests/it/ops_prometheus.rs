//! Prometheus scrapes working, failing and dying processes: every panel and every recording rule shows something, and
//! alerts fire for what really happens, and end with it.

mod server;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use sekali::private_postgres::free_port;
use sekali_consumer::Config;
use sekali_consumer::operate::{self, Actor, pauses};
use sekali_producer::outbox;
use sekali_producer::{Event, ResourceId};
use sekali_tests::group::Group;
use sekali_tests::harness::proxy::Direction;
use sekali_tests::harness::{Kafka, Outgoing, OwnBroker, Proxy, eventually, workspace_root};
use sekali_tests::performing::Calling;
use sekali_tests::scripted::SCRIPT;
use serde_json::Value;
use server::Prometheus;
use tokio::task::JoinHandle;

use crate::operator::Operator;

const LIMIT: Duration = Duration::from_secs(120);

/// Effects that a process has in hand when it is killed.
const INTERRUPTED: i64 = 8;

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// Short times where a test would wait, and a port to scrape.
fn tuned(config: &mut Config, port: u16) {
    config.admin.listen = Some(([127, 0, 0, 1], port).into());
    config.kafka.properties.insert("statistics.interval.ms".to_owned(), "500".to_owned());
    config.effects.lease_ttl = Duration::from_secs(5);
    // For the handler that takes forty seconds.
    config.consumer.handler_timeout = Duration::from_secs(60);
    config.postgres.statement_timeout = Duration::from_secs(60);
}

/// Fifty messages a second of many kinds, each of them twice.
struct Load {
    stop: Arc<AtomicBool>,
    running: JoinHandle<()>,
}

impl Load {
    fn on(kafka: &'static Kafka, topic: &str) -> Load {
        let (topic, stop) = (topic.to_owned(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            let mut beat = tokio::time::interval(Duration::from_millis(200));
            for turn in 0_u64.. {
                beat.tick().await;
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let message = |nr: u64| {
                    let script = match nr % 10 {
                        0 => "transient=1".to_owned(),
                        1 => format!("locked=shelf-{}", nr % 3),
                        _ => "ok".to_owned(),
                    };
                    Outgoing::new(format!("k{}", nr % 97), "{}").id(&format!("m-{nr}")).header(SCRIPT, script)
                };
                let nrs = (0..10).map(|it| 10 * turn + it);
                kafka.produce(&topic, nrs.clone().chain(nrs).map(message)).await;
            }
        });
        Load { stop, running }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.running.await.unwrap();
    }
}

async fn scripted(group: &Group, script: &str, count: usize) {
    let record = |it: usize| {
        let id = format!("{script}-{it}");
        Outgoing::new(id.clone(), "{}").id(&id).header(SCRIPT, script.to_owned())
    };
    group.produce((0..count).map(record)).await;
}

async fn fires(prometheus: &Prometheus, alert: &str) {
    let probe = async || {
        let firing = prometheus.firing().await;
        let found = firing.iter().find(|it| it.0 == alert).map(|it| it.1.clone());
        found.ok_or_else(|| format!("firing: {firing:?}"))
    };
    let summary = eventually(&format!("{alert} fires"), LIMIT, probe).await;
    assert!(summary.chars().any(|it| it.is_ascii_digit()) && !summary.contains("<no value>"), "{alert}: {summary}");
}

async fn resolves(prometheus: &Prometheus, alert: &str) {
    let probe = async || !prometheus.firing().await.iter().any(|it| it.0 == alert);
    eventually(&format!("{alert} resolves"), LIMIT, probe).await;
}

/// Lets a process die in the middle of effects, whose leases another one takes over.
async fn leases_expire(prometheus: &Prometheus, effects: &mut Group, second_port: u16) {
    let _provider = Calling::new(effects).await;
    scripted(effects, "ok", 20).await;
    scripted(effects, "transient=1", 2).await;
    let mut first = effects.start_effect_process();
    // Spread over several scrapes: what is there at the first one shows no rate.
    for millis in [500, 1000, 1500] {
        scripted(effects, &format!("slow={millis}"), 3).await;
        effects.settled().await;
    }
    scripted(effects, "slow=8000", 12).await;
    eventually("the process has leases", LIMIT, async || {
        let held: i64 = effects.database.scalar("SELECT count(*) FROM sekali.lease").await;
        if INTERRUPTED <= held { Ok(()) } else { Err(format!("{held} leases")) }
    })
    .await;
    first.sigkill().await;
    effects.config.admin.listen = Some(([127, 0, 0, 1], second_port).into());
    let second = effects.start_effect_process();
    fires(prometheus, "SekaliLeasesExpiring").await;
    effects.settled().await;
    resolves(prometheus, "SekaliLeasesExpiring").await;
    drop(second);
}

/// Keeps Kafka from the relay while the database has something to publish.
async fn outbox_backs_up(prometheus: &Prometheus, group: &Group, proxy: &Proxy) {
    let sink = group.kafka.topic("sink", 1).await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.stall(direction);
    }
    let mut client = group.database.connect().await;
    let tx = client.transaction().await.unwrap();
    let event = Event::raw(sink, ResourceId::new("r").unwrap(), "test.event", "application/json", "{}").unwrap();
    outbox::enqueue(&tx, event).await.unwrap();
    tx.commit().await.unwrap();
    fires(prometheus, "SekaliOutboxBacklogOld").await;
    proxy.heal();
    resolves(prometheus, "SekaliOutboxBacklogOld").await;
}

/// An operator pauses the topic and forgets it: that is one alert, and not a stall.
async fn a_pause_is_forgotten(prometheus: &Prometheus, group: &Group) {
    let pool = operate::open(&group.config).await.unwrap();
    let actor = Actor { who: "test".to_owned(), reason: "forgotten".to_owned() };
    let name = group.config.consumer_name();
    pauses::pause(&pool, name, Some(&group.topic), &actor).await.unwrap();
    eventually("a process has stopped", LIMIT, async || {
        prometheus.values("sekali_topic_paused == 1", now() - 2, now()).await.is_ok_and(|it| 0 < it)
    })
    .await;
    scripted(group, "ok", 5).await;
    fires(prometheus, "SekaliTopicPausedLong").await;
    let firing = prometheus.firing().await;
    assert!(!firing.iter().any(|it| it.0 == "SekaliConsumerStalled"), "{firing:?}");
    pauses::resume(&pool, name, Some(&group.topic), &actor).await.unwrap();
    resolves(prometheus, "SekaliTopicPausedLong").await;
    group.settled().await;
}

/// The checklist asks the worker on the port of the configuration, and without one Prometheus, for what was measured.
async fn the_checklist_reads_what_was_measured(prometheus: &Prometheus, group: &mut Group) {
    let url = prometheus.url();
    let arguments = ["doctor", "--checklist", "--prometheus", &url];
    let figure = |points: &Value, number: usize| points[number - 1]["figure"].as_str().unwrap().to_owned();
    let (_, points) = Operator::of(group).json(&arguments).await;
    assert_eq!(points[8]["verdict"], "ok", "{points:#}");
    assert!(figure(&points, 9).starts_with("1 workers of the group are scraped; "), "{points:#}");
    let rules = workspace_root().join("ops/prometheus/rules.yaml");
    let alerts = std::fs::read_to_string(rules).unwrap().matches("- alert: ").count();
    assert!(figure(&points, 9).ends_with(&format!("; {alerts} alert rules are loaded")), "{points:#}");
    assert!(figure(&points, 6).contains(" of one worker ") && figure(&points, 7).contains("named locks"), "{points:#}");
    let listen = group.config.admin.listen.take();
    let (_, points) = Operator::of(group).json(&arguments).await;
    group.config.admin.listen = listen;
    assert!(figure(&points, 6).contains("transactions: p99.9 of "), "{points:#}");
    assert!(figure(&points, 6).contains(" of all workers "), "{points:#}");
}

/// Queries of the dashboards, with their titles.
fn panels() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for board in ["overview", "internals"] {
        let path = workspace_root().join(format!("ops/grafana/{board}.json"));
        let board: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().cloned().unwrap_or_default() {
                let mut expr = target["expr"].as_str().unwrap().replace("$__rate_interval", "5s");
                for variable in ["$namespace", "$consumer_group", "$topic"] {
                    expr = expr.replace(variable, ".*");
                }
                assert!(!expr.contains('$'), "a variable is left in {expr}");
                found.push((format!("panel {}", panel["title"]), expr));
            }
        }
    }
    assert!(80 < found.len(), "{} queries", found.len());
    found
}

/// Recording rules, by the names of what they record.
fn records() -> Vec<(String, String)> {
    let rules = std::fs::read_to_string(workspace_root().join("ops/prometheus/rules.yaml")).unwrap();
    let names: BTreeSet<&str> = rules.lines().filter_map(|it| it.trim().strip_prefix("- record: ")).collect();
    assert!(10 < names.len(), "{names:?}");
    names.into_iter().map(|it| (format!("rule {it}"), it.to_owned())).collect()
}

/// Every panel and every recording rule has shown a number since then.
async fn everything_shows(prometheus: &Prometheus, since: u64) {
    let mut empty = Vec::new();
    for (what, query) in panels().into_iter().chain(records()) {
        match prometheus.values(&query, since, now()).await {
            Ok(0) => empty.push(format!("{what}: nothing for {query}")),
            Ok(_) => {}
            Err(error) => empty.push(format!("{what}: {error} for {query}")),
        }
    }
    assert!(empty.is_empty(), "without data:\n{}", empty.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn panels_show_data_and_alerts_fire_and_resolve() {
    let Some(program) = server::program() else {
        sekali_tests::skip!("no Prometheus: run ops/tools/install.sh prometheus");
    };
    let (broker, proxy) = match OwnBroker::start_proxied().await {
        Ok(started) => started,
        Err(reason) => sekali_tests::skip!("{reason:#}"),
    };
    let kafka: &'static Kafka = Box::leak(Box::new(broker.kafka().clone()));
    let ports = [free_port().unwrap(), free_port().unwrap(), free_port().unwrap()];
    let brokers = broker.proxied_bootstrap();
    let mut group = Group::on(kafka, &brokers, "scraped", 4, |it| tuned(it, ports[0])).await;
    let mut effects = Group::on(kafka, kafka.bootstrap(), "effects", 4, |it| tuned(it, ports[1])).await;
    let prometheus = Prometheus::start(&program, &[(ports[0], "a"), (ports[1], "b"), (ports[2], "b")]).await;
    let began = now();
    let member = group.start_process();

    let load = Load::on(kafka, &group.topic);
    leases_expire(&prometheus, &mut effects, ports[2]).await;
    scripted(&group, "permanent", 60).await;
    scripted(&group, "panic=1", 3).await;
    for alert in ["SekaliDeadLetterBurst", "SekaliHandlerPanics", "SekaliDuplicateRateHigh"] {
        fires(&prometheus, alert).await;
    }
    load.stop().await;
    for alert in ["SekaliDeadLetterBurst", "SekaliHandlerPanics", "SekaliDuplicateRateHigh"] {
        resolves(&prometheus, alert).await;
    }

    group.settled().await;
    scripted(&group, "slow=40000", 1).await;
    fires(&prometheus, "SekaliConsumerStalled").await;
    resolves(&prometheus, "SekaliConsumerStalled").await;
    outbox_backs_up(&prometheus, &group, &proxy).await;
    a_pause_is_forgotten(&prometheus, &group).await;
    the_checklist_reads_what_was_measured(&prometheus, &mut group).await;

    everything_shows(&prometheus, began).await;
    assert_eq!(prometheus.broken_rules().await, [] as [String; 0]);
    drop(member);
}
