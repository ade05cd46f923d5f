//! The messages of one transaction: what they meet in the inbox, and what is written for them.

use sekali_schemas::{Message, control::ErrorInfo};
use serde_json::Value;
use uuid::Uuid;

use crate::config::OnKeyReuse;
use crate::core::Item;
use crate::core::retry::{Decision, Reason, failing_for};
use crate::core::verdict::{Arrival, Asking};
use crate::executor::Shared;
use crate::failure::{Failure, FailureClass};
use crate::handler::{Answer, Reply};
use crate::incoming::Incoming;
use crate::postgres::decision::{self, Failed, Guard, reuse_key};
use crate::postgres::inbox::{self, Request};
use crate::routes::Routes;

/// Items of one transaction, all from source topics or all from retry topics.
pub(crate) struct Batch<'a> {
    items: &'a [Item<Incoming>],
    /// One for each item that is a message, in order.
    requests: Vec<Request>,
    pub(crate) source_topic: std::sync::Arc<str>,
}

/// What became of the messages of a committed batch, one for each item.
pub(crate) struct Written {
    pub(crate) fates: Vec<Fate>,
    pub(crate) enqueued: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Processed,
    Duplicate,
    KeyReuseIgnored,
    Failed(Decision, FailureClass),
}

impl<'a> Batch<'a> {
    pub(crate) fn of(items: &'a [Item<Incoming>], routes: &Routes) -> Batch<'a> {
        let retry = items.first().is_some_and(|it| it.partition.retry);
        let request = |item: &Item<Incoming>| match &item.record.message {
            Incoming::Message(message) => Some(Request {
                key: message.idempotency_key().uuid(),
                asking: Asking { retry, attempt: message.attempt(), fingerprint: message.fingerprint() },
            }),
            Incoming::Invalid { .. } => None,
        };
        let requests = items.iter().filter_map(request).collect();
        let source_topic = items.first().map_or_else(|| "".into(), |it| routes.source_name(it.partition.topic).clone());
        Batch { items, requests, source_topic }
    }

    pub(crate) fn items(&self) -> &[Item<Incoming>] {
        self.items
    }

    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Sorts the items by what they met: to handle, to pass over, to bury at once.
    pub(crate) fn settle(&self, arrivals: &[Arrival], on_key_reuse: OnKeyReuse) -> Settled<'a> {
        let mut settled = Settled {
            items: self.items,
            messages: Vec::with_capacity(arrivals.len()),
            plans: Vec::with_capacity(self.items.len()),
        };
        let mut arrivals = arrivals.iter();
        for item in self.items {
            let plan = match &item.record.message {
                Incoming::Invalid { reason, .. } => {
                    Plan::bury(Reason::Invalid, FailureClass::Invalid, reason.to_string(), item.record.message.key())
                }
                Incoming::Message(message) => match arrivals.next() {
                    Some(Arrival::Handle) => {
                        settled.messages.push(message.clone());
                        Plan::Handle
                    }
                    Some(Arrival::KeyReuse) => key_reuse(message, on_key_reuse),
                    Some(Arrival::Orphan) => {
                        let text = "nobody decided the attempt before this one".to_owned();
                        Plan::bury(Reason::Orphan, FailureClass::Orphan, text, message.idempotency_key().uuid())
                    }
                    Some(Arrival::Duplicate) | None => Plan::Duplicate,
                },
            };
            settled.plans.push(plan);
        }
        settled
    }
}

fn key_reuse(message: &Message, on_key_reuse: OnKeyReuse) -> Plan {
    let key = message.idempotency_key().uuid();
    tracing::warn!(key = %key, origin = ?message.origin(), "idempotency key was used before with another payload");
    match on_key_reuse {
        OnKeyReuse::Ignore => Plan::KeyReuseIgnored,
        OnKeyReuse::DeadLetter => {
            let text = "the idempotency key was decided with another payload".to_owned();
            Plan::bury(Reason::KeyReuse, FailureClass::KeyReuse, text, reuse_key(key, message.fingerprint()))
        }
    }
}

