//! Who changes something, and why.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

/// Why something is changed, and by whom: both are recorded in the audit.
#[derive(Debug, Clone, Args)]
pub(crate) struct Signed {
    /// Why; kept in the audit.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
    /// Who does this; by default the user of the operating system.
    #[arg(long, env = "SEKALI_ACTOR", value_name = "NAME")]
    actor: Option<String>,
}

impl Signed {
    pub(crate) fn actor(&self) -> String {
        let user = || ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|it| std::env::var(it).ok());
        let number = || format!("uid {}", nix::unistd::getuid());
        self.actor.clone().or_else(user).unwrap_or_else(number)
    }
}
