use sekali_consumer::admin;
use sekali_consumer::config::Needs;
use sekali_schemas::migrations::Part;

use crate::args::{Global, MigrateArgs, PartArg};
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) async fn run(global: &Global, args: &MigrateArgs) -> Result<Outcome, Failure> {
    let config = super::load(global, Needs::Postgres)?;
    let parts: &[Part] = match args.only {
        Some(PartArg::Outbox) => &[Part::Outbox],
        None => &Part::ALL,
    };
    let report = admin::migrate(&config, parts).await?;
    output::show(global.output, &report, |report| {
        let applied = report.applied.iter().map(|it| format!("applied {} {} {}\n", it.part, it.version, it.name));
        let versions = report
            .versions
            .iter()
            .map(|(part, version)| format!("part {part} of schema sekali has version {version}\n"));
        applied.chain(versions).collect()
    })?;
    Ok(Outcome::Done)
}
