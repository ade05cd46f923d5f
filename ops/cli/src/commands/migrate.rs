use sekali_consumer::admin;
use sekali_consumer::config::Needs;

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) async fn run(global: &Global) -> Result<Outcome, Failure> {
    let config = super::load(global, Needs::Postgres)?;
    let report = admin::migrate(&config).await?;
    output::show(global.output, &report, |report| {
        let mut text: String =
            report.applied.iter().map(|it| format!("applied {} {}\n", it.version, it.name)).collect();
        text.push_str(&format!("schema sekali has version {}\n", report.version));
        text
    })?;
    Ok(Outcome::Done)
}
