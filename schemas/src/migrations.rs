//! The SQL of schema `sekali`, in two parts, each in order. Whoever has a migration tool of their own may run the files
//! themselves: those of `sql/outbox` first, and those of `sql/inbox` where messages are consumed.
//!
//! Each migration only adds (expand, later contract), so that the old and the new version of the program can run side
//! by side. The result is pinned by a golden dump in the test suite.

#[allow(missing_docs)] // The macro writes a public module without any.
mod outbox {
    refinery::embed_migrations!("sql/outbox");
}

#[allow(missing_docs)] // As above.
mod inbox {
    refinery::embed_migrations!("sql/inbox");
}

/// A part of the schema, with versions of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What a service needs that publishes: outbox, relay, dead letters.
    Outbox,
    /// What a consumer needs besides.
    Inbox,
}

impl Part {
    /// All of them, in the order in which they are applied.
    pub const ALL: [Part; 2] = [Part::Outbox, Part::Inbox];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Outbox => "outbox",
            Part::Inbox => "inbox",
        }
    }

    /// Where the applied versions are noted. Whoever runs the migrations makes schema `sekali` first.
    pub fn table(self) -> &'static str {
        match self {
            Part::Outbox => "sekali.migration_outbox",
            Part::Inbox => "sekali.migration_inbox",
        }
    }

    /// The migrations as refinery runs them. `sekali_consumer::admin::migrate` wraps them in an advisory lock, which
    /// refinery does not take.
    pub fn runner(self) -> refinery::Runner {
        let mut runner = match self {
            Part::Outbox => outbox::migrations::runner(),
            Part::Inbox => inbox::migrations::runner(),
        };
        runner.set_migration_table_name(self.table());
        runner
    }

    /// Version of its newest migration, which a running program requires.
    pub fn latest_version(self) -> i64 {
        self.runner().get_migrations().iter().map(|it| i64::from(it.version())).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_rise_without_gaps() {
        for part in Part::ALL {
            let versions: Vec<i64> = part.runner().get_migrations().iter().map(|it| i64::from(it.version())).collect();
            assert_eq!(versions, (1..=part.latest_version()).collect::<Vec<_>>());
        }
    }
}
