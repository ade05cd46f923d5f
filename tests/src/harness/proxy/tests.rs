//! Against a plain server that sends back what it gets and remembers it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Direction, Proxy, Step, When};
use crate::harness::eventually;

const LIMIT: Duration = Duration::from_secs(5);
/// Long enough for anything that would come over loopback to have come.
const SILENCE: Duration = Duration::from_millis(200);

struct Echo {
    address: String,
    got: Arc<Mutex<Vec<u8>>>,
}

async fn echo() -> Echo {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let got = Arc::new(Mutex::new(Vec::new()));
    let seen = got.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    seen.lock().unwrap().extend_from_slice(&buffer[..count]);
                    if stream.write_all(&buffer[..count]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    Echo { address, got }
}

impl Echo {
    fn got(&self) -> String {
        String::from_utf8(self.got.lock().unwrap().clone()).unwrap()
    }
}

async fn set_up() -> (Echo, Proxy, TcpStream) {
    let echo = echo().await;
    let proxy = Proxy::to(&echo.address).await.unwrap();
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    (echo, proxy, client)
}

async fn say_and_hear(client: &mut TcpStream, text: &str) -> String {
    client.write_all(text.as_bytes()).await.unwrap();
    hear(client, text.len()).await
}

async fn hear(client: &mut TcpStream, count: usize) -> String {
    let mut answer = vec![0; count];
    tokio::time::timeout(LIMIT, client.read_exact(&mut answer)).await.expect("an answer in time").unwrap();
    String::from_utf8(answer).unwrap()
}

/// What still arrives before the connection ends. An orderly end and a reset are both an end.
async fn rest(client: &mut TcpStream) -> String {
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(LIMIT, client.read_to_end(&mut rest)).await.expect("the connection ends in time");
    String::from_utf8(rest).unwrap()
}

async fn is_silent(client: &mut TcpStream) -> bool {
    tokio::time::timeout(SILENCE, client.read_u8()).await.is_err()
}

#[tokio::test]
async fn forwards_and_counts() {
    let (_echo, proxy, mut client) = set_up().await;
    assert_eq!(say_and_hear(&mut client, "hello").await, "hello");
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.open, counts.refused), (1, 1, 0));
    assert_eq!((counts.bytes_to_server, counts.bytes_to_client), (5, 5));
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await, "", "the end of a connection is forwarded");
    eventually("the connection is closed", LIMIT, async || proxy.counts().open == 0).await;
}

#[tokio::test]
async fn delays_one_direction() {
    let (_echo, proxy, mut client) = set_up().await;
    proxy.delay(Direction::ToClient, Duration::from_millis(150));
    let begin = Instant::now();
    for text in ["a", "b", "c"] {
        client.write_all(text.as_bytes()).await.unwrap();
    }
    assert_eq!(hear(&mut client, 3).await, "abc");
    assert!(begin.elapsed() >= Duration::from_millis(150), "{:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_millis(400), "delays do not add up: {:?}", begin.elapsed());
}

#[tokio::test]
async fn stalls_and_heals_without_loss() {
    let (echo, proxy, mut client) = set_up().await;
    say_and_hear(&mut client, "a").await;
    proxy.stall(Direction::ToClient);
    client.write_all(b"b").await.unwrap();
    assert!(is_silent(&mut client).await);
    assert_eq!(echo.got(), "ab", "the other direction flows");
    assert_eq!(proxy.counts().open, 1);
    proxy.heal();
    assert_eq!(hear(&mut client, 1).await, "b");
}

#[tokio::test]
async fn drops_bytes() {
    let (echo, proxy, mut client) = set_up().await;
    proxy.drop_bytes(Direction::ToServer);
    client.write_all(b"lost").await.unwrap();
    assert!(is_silent(&mut client).await);
    proxy.heal();
    assert_eq!(say_and_hear(&mut client, "kept").await, "kept");
    assert_eq!(echo.got(), "kept");
}

#[tokio::test]
async fn cuts_open_connections_and_takes_new_ones() {
    let (_echo, proxy, mut client) = set_up().await;
    say_and_hear(&mut client, "a").await;
    proxy.cut();
    assert_eq!(rest(&mut client).await, "");
    let mut next = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say_and_hear(&mut next, "b").await, "b");
    assert_eq!(proxy.counts().connections, 2);
}

#[tokio::test]
async fn refuses_new_connections_only() {
    let (_echo, proxy, mut client) = set_up().await;
    say_and_hear(&mut client, "a").await;
    proxy.refuse(true);
    let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(rest(&mut refused).await, "");
    assert_eq!(say_and_hear(&mut client, "b").await, "b");
    proxy.refuse(false);
    let mut next = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say_and_hear(&mut next, "c").await, "c");
    assert_eq!(proxy.counts().refused, 1);
}

