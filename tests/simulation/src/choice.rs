//! Where the choices of a world come from: from a seed, or from a script, of which one after the other is tried.

/// The source of a world's choices.
#[derive(Debug)]
pub(crate) enum Random {
    /// A pseudo-random sequence (splitmix64).
    Seed(u64),
    /// What is written down.
    Script(Script),
}

/// Choices that are written down; after its end the first possibility of each, with a note of how many there were.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    choices: Vec<usize>,
    /// Possibilities of each choice that was asked for.
    widths: Vec<usize>,
}

impl Random {
    /// Any number. Scripts know only one: it must not matter.
    pub(crate) fn next(&mut self) -> u64 {
        let Random::Seed(seed) = self else { return 0 };
        *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        match self {
            Random::Seed(_) => (self.next() % n as u64) as usize,
            Random::Script(script) => script.below(n),
        }
    }

    /// Yes or no; a seed says yes so rarely.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        match self {
            Random::Seed(_) => self.below(n) == 0,
            Random::Script(script) => script.below(2) == 1,
        }
    }
}

impl Script {
    fn below(&mut self, n: usize) -> usize {
        let choice = self.choices.get(self.widths.len()).copied().unwrap_or_default();
        self.widths.push(n);
        choice
    }

    /// The next one, after this one was asked for its choices; `None` when all were tried.
    pub(crate) fn following(self) -> Option<Script> {
        let Script { mut choices, widths } = self;
        choices.resize(widths.len(), 0);
        while let Some(last) = choices.pop() {
            if last + 1 < widths[choices.len()] {
                choices.push(last + 1);
                return Some(Script { choices, widths: Vec::new() });
            }
        }
        None
    }

    /// What was chosen.
    pub(crate) fn chosen(&self) -> String {
        let chosen = (0..self.widths.len()).map(|it| self.choices.get(it).copied().unwrap_or_default());
        chosen.map(|it| format!(" {it}")).collect()
    }
}

/// What may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A member dies between two steps.
    Crash,
    /// A member ends gracefully.
    Leave,
    /// A partition moves, and its owner may finish what is in hand.
    HandOver,
    /// The broker does not wait for a hand-over.
    Impatience,
    /// A partition moves, and its owner does not notice.
    TakeOver,
    /// A commit does not reach the broker.
    LostCommit,
    /// A transaction ends without a verdict.
    Interruption,
    /// A transaction is committed, and the answer gets lost.
    LostAnswer,
    /// The relay publishes a record once more.
    PublishedTwice,
    /// A client hands out records once more.
    ReadTwice,
    /// A lease ends although its owner is alive.
    LeaseEnds,
    /// An operator pauses the source topic.
    Pause,
}

/// How often something may still go wrong.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Faults {
    /// As chance has it.
    Chance,
    /// So many times, by kind.
    Left([u8; Fault::COUNT]),
}

impl Fault {
    const COUNT: usize = Fault::Pause as usize + 1;
}

impl Faults {
    pub(crate) fn of(kinds: &[Fault]) -> Faults {
        let mut left = [0; Fault::COUNT];
        for kind in kinds {
            left[*kind as usize] += 1;
        }
        Faults::Left(left)
    }

    pub(crate) fn may(&self, kind: Fault) -> bool {
        match self {
            Faults::Chance => true,
            Faults::Left(left) => 0 < left[kind as usize],
        }
    }

    pub(crate) fn use_up(&mut self, kind: Fault) {
        if let Faults::Left(left) = self {
            left[kind as usize] -= 1;
        }
    }
}
