//! `sekali console`: dead letters in a browser, and the same as an API.
//!
//! Pages are rendered on the server and work without JavaScript. What changes something goes through
//! [`sekali_consumer::operate`], as the command line does.

mod access;
mod answer;
mod api;
mod assets;
mod body;
mod door;
mod lag;
mod pages;
mod running;
mod selection;
mod view;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use sekali_consumer::config::{Config, ConsoleSection, Needs};
use sekali_consumer::operate::DeadLetters;
use sekali_consumer::shutdown_signal;
use sekali_worker::log;
use tokio::net::TcpListener;

use crate::args::Global;
use crate::commands::load;
use crate::exit::{Failure, Outcome};
use crate::output;

/// Largest body of a request, in bytes; an edited payload has a bound of its own.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Beyond the longest delay of a retry, until it counts as overdue.
const OVERDUE_AFTER: Duration = Duration::from_secs(300);

/// What every request needs.
pub(crate) struct Console {
    letters: DeadLetters,
    section: ConsoleSection,
    access: access::Access,
    masks: view::Masks,
    lag: lag::Lag,
    running: running::Running,
    /// A retry that was decided longer ago is overdue.
    retry_path: Duration,
    /// Whether payloads may be edited.
    edits: bool,
    edit_bytes_max: usize,
}

type Shared = Arc<Console>;

impl Console {
    async fn connect(config: Config) -> Result<Console, Failure> {
        let longest = config.retry.delays.iter().max().copied().unwrap_or_default();
        let payload = config.topics.message_bytes_max.get() as usize;
        Ok(Console {
            letters: DeadLetters::connect(&config).await?,
            access: access::Access::new(&config.console)?,
            masks: view::Masks::new(&config.console.mask),
            lag: lag::Lag::default(),
            running: running::Running::default(),
            retry_path: longest.mul_f64(1.0 + config.retry.jitter.clamp(0.0, 0.5)) + OVERDUE_AFTER,
            edits: config.operate.allow_edit && !config.console.read_only,
            // Escaped for a form, a byte becomes three.
            edit_bytes_max: payload.saturating_mul(3).saturating_add(BODY_BYTES_MAX),
            section: config.console,
        })
    }
}

/// Opens the port and serves until SIGTERM or Ctrl-C; operations in progress are stopped then, and can be resumed.
pub(crate) async fn run(global: &Global) -> Result<Outcome, Failure> {
    let config = load(global, Needs::Postgres)?;
    log::init(&config.log)?;
    let listen = config.console.listen;
    let watch = config.clone();
    let console: Shared = Arc::new(Console::connect(config).await?);
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Failure::error(format!("cannot open {listen}: {error}; set console.listen to another address"))
    })?;
    let address = listener.local_addr().unwrap_or(listen);
    let rights = if console.section.read_only {
        "read-only; console.read_only = false allows actions"
    } else {
        "actions allowed"
    };
    output::note(&format!("console on http://{address}/ ({rights})"));
    let watching = tokio::spawn(lag::watch(console.clone(), watch));
    let router = router(console.clone()).into_make_service_with_connect_info::<SocketAddr>();
    let served = axum::serve(listener, router).with_graceful_shutdown(shutdown_signal()).await;
    watching.abort();
    console.running.stop_all().await;
    served.map_err(|error| Failure::error(format!("the console failed: {error}")))?;
    Ok(Outcome::Done)
}

fn router(console: Shared) -> Router {
    Router::new()
        .merge(pages::routes(console.edit_bytes_max))
        .merge(api::routes(console.edit_bytes_max))
        .merge(assets::routes())
        .fallback(answer::not_found)
        .method_not_allowed_fallback(answer::not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(console.clone(), access::identify))
        .layer(from_fn(door::guard))
        .with_state(console)
}
