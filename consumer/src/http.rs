//! HTTP requests that act once: header `Idempotency-Key`, for axum (feature `http`).
//!
//! The behaviour is that of the IETF's draft-ietf-httpapi-idempotency-key-header: 400 without a usable key, 409 while
//! the first request is in progress, 422 when the key comes with another body, and for a repeat the status and the body
//! of the first answer. Errors are `application/problem+json` (RFC 9457).
//!
//! Repeats that come while the first one works wait a while for its answer, without a connection, before they get 409.
//!
//! **What is stored**, and given to every repeat, is whatever the action answers with a status below 500: a deliberate
//! refusal (4xx) is as much a result as a success, as the draft has it, and what the action wrote stays. An answer of
//! 500 and more, and a [`Failure`], roll back and store nothing: the client may try again with the same key. A request
//! that is refused before the action runs (no key, a body that cannot be read) leaves nothing either.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use axum::response::{IntoResponse, Response};
//! use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
//! use sekali_consumer::deadpool_postgres::{Pool, Transaction};
//! use sekali_consumer::http::{Action, HttpInbox, KeyHeader, Problem, StoredResponse};
//! use sekali_consumer::once::OnceError;
//! use sekali_consumer::{Failure, Inbox};
//!
//! struct Pay {
//!     cents: i64,
//! }
//!
//! impl Pay {
//!     async fn insert(&self, tx: &Transaction<'_>) -> Result<StoredResponse, Failure> {
//!         let sql = "INSERT INTO payment (cents) VALUES ($1) RETURNING id";
//!         let id: i64 = tx.query_one(sql, &[&self.cents]).await?.get(0);
//!         Ok(StoredResponse::json(StatusCode::CREATED, &serde_json::json!({ "payment": id }))?)
//!     }
//! }
//!
//! impl Action for Pay {
//!     async fn act(&self, tx: &Transaction<'_>) -> Result<StoredResponse, OnceError<Failure>> {
//!         Ok(self.insert(tx).await?)
//!     }
//! }
//!
//! async fn payments(State(inbox): State<Arc<HttpInbox>>, KeyHeader(key): KeyHeader, body: Bytes) -> Response {
//!     match serde_json::from_slice(&body) {
//!         Ok(cents) => inbox.answer(&key, &body, &Pay { cents }).await,
//!         Err(_) => Problem::from(Failure::invalid("no number of cents")).into_response(),
//!     }
//! }
//!
//! # async fn example(pool: Pool) -> Result<(), sekali_consumer::Error> {
//! # let client = pool.get().await.unwrap();
//! // A scope for this one endpoint: on another one the same key is another action.
//! let inbox = HttpInbox::new(Inbox::open(&client, "payments").await?, pool);
//! let router: Router = Router::new().route("/payments", post(payments)).with_state(Arc::new(inbox));
//! # Ok(())
//! # }
//! ```

mod key;
mod problem;
mod response;

use std::future::Future;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use deadpool_postgres::{Pool, Transaction};
use sekali_schemas::{IdempotencyKey, fingerprint};

use crate::Failure;
use crate::once::{Inbox, Once, OnceError, until_decided};
pub use key::KeyHeader;
pub use problem::Problem;
pub use response::StoredResponse;

/// How long a repeat waits for the first request, unless said otherwise.
const WAIT: Duration = Duration::from_secs(5);

/// An inbox with what an HTTP handler needs to use it.
#[derive(Debug, Clone)]
pub struct HttpInbox {
    inbox: Inbox,
    pool: Pool,
    wait: Duration,
}

/// What a request asks for, written through the transaction that also holds the inbox row.
pub trait Action: Sync {
    /// Does it, and answers. Runs again when an earlier run kept nothing. Work that must be done once by another name
    /// as well is a call of [`Inbox::once`] in here.
    ///
    /// # Errors
    /// Whatever is to be rolled back: see [`Problem`] for what the client is told.
    fn act(&self, tx: &Transaction<'_>) -> impl Future<Output = Result<StoredResponse, OnceError<Failure>>> + Send;
}

/// How work ends when nothing is kept.
enum Ended {
    Failure(Failure),
    /// An answer of 500 or more.
    Unstored(StoredResponse),
}

impl HttpInbox {
    /// Answers from this inbox, each in a transaction of its own on a connection of the pool.
    pub fn new(inbox: Inbox, pool: Pool) -> HttpInbox {
        HttpInbox { inbox, pool, wait: WAIT }
    }

    /// How long a request waits for another one of the same key before it gets 409; 5 s unless said otherwise. Too
    /// short: repeats that come at once get 409 instead of the answer; too long: clients and proxies give up first.
    pub fn wait(mut self, wait: Duration) -> HttpInbox {
        self.wait = wait;
        self
    }

    /// The inbox itself, for calls inside the work.
    pub fn inbox(&self) -> Inbox {
        self.inbox
    }

    /// Does `action` for the first request of this key and commits; gives its answer to every repeat with the same
    /// body.
    pub async fn answer(&self, key: &IdempotencyKey, body: &[u8], action: &impl Action) -> Response {
        let fingerprint = fingerprint(Some(body));
        match until_decided(self.wait, || self.attempt(key, fingerprint, action)).await {
            Ok(answer) => answer.into_result().into_response(),
            Err(OnceError::Work(Ended::Unstored(answer))) => answer.into_response(),
            Err(error) => {
                let failed = error.map_work(|it| match it {
                    Ended::Failure(failure) => failure,
                    Ended::Unstored(_) => Failure::transient("an answer of 500 or more"),
                });
                Problem::from(failed).into_response()
            }
        }
    }

    async fn attempt(
        &self,
        key: &IdempotencyKey,
        fingerprint: i64,
        action: &impl Action,
    ) -> Result<Once<StoredResponse>, OnceError<Ended>> {
        let failed = |failure| OnceError::Work(Ended::Failure(failure));
        let mut client = self.pool.get().await.map_err(|error| failed(error.into()))?;
        let tx = client.transaction().await.map_err(|error| failed(error.into()))?;
        let work = async {
            let answer = action.act(&tx).await.map_err(|error| error.map_work(Ended::Failure))?;
            if answer.is_kept() { Ok(answer) } else { Err(OnceError::Work(Ended::Unstored(answer))) }
        };
        let answer = self.inbox.once(&tx, key, fingerprint, work).await.map_err(OnceError::flatten)?;
        // COMMIT of an aborted transaction rolls back and succeeds; that this one is not, the savepoint's release has
        // shown.
        tx.commit().await.map_err(|error| failed(error.into()))?;
        Ok(answer)
    }
}
