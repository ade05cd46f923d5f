//! What becomes of the records of one page. Pure: the decisions, not the sending.

use std::collections::VecDeque;

use sekali_schemas::Headers;

use super::cursor::Queued;

/// What the broker said about one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All in-sync replicas have it.
    Delivered,
    /// Refused for good, and nothing but the record itself can be the reason.
    Refused(Reason),
    /// Refused for good together with others: the record, or a neighbour in its batch.
    Suspect(Reason),
    /// No verdict: try again.
    Failed,
}

/// Why the broker refused a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason {
    /// Kafka's name of the error.
    pub(super) code: String,
    /// One sentence with the remedy.
    pub(super) message: String,
}

/// A record that goes to the dead letters.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) id: i64,
    pub(super) topic: String,
    pub(super) headers: Headers,
    pub(super) code: String,
    pub(super) message: String,
}

/// The undecided records of a page, in id order.
///
/// A broker refuses whole batches. Only a record that was refused alone is blamed; its neighbours are sent again without
/// it, and never before it.
pub(super) struct Page {
    items: VecDeque<Item>,
    refused: Vec<Refused>,
}

struct Item {
    queued: Queued,
    is_suspect: bool,
}

impl Page {
    pub(super) fn new(rows: Vec<Queued>) -> Page {
        Page { items: rows.into_iter().map(|queued| Item { queued, is_suspect: false }).collect(), refused: Vec::new() }
    }

    /// The records to send next, together: a suspect alone, else everything before the next suspect. Empty when all are
    /// decided.
    pub(super) fn next_run(&self) -> Vec<&Queued> {
        let len = match self.items.front() {
            Some(first) if first.is_suspect => 1,
            _ => self.items.iter().take_while(|it| !it.is_suspect).count(),
        };
        self.items.iter().take(len).map(|it| &it.queued).collect()
    }

    /// Takes the outcomes of a run, in its order. Returns how many of its records are decided.
    pub(super) fn apply(&mut self, outcomes: Vec<Outcome>) -> usize {
        let (run_len, refused_before) = (outcomes.len(), self.refused.len());
        assert!(run_len <= self.items.len(), "outcomes of records that were not sent");
        let mut again = Vec::new();
        let mut delivered = 0;
        let is_alone = run_len == 1;
        for (mut item, outcome) in self.items.drain(..run_len).zip(outcomes) {
            match outcome {
                Outcome::Delivered => delivered += 1,
                Outcome::Refused(reason) => self.refused.push(refuse(item.queued, reason)),
                Outcome::Suspect(reason) if is_alone => self.refused.push(refuse(item.queued, reason)),
                Outcome::Suspect(_) => {
                    item.is_suspect = true;
                    again.push(item);
                }
                Outcome::Failed => again.push(item),
            }
        }
        for item in again.into_iter().rev() {
            self.items.push_front(item);
        }
        delivered + self.refused.len() - refused_before
    }

    /// Everything up to this id is decided.
    pub(super) fn into_refused(self) -> Vec<Refused> {
        assert!(self.items.is_empty(), "a page ends when all its records are decided");
        self.refused
    }
}

fn refuse(queued: Queued, reason: Reason) -> Refused {
    let Reason { code, message } = reason;
    Refused { id: queued.id, topic: queued.record.topic, headers: queued.record.headers, code, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OutboundRecord;

    fn page(ids: impl IntoIterator<Item = i64>) -> Page {
        let record = OutboundRecord { topic: "t".to_owned(), key: None, payload: None, headers: Headers::default() };
        Page::new(ids.into_iter().map(|id| Queued { id, record: record.clone() }).collect())
    }

    fn run(page: &Page) -> Vec<i64> {
        page.next_run().iter().map(|it| it.id).collect()
    }

    fn reason() -> Reason {
        Reason { code: "MessageSizeTooLarge".to_owned(), message: String::new() }
    }

    #[test]
    fn only_what_was_refused_alone_is_blamed() {
        let mut page = page(1..=5);
        assert_eq!(run(&page), [1, 2, 3, 4, 5]);
        // A refused batch of 2 to 4 stops the producer, and with it 5.
        let outcomes = vec![
            Outcome::Delivered,
            Outcome::Suspect(reason()),
            Outcome::Suspect(reason()),
            Outcome::Suspect(reason()),
            Outcome::Failed,
        ];
        assert_eq!(page.apply(outcomes), 1);
        assert_eq!(run(&page), [2]);
        assert_eq!(page.apply(vec![Outcome::Delivered]), 1);
        assert_eq!(run(&page), [3]);
        assert_eq!(page.apply(vec![Outcome::Suspect(reason())]), 1);
        assert_eq!(run(&page), [4]);
        assert_eq!(page.apply(vec![Outcome::Failed]), 0);
        assert_eq!(run(&page), [4], "a failure clears nobody");
        page.apply(vec![Outcome::Delivered]);
        assert_eq!(run(&page), [5]);
        page.apply(vec![Outcome::Delivered]);
        assert!(run(&page).is_empty());
        let refused: Vec<i64> = page.into_refused().iter().map(|it| it.id).collect();
        assert_eq!(refused, [3]);
    }

    #[test]
    fn nothing_overtakes_a_suspect() {
        let mut page = page(1..=4);
        page.apply(vec![Outcome::Failed, Outcome::Suspect(reason()), Outcome::Failed, Outcome::Failed]);
        assert_eq!(run(&page), [1]);
        page.apply(vec![Outcome::Delivered]);
        assert_eq!(run(&page), [2]);
        page.apply(vec![Outcome::Refused(reason())]);
        assert_eq!(run(&page), [3, 4]);
    }

    #[test]
    fn what_is_surely_refused_needs_no_second_look() {
        let mut page = page(1..=2);
        assert_eq!(page.apply(vec![Outcome::Refused(reason()), Outcome::Delivered]), 2);
        assert_eq!(page.into_refused().len(), 1);
    }
}
