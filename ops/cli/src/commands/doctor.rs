use sekali_consumer::admin::doctor::{self, Status};
use sekali_consumer::config::Needs;

use crate::args::{DoctorArgs, Global};
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) async fn run(global: &Global, args: DoctorArgs) -> Result<Outcome, Failure> {
    if let Some(unknown) = args.check.iter().find(|it| !doctor::NAMES.contains(&it.as_str())) {
        return Err(Failure::usage(format!("no check is named \"{unknown}\": use {}", doctor::NAMES.join(", "))));
    }
    let config = super::load(global, Needs::Everything)?;
    let checks = doctor::doctor(&config, &args.check).await;
    output::show(global.output, &checks, |checks| {
        let rows = checks
            .iter()
            .map(|it| [it.status.as_str().to_owned(), it.name.to_owned(), it.finding.clone(), it.remedy.clone()]);
        output::table(["STATUS", "CHECK", "FINDING", "REMEDY"], rows)
    })?;
    let failed = checks.iter().any(|it| it.status == Status::Fail);
    Ok(if failed { Outcome::Found } else { Outcome::Done })
}
