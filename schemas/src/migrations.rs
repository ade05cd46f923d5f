//! The SQL of schema `sekali`, in order. Whoever has a migration tool of their own may run the files themselves.
//!
//! Each migration only adds (expand, later contract), so that the old and the new version of the program can run side
//! by side. The result is pinned by a golden dump in the test suite.

#[allow(missing_docs)] // The macro writes a public module without any.
mod embedded {
    refinery::embed_migrations!("sql");
}

/// The migrations as refinery runs them. `sekali_consumer::admin::migrate` wraps them in an advisory lock, which
/// refinery does not take.
pub fn runner() -> refinery::Runner {
    let mut runner = embedded::migrations::runner();
    runner.set_migration_table_name(TABLE);
    runner
}

/// Where the applied versions are noted. Whoever runs the migrations makes schema `sekali` first.
pub const TABLE: &str = "sekali.migration";

/// Version of the newest migration, which a running program requires.
pub fn latest_version() -> i64 {
    runner().get_migrations().iter().map(|it| i64::from(it.version())).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_rise_without_gaps() {
        let versions: Vec<i64> = super::runner().get_migrations().iter().map(|it| i64::from(it.version())).collect();
        let expected: Vec<i64> = (1..=super::latest_version()).collect();
        assert_eq!(versions, expected);
    }
}
