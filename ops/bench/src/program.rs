//! The programs under measurement.

use serde::{Deserialize, Serialize};

/// A program that drains the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Program {
    /// What people write first: one transaction an event, each statement awaited, one event after another.
    P0,
    /// The second attempt: the same, 32 events in progress, without order within a key.
    P0c,
    /// The best loop by hand on one connection: batches, one statement each for claim, ledger and quantities.
    P1,
    /// The same on two connections, with the partitions split between them: the upper bound.
    P1x,
    /// The same with a claim that does not go through speculative insertion.
    P1xPlain,
    /// By hand: one claim for the batch, two statements an event, all of them sent at once.
    P1e,
    /// By hand: one claim for the batch, two statements an event, each of them awaited.
    P1a,
    /// The product: the handler writes a batch with two statements.
    M1,
    /// The product: the handler sends two statements an event at once, in the batch's transaction.
    M2,
    /// The product: the handler awaits two statements an event, in the batch's transaction.
    M3,
    /// The product: one transaction an event, on as many connections as there are partitions.
    M4,
    /// A relay alone, as `sekali relay`.
    Relay,
}

/// How fast a program is, and so how many events it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// A few statements a batch.
    Sets,
    /// Statements an event, without waiting for each.
    Pipelined,
    /// A wait an event.
    Awaited,
}

impl Program {
    /// All that are compared, peers first.
    pub const ALL: [Program; 11] = [
        Program::P0,
        Program::P0c,
        Program::P1,
        Program::P1x,
        Program::P1xPlain,
        Program::P1e,
        Program::P1a,
        Program::M1,
        Program::M2,
        Program::M3,
        Program::M4,
    ];

    /// Its name in results and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Program::P0 => "P0",
            Program::P0c => "P0c",
            Program::P1 => "P1",
            Program::P1x => "P1x",
            Program::P1xPlain => "P1x-plain",
            Program::P1e => "P1e",
            Program::P1a => "P1a",
            Program::M1 => "M1",
            Program::M2 => "M2",
            Program::M3 => "M3",
            Program::M4 => "M4",
            Program::Relay => "relay",
        }
    }

    /// The program of a name.
    pub fn named(name: &str) -> Option<Program> {
        Program::ALL.into_iter().find(|it| it.name() == name)
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Program::P0 => "by hand, one transaction an event, sequential",
            Program::P0c => "by hand, one transaction an event, 32 in progress, no order",
            Program::P1 => "by hand, batches in three statements, one connection",
            Program::P1x => "by hand, batches in three statements, two connections",
            Program::P1xPlain => "P1x with the plain claim",
            Program::P1e => "by hand, one claim a batch, two statements an event, pipelined",
            Program::P1a => "by hand, one claim a batch, two statements an event, awaited",
            Program::M1 => "sekali, handler writes a batch in two statements",
            Program::M2 => "sekali, handler pipelines two statements an event",
            Program::M3 => "sekali, handler awaits two statements an event",
            Program::M4 => "sekali, one transaction an event",
            Program::Relay => "sekali relay",
        }
    }

    /// Whether it is the product rather than written by hand.
    pub fn is_product(self) -> bool {
        matches!(self, Program::M1 | Program::M2 | Program::M3 | Program::M4 | Program::Relay)
    }

    /// How fast it is.
    pub fn pace(self) -> Pace {
        match self {
            Program::P1 | Program::P1x | Program::P1xPlain | Program::M1 | Program::Relay => Pace::Sets,
            Program::P1e | Program::M2 => Pace::Pipelined,
            Program::P0 | Program::P0c | Program::P1a | Program::M3 | Program::M4 => Pace::Awaited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_found_by_its_name() {
        for program in Program::ALL {
            assert_eq!(Program::named(program.name()), Some(program));
        }
        assert_eq!(Program::named("relay"), None, "it drains nothing");
    }
}
