//! A TCP proxy that misbehaves on request: slow, silent, lossy, or gone in the very moment when `COMMIT` passes.

mod connection;
mod halt;
mod pattern;
mod trap;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use halt::Halt;
pub use pattern::{Pattern, Step};
pub use trap::{Trap, When};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What has passed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted, refused ones not counted.
    pub connections: u64,
    /// Connections closed at once because of [`Proxy::refuse`], or because the server does not take them.
    pub refused: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Bytes forwarded to the server.
    pub bytes_to_server: u64,
    /// Bytes forwarded to the client.
    pub bytes_to_client: u64,
    /// Times that a client spoke after its server had: round trips, if it waits for its answers.
    pub turns: u64,
}

/// A running proxy on 127.0.0.1. Dropping it closes everything.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstream: String,
    lanes: [watch::Sender<Lane>; 2],
    refuse: watch::Sender<bool>,
    traps: trap::Traps,
    halts: halt::Halts,
    end: CancellationToken,
    /// Ends the connections that are open now; then a new one takes its place.
    cut: Mutex<CancellationToken>,
    counters: Counters,
}

/// How one direction behaves.
#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    delay: Duration,
    stalled: bool,
    dropping: bool,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    refused: AtomicU64,
    open: AtomicU64,
    turns: AtomicU64,
    bytes: [AtomicU64; 2],
}

impl Direction {
    fn index(self) -> usize {
        match self {
            Direction::ToServer => 0,
            Direction::ToClient => 1,
        }
    }
}

impl Proxy {
    /// Starts a proxy in front of `host:port`, which need not listen yet.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn to(upstream: &str) -> io::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            lanes: Default::default(),
            refuse: watch::Sender::default(),
            traps: trap::Traps::default(),
            halts: halt::Halts::default(),
            cut: Mutex::new(end.child_token()),
            end,
            counters: Counters::default(),
        });
        let proxy = Proxy { address: listener.local_addr()?, shared: shared.clone() };
        tokio::spawn(async move {
            // Dropping the future drops the listener.
            shared.end.run_until_cancelled(accept(listener, &shared)).await;
        });
        Ok(proxy)
    }

    /// Address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Port of the address.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Delays every byte of a direction by this much, without limiting how many are on their way.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.change(direction, |lane| lane.delay = delay);
    }

    /// Forwards nothing any more, not even the end of a connection, and keeps all connections: a hole in the network.
    pub fn stall(&self, direction: Direction) {
        self.change(direction, |lane| lane.stalled = true);
    }

    /// Takes bytes and forgets them, as long as connections live.
    pub fn drop_bytes(&self, direction: Direction) {
        self.change(direction, |lane| lane.dropping = true);
    }

    /// Ends delay, stall and dropping in both directions; what was stalled flows on. Refusal and traps stay.
    pub fn heal(&self) {
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.change(direction, |lane| *lane = Lane::default());
        }
    }

    /// Closes all connections that are open now.
    pub fn cut(&self) {
        let mut cut = self.shared.cut.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *cut, self.shared.end.child_token()).cancel();
    }

    /// Closes new connections at once, or lets them in again. Open ones stay.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refuse.send_replace(refuse);
    }

    /// Cuts the connection on which `pattern` passes, once, before or after the bytes are forwarded. After: the server
    /// gets them and may answer, and the client never learns. Dropping the trap disarms it.
    pub fn cut_on(&self, pattern: &[u8], direction: Direction, when: When) -> Trap {
        self.shared.traps.arm(pattern, direction, when)
    }

    /// Stops the first connection on which the steps pass one after another, in both directions, before or after the
    /// chunk with the last step is forwarded. The connection stands still until the halt is released; others flow on.
    ///
    /// # Panics
    /// There is no step, or a pattern is empty or longer than 256 bytes.
    pub fn halt_at(&self, steps: impl IntoIterator<Item = Step>, when: When) -> Halt {
        self.shared.halts.arm(steps.into_iter().collect(), when)
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        let counters = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Counts {
            connections: read(&counters.connections),
            refused: read(&counters.refused),
            open: read(&counters.open),
            bytes_to_server: read(&counters.bytes[0]),
            bytes_to_client: read(&counters.bytes[1]),
            turns: read(&counters.turns),
        }
    }

    fn change(&self, direction: Direction, change: impl FnOnce(&mut Lane)) {
        self.shared.lanes[direction.index()].send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.end.cancel();
    }
}

impl Shared {
    fn count(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, shared: &Arc<Shared>) {
    // Errors of accept are those of single connections, or of a machine without descriptors, which other tests notice.
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        if *shared.refuse.borrow() {
            Shared::count(&shared.counters.refused, 1);
            continue;
        }
        let token = shared.cut.lock().unwrap_or_else(PoisonError::into_inner).child_token();
        let shared = shared.clone();
        tokio::spawn(async move {
            let connected = token.run_until_cancelled(TcpStream::connect(&shared.upstream)).await;
            match connected {
                Some(Ok(server)) => connection::serve(client, server, &shared, token).await,
                Some(Err(_)) => Shared::count(&shared.counters.refused, 1),
                None => {}
            }
        });
    }
}

#[cfg(test)]
mod tests;
