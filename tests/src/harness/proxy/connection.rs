//! One connection through the proxy: two pumps, each a reader, a delay line and a writer.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::halt::{Armed, Progress};
use super::trap::{Scan, When};
use super::{Direction, Shared};

/// Chunks on their way in one direction; more wait in the sender's socket.
const IN_FLIGHT: usize = 1024;
const CHUNK_BYTES: usize = 64 * 1024;
/// How long the server may take to answer into the void, after a cut that let its request through.
const LAST_ANSWER: Duration = Duration::from_secs(10);

type Chunk = (Instant, Bytes);

/// What the two pumps of a connection share.
struct Cut {
    /// Both sides go at once.
    all: CancellationToken,
    /// The client goes; the server may finish reading what it was sent.
    client: CancellationToken,
    /// From now on nothing reaches the client.
    deaf: AtomicBool,
    /// Whether the server spoke last.
    answered: AtomicBool,
    /// Nothing passes in either direction.
    halted: watch::Sender<bool>,
    progress: Progress,
}

struct Pump<'a> {
    direction: Direction,
    shared: &'a Shared,
    cut: &'a Cut,
}

pub(super) async fn serve(client: TcpStream, server: TcpStream, shared: &Shared, token: CancellationToken) {
    // Small messages must not wait for the acknowledgement of earlier ones. A closed socket shows itself later.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    Shared::count(&shared.counters.connections, 1);
    Shared::count(&shared.counters.open, 1);
    let cut = Cut {
        client: token.child_token(),
        all: token,
        deaf: AtomicBool::new(false),
        answered: AtomicBool::new(true),
        halted: watch::Sender::new(false),
        progress: Progress::default(),
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let request = Pump { direction: Direction::ToServer, shared, cut: &cut };
    let answer = Pump { direction: Direction::ToClient, shared, cut: &cut };
    let pumps =
        async { tokio::join!(request.run(from_client, to_server), answer.run_to_client(from_server, to_client)) };
    cut.all.run_until_cancelled(pumps).await;
    shared.counters.open.fetch_sub(1, Ordering::SeqCst);
}

impl Pump<'_> {
    /// Towards the client, who may be cut off before the server is.
    async fn run_to_client(&self, mut from: OwnedReadHalf, to: OwnedWriteHalf) {
        if self.cut.client.run_until_cancelled(self.pump(&mut from, to)).await.is_none() {
            // The server must not see a broken connection before it has done what it was asked. The client's half is
            // dropped by now.
            let mut rest = Vec::new();
            let _ = tokio::time::timeout(LAST_ANSWER, from.read_to_end(&mut rest)).await;
        }
    }

    async fn run(&self, mut from: OwnedReadHalf, to: OwnedWriteHalf) {
        self.cut.client.run_until_cancelled(self.pump(&mut from, to)).await;
    }

    async fn pump(&self, from: &mut OwnedReadHalf, to: OwnedWriteHalf) {
        let (line, waiting) = mpsc::channel(IN_FLIGHT);
        // A broken socket ends this direction only; the other one notices by itself.
        let _ = tokio::join!(self.read(from, line), self.write(waiting, to));
    }

    async fn read(&self, from: &mut OwnedReadHalf, line: mpsc::Sender<Chunk>) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            let due = Instant::now() + self.shared.lanes[self.direction.index()].borrow().delay;
            if line.send((due, Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
                return Ok(());
            }
        }
    }

    async fn write(&self, mut waiting: mpsc::Receiver<Chunk>, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut lane = self.shared.lanes[self.direction.index()].subscribe();
        let mut scan = Scan::new(self.direction);
        while let Some((due, chunk)) = waiting.recv().await {
            tokio::time::sleep_until(due).await;
            // The proxy, which holds the sender, ends this connection when it goes.
            let dropping = lane.wait_for(|it| !it.stalled).await.is_ok_and(|it| it.dropping);
            self.unhalted().await;
            if dropping || (self.direction == Direction::ToClient && self.cut.deaf.load(Ordering::SeqCst)) {
                continue;
            }
            if let Some(trap) = self.shared.traps.spring(&mut scan, &chunk) {
                self.spring(trap.when, &mut to, &chunk).await?;
                trap.tell();
                return Ok(());
            }
            match self.shared.halts.reached(&self.cut.progress, self.direction, &chunk) {
                None => self.forward(&mut to, &chunk).await?,
                Some(halt) => self.halt(&halt, &mut to, &chunk).await?,
            }
        }
        lane.wait_for(|it| !it.stalled).await.map_err(io::Error::other)?;
        self.unhalted().await;
        to.shutdown().await
    }

    async fn unhalted(&self) {
        // The sender lives as long as the pumps.
        let _ = self.cut.halted.subscribe().wait_for(|it| !it).await;
    }

    /// Stands still until the test says how it goes on.
    async fn halt(&self, halt: &Armed, to: &mut OwnedWriteHalf, chunk: &[u8]) -> io::Result<()> {
        self.cut.halted.send_replace(true);
        let is_before = halt.when == When::BeforeForwarding;
        let forwarded = if is_before { Ok(()) } else { self.forward(to, chunk).await };
        if !halt.hold().await {
            self.cut.all.cancel();
            return Ok(());
        }
        // Also after an error: the other direction must not wait for ever.
        self.cut.halted.send_replace(false);
        if is_before { self.forward(to, chunk).await } else { forwarded }
    }

    async fn spring(&self, when: When, to: &mut OwnedWriteHalf, chunk: &[u8]) -> io::Result<()> {
        if when == When::AfterForwarding {
            if self.direction == Direction::ToServer {
                // Before the server can answer.
                self.cut.deaf.store(true, Ordering::SeqCst);
                self.forward(to, chunk).await?;
                to.shutdown().await?;
                self.cut.client.cancel();
                return Ok(());
            }
            self.forward(to, chunk).await?;
        }
        self.cut.all.cancel();
        Ok(())
    }

    async fn forward(&self, to: &mut OwnedWriteHalf, chunk: &[u8]) -> io::Result<()> {
        let to_client = self.direction == Direction::ToClient;
        if self.cut.answered.swap(to_client, Ordering::SeqCst) && !to_client {
            Shared::count(&self.shared.counters.turns, 1);
        }
        to.write_all(chunk).await?;
        Shared::count(&self.shared.counters.bytes[self.direction.index()], chunk.len() as u64);
        Ok(())
    }
}
