//! The reference consumer groups as one program: `sekali-worker stock`, `invoice`, `email`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use sekali_consumer::{Config, Consumer, Error, ErrorKind, SqlError, shutdown_signal};
use sekali_producer::config::PostgresSection;
use sekali_worker::email::EmailArgs;
use sekali_worker::invoice::InvoiceArgs;
use sekali_worker::stock::{Stock, StockMode, create_tables};
use sekali_worker::{email, invoice, log};

/// Runs a consumer group until SIGTERM or SIGINT, then finishes what is in hand and leaves the group.
///
/// Exit status: 0 stopped as asked, 1 error, 2 usage or configuration.
#[derive(Parser)]
#[command(name = "sekali-worker", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    /// Configuration file; without one, the environment alone (SEKALI_SECTION__KEY).
    #[arg(long, global = true, env = "SEKALI_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    group: Group,
}

#[derive(Subcommand)]
enum Group {
    /// Keep quantities by SKU, and a ledger of every movement.
    Stock(StockArgs),
    /// Make one invoice for each order, from a topic and from POST /webhooks/orders.
    Invoice(InvoiceArgs),
    /// Send one mail for each type, user and period.
    Email(EmailArgs),
}

#[derive(Args)]
struct StockArgs {
    /// How movements are written.
    #[arg(long, value_enum, default_value_t = StockMode::Batch)]
    mode: StockMode,
    /// Create the tables stock and stock_movement first, where they are missing.
    #[arg(long)]
    create_tables: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&Error::new(ErrorKind::System, "start the runtime").because(error)),
    };
    let result = runtime.block_on(run(cli));
    // A handler that was left behind at the drain timeout must not hold up the exit.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

async fn run(cli: Cli) -> Result<(), Error> {
    let config = Config::load(cli.config.as_deref())?;
    log::init(&config.log)?;
    match cli.group {
        Group::Stock(arguments) => run_stock(config, arguments).await,
        Group::Invoice(arguments) => Box::pin(invoice::run(config, arguments)).await,
        Group::Email(arguments) => Box::pin(email::run(config, arguments)).await,
    }
}

async fn run_stock(config: Config, arguments: StockArgs) -> Result<(), Error> {
    let postgres = config.postgres.clone();
    let consumer = Consumer::connect(config, Stock::new(arguments.mode)).await?;
    // Not before it is clear that everything else is in place: a failed start writes nothing.
    if arguments.create_tables {
        create(&postgres).await?;
    }
    consumer.run(shutdown_signal()).await
}

async fn create(postgres: &PostgresSection) -> Result<(), Error> {
    let failed = |error: tokio_postgres::Error| {
        Error::new(ErrorKind::Postgres, "create the tables stock and stock_movement").because(SqlError::of(&error))
    };
    let client = postgres.connect("sekali-worker").await?;
    create_tables(&client).await.map_err(failed)
}

fn fail(error: &Error) -> ExitCode {
    // Nobody to tell when standard error is closed.
    let _ = writeln!(std::io::stderr(), "error: {}", error.chain());
    ExitCode::from(if error.kind() == ErrorKind::Config { 2 } else { 1 })
}