#[tokio::test]
async fn cuts_before_the_pattern_arrives_even_in_pieces() {
    let (echo, proxy, mut client) = set_up().await;
    let trap = proxy.cut_on(b"COMMIT", Direction::ToServer, When::BeforeForwarding);
    assert_eq!(say_and_hear(&mut client, "begin COM").await, "begin COM");
    assert!(!trap.has_sprung());
    client.write_all(b"MIT more").await.unwrap();
    assert_eq!(rest(&mut client).await, "");
    trap.sprung().await;
    assert_eq!(echo.got(), "begin COM");

    let mut next = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say_and_hear(&mut next, "COMMIT").await, "COMMIT", "a trap springs once");
}

#[tokio::test]
async fn cuts_after_the_pattern_arrived_and_lets_no_answer_through() {
    let (echo, proxy, mut client) = set_up().await;
    let trap = proxy.cut_on(b"COMMIT", Direction::ToServer, When::AfterForwarding);
    client.write_all(b"COMMIT").await.unwrap();
    assert_eq!(rest(&mut client).await, "");
    trap.sprung().await;
    eventually("the server got it", LIMIT, async || echo.got() == "COMMIT").await;
}

#[tokio::test]
async fn a_dropped_trap_is_disarmed() {
    let (_echo, proxy, mut client) = set_up().await;
    drop(proxy.cut_on(b"x", Direction::ToServer, When::BeforeForwarding));
    assert_eq!(say_and_hear(&mut client, "x").await, "x");
}

#[tokio::test]
async fn halts_in_front_of_the_last_step_and_lets_go() {
    let (echo, proxy, mut client) = set_up().await;
    let halt =
        proxy.halt_at([Step::request("begin"), Step::answer("begin"), Step::request("COMMIT")], When::BeforeForwarding);
    assert_eq!(say_and_hear(&mut client, "COMMIT").await, "COMMIT", "steps count in their order only");
    assert_eq!(say_and_hear(&mut client, "begin COM").await, "begin COM");
    assert!(!halt.is_reached());
    client.write_all(b"x COMMIT").await.unwrap();
    tokio::time::timeout(LIMIT, halt.reached()).await.expect("the halt is reached");
    assert!(halt.is_reached() && is_silent(&mut client).await);
    let mut other = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say_and_hear(&mut other, "begin").await, "begin");
    assert_eq!(say_and_hear(&mut other, " COMMIT").await, " COMMIT", "a halt holds one connection, and others flow");
    assert!(!echo.got().contains("x COMMIT"));
    halt.let_go();
    assert_eq!(hear(&mut client, 8).await, "x COMMIT");
    assert_eq!(say_and_hear(&mut client, "begin").await, "begin");
    assert_eq!(say_and_hear(&mut client, "COMMIT").await, "COMMIT", "a halt is reached once");
}

#[tokio::test]
async fn halts_behind_a_pattern_in_pieces_and_cuts() {
    let (echo, proxy, mut client) = set_up().await;
    let halt = proxy.halt_at([Step::request("COMMIT")], When::AfterForwarding);
    assert_eq!(say_and_hear(&mut client, "COM").await, "COM");
    client.write_all(b"MIT").await.unwrap();
    tokio::time::timeout(LIMIT, halt.reached()).await.expect("the halt is reached");
    eventually("the server got it", LIMIT, async || echo.got() == "COMMIT").await;
    assert!(is_silent(&mut client).await, "the answer is held");
    halt.cut();
    assert_eq!(rest(&mut client).await, "");
}

#[tokio::test]
async fn a_halt_holds_the_end_of_a_connection_and_answers() {
    let (echo, proxy, mut client) = set_up().await;
    let halt = proxy.halt_at([Step::answer("late")], When::BeforeForwarding);
    client.write_all(b"late").await.unwrap();
    tokio::time::timeout(LIMIT, halt.reached()).await.expect("the halt is reached");
    client.write_all(b" more").await.unwrap();
    client.shutdown().await.unwrap();
    assert!(is_silent(&mut client).await);
    assert_eq!((echo.got().as_str(), proxy.counts().open), ("late", 1), "both directions stand still");
    drop(halt);
    assert_eq!(rest(&mut client).await, "late more");
}

#[tokio::test]
async fn ends_with_the_value() {
    let (_echo, proxy, mut client) = set_up().await;
    say_and_hear(&mut client, "a").await;
    let address = proxy.address();
    drop(proxy);
    assert_eq!(rest(&mut client).await, "");
    eventually("the port is closed", LIMIT, async || TcpStream::connect(address).await.is_err()).await;
}