enum Plan {
    Handle,
    Duplicate,
    KeyReuseIgnored,
    Bury { reason: Reason, class: FailureClass, text: String, row: Uuid },
}

impl Plan {
    fn bury(reason: Reason, class: FailureClass, text: String, row: Uuid) -> Plan {
        Plan::Bury { reason, class, text, row }
    }
}

/// A batch after its claim.
pub(crate) struct Settled<'a> {
    items: &'a [Item<Incoming>],
    /// To handle, in order.
    pub(crate) messages: Vec<Message>,
    plans: Vec<Plan>,
}

impl Settled<'_> {
    /// Writes results, rejections and burials into the open transaction.
    pub(crate) async fn write<H>(
        self,
        client: &deadpool_postgres::ClientWrapper,
        shared: &Shared<H>,
        replies: Vec<Reply>,
    ) -> Result<Written, Failure> {
        let mut results: Vec<(Uuid, Value)> = Vec::new();
        let mut failed: Vec<Failed<'_>> = Vec::new();
        let mut fates = Vec::with_capacity(self.items.len());
        let mut replies = replies.into_iter();
        for (item, plan) in self.items.iter().zip(self.plans) {
            let incoming = &item.record.message;
            let fate = match plan {
                Plan::Duplicate => Fate::Duplicate,
                Plan::KeyReuseIgnored => Fate::KeyReuseIgnored,
                Plan::Bury { reason, class, text, row } => {
                    let error = ErrorInfo::new(class.as_str(), "", &text);
                    let decision = Decision::Dead(reason);
                    failed.push(Failed { incoming, guard: Guard::NoRow(row), decision, error });
                    Fate::Failed(decision, class)
                }
                Plan::Handle => match replies.next().map_or(Answer::Done, |it| it.0) {
                    Answer::Done => Fate::Processed,
                    Answer::Stored(result) => {
                        results.push((incoming.key(), result));
                        Fate::Processed
                    }
                    Answer::Rejected(failure) => {
                        let decision = rejected(item, &failure, shared)?;
                        failed.push(Failed { incoming, guard: Guard::Claimed, decision, error: failure.info() });
                        Fate::Failed(decision, failure.class())
                    }
                },
            };
            fates.push(fate);
        }
        if !results.is_empty() {
            let (keys, values): (Vec<Uuid>, Vec<&Value>) = results.iter().map(|(key, value)| (*key, value)).unzip();
            inbox::store_results(client, shared.consumer_id, &keys, &values).await?;
        }
        if failed.is_empty() {
            return Ok(Written { fates, enqueued: false });
        }
        let now_ms = shared.clock.now_ms();
        let taken = decision::write(client, shared.consumer_id, &shared.routes, now_ms, &failed).await?;
        let mut taken = taken.into_iter();
        for fate in &mut fates {
            // Buried before: this is another copy of it.
            if matches!(fate, Fate::Failed(..)) && taken.next() == Some(false) {
                *fate = Fate::Duplicate;
            }
        }
        Ok(Written { fates, enqueued: true })
    }
}

/// The decision on a message that its handler refused before writing anything.
fn rejected<H>(item: &Item<Incoming>, failure: &Failure, shared: &Shared<H>) -> Result<Decision, Failure> {
    let crate::core::Outcome::Failed(kind) = failure.class().outcome() else {
        // No verdict on one message is no verdict on its transaction.
        return Err(Failure::new(FailureClass::Interrupted, failure.info().message));
    };
    let age = failing_for(shared.clock.now(), item.record.first_failed_at);
    // Only spreads delays: the key is as good as any number.
    let random = (item.record.message.key().as_u128() >> 32) as u64;
    Ok(shared.policy.decide(item.record.attempt, kind, age, random.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}
