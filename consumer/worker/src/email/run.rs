//! The group as a process.

use std::path::PathBuf;
use std::time::Duration;

use lettre::message::Mailbox;
use secrecy::{ExposeSecret, SecretString};
use sekali_consumer::{Config, Consumer, Error, ErrorKind, SqlError, shutdown_signal};
use sekali_producer::config::secret;

use super::{Emails, Smtp, SmtpTls, create_tables};

/// What the email group needs beside its configuration.
#[derive(Debug, Clone, clap::Args)]
pub struct EmailArgs {
    /// Name or address of the mail server.
    #[arg(long, env = "SEKALI_EMAIL_SMTP_HOST", value_name = "HOST")]
    pub smtp_host: String,
    /// Its port: usually 587 with STARTTLS, 465 with implicit TLS.
    #[arg(long, env = "SEKALI_EMAIL_SMTP_PORT", default_value_t = 587, value_name = "PORT")]
    pub smtp_port: u16,
    /// How the connection is encrypted. Certificates are held against those of the system.
    #[arg(long, env = "SEKALI_EMAIL_SMTP_TLS", value_enum, default_value_t = SmtpTls::Starttls, value_name = "HOW")]
    pub smtp_tls: SmtpTls,
    /// User to log in as, when the server wants it. The password is in the variable SEKALI_EMAIL_SMTP_PASSWORD, or in a
    /// file.
    #[arg(long, env = "SEKALI_EMAIL_SMTP_USER", hide_env_values = true, value_name = "USER")]
    pub smtp_user: Option<String>,
    /// File that holds the password.
    #[arg(long, env = "SEKALI_EMAIL_SMTP_PASSWORD_FILE", value_name = "FILE")]
    pub smtp_password_file: Option<PathBuf>,
    /// Longest wait for a connection, and again for a mail to be taken, in milliseconds; both together below
    /// effects.perform_timeout.
    #[arg(long, default_value_t = 20_000, value_name = "MS")]
    pub smtp_timeout_ms: u32,
    /// Sender of every mail, "name@example.com" or "Name <name@example.com>". Its domain is part of each Message-ID.
    #[arg(long, env = "SEKALI_EMAIL_FROM", value_name = "ADDRESS")]
    pub from: Mailbox,
    /// Create the table email_delivery first, where it is missing.
    #[arg(long)]
    pub create_tables: bool,
}

const PASSWORD: &str = "SEKALI_EMAIL_SMTP_PASSWORD";

/// Consumes the configured topics until SIGTERM or SIGINT.
///
/// # Errors
/// Arguments that do not fit together; as [`Consumer::connect_effect`] and [`Consumer::run`]. A mail server that cannot
/// be reached is none: mails wait for it.
pub async fn run(config: Config, arguments: EmailArgs) -> Result<(), Error> {
    let password = std::env::var(PASSWORD).ok().map(SecretString::from);
    let smtp = mail_server(&arguments, password, config.effects.perform_timeout)?;
    // Connections of its own: notes and batches do not wait for each other's.
    let pool = config.postgres.pool("sekali-worker")?;
    let emails = Emails::new(smtp, arguments.from, pool.clone());
    let consumer = Consumer::connect_effect(config, emails).await?;
    // Not before it is clear that everything else is in place: a failed start writes nothing.
    if arguments.create_tables {
        let connect = |error| Error::new(ErrorKind::Postgres, "connect to postgresql for notes").because(error);
        let client = pool.get().await.map_err(connect)?;
        let failed =
            |error| Error::new(ErrorKind::Postgres, "create the table email_delivery").because(SqlError::of(&error));
        create_tables(&client).await.map_err(failed)?;
    }
    consumer.run(shutdown_signal()).await
}

/// Checks what the arguments say together. No text shows a secret.
pub(super) fn mail_server(
    arguments: &EmailArgs,
    password: Option<SecretString>,
    perform_timeout: Duration,
) -> Result<Smtp, Error> {
    let refused = |doing: &str, why: &str| Err(Error::new(ErrorKind::Config, doing).because(why.to_owned()));
    let timeout = Duration::from_millis(arguments.smtp_timeout_ms.into());
    if timeout.is_zero() || perform_timeout <= 2 * timeout {
        return refused(
            "use --smtp-timeout-ms",
            "it must not be 0, and twice as much must be below effects.perform_timeout",
        );
    }
    let domain = arguments.from.email.domain();
    if !domain.is_ascii() {
        return refused(
            "use --from",
            "its domain must be written in ASCII (xn--...), as it is part of each Message-ID",
        );
    }
    let file = arguments.smtp_password_file.as_deref();
    if password.is_some() && file.is_some() {
        return refused("find the password", "SEKALI_EMAIL_SMTP_PASSWORD and its file are both set: keep one of them");
    }
    let password = secret::resolve("smtp_password", password.as_ref(), file)?;
    let unusable = |error| Error::new(ErrorKind::Config, "prepare TLS to the mail server").because(error);
    let (host, port, tls) = (&arguments.smtp_host, arguments.smtp_port, arguments.smtp_tls);
    let smtp = Smtp::new(host, port, tls, domain, timeout).map_err(unusable)?;
    match (&arguments.smtp_user, password) {
        (None, None) => Ok(smtp),
        (Some(_), Some(_)) if tls == SmtpTls::None => {
            refused("log in to the mail server", "a password needs TLS: set --smtp-tls to starttls or implicit")
        }
        (Some(user), Some(password)) => Ok(smtp.login(user.clone(), password.expose_secret().to_owned())),
        _ => refused("log in to the mail server", "user and password go together: set both, or neither"),
    }
}
