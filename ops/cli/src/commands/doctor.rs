mod checklist;

use sekali_consumer::admin::doctor::{self, Status};
use sekali_consumer::config::Needs;

use crate::args::{DoctorArgs, Global};
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) async fn run(global: &Global, args: DoctorArgs) -> Result<Outcome, Failure> {
    if args.checklist {
        return checklist::run(global, args).await;
    }
    if let Some(unknown) = args.check.iter().find(|it| !doctor::NAMES.contains(&it.as_str())) {
        return Err(Failure::usage(format!("no check is named \"{unknown}\": use {}", doctor::NAMES.join(", "))));
    }
    let config = super::load(global, Needs::Everything)?;
    let checks = doctor::doctor(&config, &args.check).await;
    output::show(global.output, &checks, |checks| {
        // Sentences, not columns: a finding may be longer than a terminal is wide.
        let line = |it: &doctor::Check| {
            let found = format!("{:<8} {:<12} {}\n", it.status.as_str(), it.name, it.finding);
            if it.remedy.is_empty() { found } else { format!("{found}{:22}-> {}\n", "", it.remedy) }
        };
        checks.iter().map(line).collect()
    })?;
    // What could not be looked at is not known to be well.
    let found = checks.iter().any(|it| matches!(it.status, Status::Fail | Status::Skipped));
    Ok(if found { Outcome::Found } else { Outcome::Done })
}
