//! What a leader does during its term, one page at a time.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use deadpool_postgres::Pool;
use tokio::time::sleep;

use super::Backoff;
use super::cursor::{self, Fetched, State, Window};
use super::lease::Lease;
use super::page::{Outcome, Page, Refused};
use super::publisher::{Answers, Publisher};
use super::vacuum::Deleted;
use crate::{Error, metrics};

/// The same trouble is a warning once in this time.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A page was decided; the window has more.
    Published,
    /// The window is done.
    WindowEnded,
    /// Nothing waits.
    Idle,
    /// The database says that another leads.
    NotLeading,
}

/// One leader's work.
pub(super) struct Term<'a> {
    pool: &'a Pool,
    lease: &'a Lease,
    publisher: Publisher,
    deleted: &'a Deleted,
    page_messages_max: NonZeroUsize,
    is_adopted: bool,
    /// The window in hand and its next page, already read.
    ahead: Option<(Window, Fetched)>,
    warned_at: Option<Instant>,
    /// For Kafka, since that was asked last.
    waited: Duration,
}

impl<'a> Term<'a> {
    pub(super) fn new(
        pool: &'a Pool,
        lease: &'a Lease,
        publisher: Publisher,
        deleted: &'a Deleted,
        page_messages_max: NonZeroUsize,
    ) -> Term<'a> {
        let waited = Duration::ZERO;
        Term {
            pool,
            lease,
            publisher,
            deleted,
            page_messages_max,
            is_adopted: false,
            ahead: None,
            warned_at: None,
            waited,
        }
    }

    /// How long it waited for Kafka since this was asked last.
    pub(super) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Decides one page. After an error everything is read from the database again.
    pub(super) async fn step(&mut self) -> Result<Step, Error> {
        if !self.is_adopted {
            self.adopt().await?;
        }
        let (window, page) = match self.ahead.take() {
            Some(ahead) => ahead,
            None => match self.begin().await? {
                Ok(ahead) => ahead,
                Err(step) => return Ok(step),
            },
        };
        self.decide(window, page).await
    }

    async fn adopt(&mut self) -> Result<(), Error> {
        if cursor::adopt_after_restore(self.pool, self.lease).await? {
            tracing::warn!(
                "the outbox comes from another database cluster: its transaction numbers mean nothing here, so everything \
                 in it is published again"
            );
        }
        self.is_adopted = true;
        Ok(())
    }

    /// Takes up the open window or opens one.
    async fn begin(&self) -> Result<Result<(Window, Fetched), Step>, Error> {
        let window = match cursor::state(self.pool).await? {
            State::Idle => return Ok(Err(Step::Idle)),
            State::Open(window) => window,
            State::Waiting => match cursor::open(self.pool, self.lease).await? {
                Some(window) => window,
                None => return Ok(Err(Step::NotLeading)),
            },
        };
        let page = cursor::fetch(self.pool, &window, window.position, self.page_messages_max).await?;
        Ok(Ok((window, page)))
    }

    async fn decide(&mut self, window: Window, fetched: Fetched) -> Result<Step, Error> {
        let Fetched { rows, is_last } = fetched;
        let ids: Vec<i64> = rows.iter().map(|it| it.id).collect();
        let last_id = ids.last().copied().unwrap_or(window.position);
        let (pool, messages_max) = (self.pool, self.page_messages_max);
        // The next page is read while Kafka takes this one.
        let next = async {
            if is_last { Ok(None) } else { cursor::fetch(pool, &window, last_id, messages_max).await.map(Some) }
        };
        let (refused, next) = tokio::join!(self.publish(Page::new(rows)), next);
        let is_done = matches!(&next, Ok(None)) || matches!(&next, Ok(Some(next)) if next.rows.is_empty());
        if !cursor::advance(pool, self.lease, &window, &ids, is_done, &refused).await? {
            return Ok(Step::NotLeading);
        }
        self.deleted.add(ids.len());
        for it in &refused {
            metrics::OUTBOX_PUBLISHED.count(&[("result", "refused")]).increment(1);
            tracing::error!(
                outbox_id = it.id,
                topic = %it.topic,
                code = %it.code,
                reason = %it.message,
                "kafka refuses a record of the outbox for good: it is now a dead letter of consumer \"outbox\""
            );
        }
        if is_done {
            return Ok(Step::WindowEnded);
        }
        if let Some(next) = next? {
            self.ahead = Some((window, next));
        }
        Ok(Step::Published)
    }

    /// Returns when every record of the page is decided; trouble is waited out.
    async fn publish(&mut self, mut page: Page) -> Vec<Refused> {
        let began = Instant::now();
        let mut backoff = Backoff::default();
        loop {
            let run = page.next_run();
            if run.is_empty() {
                break;
            }
            let answers = self
                .publisher
                .publish(&run)
                .await
                .unwrap_or_else(|error| Answers { outcomes: vec![Outcome::Failed; run.len()], trouble: Some(error) });
            count(&answers.outcomes);
            let decided = page.apply(answers.outcomes);
            if let Some(error) = &answers.trouble {
                self.warn(error);
            }
            if 0 < decided {
                backoff = Backoff::default();
            } else if answers.trouble.is_some() {
                sleep(backoff.next()).await;
            }
        }
        self.waited += began.elapsed();
        metrics::OUTBOX_PUBLISH_DURATION.spread(&[]).record(began.elapsed());
        page.into_refused()
    }

    fn warn(&mut self, error: &Error) {
        if self.warned_at.is_some_and(|it| it.elapsed() < WARN_INTERVAL) {
            tracing::debug!(error = %error.chain(), "kafka did not take all records of the outbox; trying again");
            return;
        }
        self.warned_at = Some(Instant::now());
        tracing::warn!(error = %error.chain(), "kafka did not take all records of the outbox; trying again");
    }
}

fn count(outcomes: &[Outcome]) {
    let matching = |outcome: fn(&Outcome) -> bool| outcomes.iter().filter(|it| outcome(it)).count() as u64;
    let ok = matching(|it| *it == Outcome::Delivered);
    let failed = matching(|it| matches!(it, Outcome::Failed | Outcome::Suspect(_)));
    metrics::OUTBOX_PUBLISHED.count(&[("result", "ok")]).increment(ok);
    metrics::OUTBOX_PUBLISHED.count(&[("result", "failed")]).increment(failed);
}
