//! How an operation ended.

use sekali_consumer::operate::Operation;

use super::text;
use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output;

/// Outcomes that were asked for.
const DONE: [&str; 5] = ["replaying", "republished", "discarded", "restored", "edited"];

/// Shows it. What is not over, or did not come out as asked, needs attention.
pub(super) fn ended(global: &Global, operation: &Operation) -> Result<Outcome, Failure> {
    output::show(global.output, operation, text::operation)?;
    let id = operation.id;
    if operation.state == "stopped" {
        output::note(&format!("stopped: go on with `sekali dlq resume {id}`, or end it with `sekali dlq cancel {id}`"));
    }
    for (other, who) in &operation.others {
        output::note(&format!("operation {other} of {who} came first for some of them"));
    }
    let refused = operation.outcomes.iter().any(|it| !DONE.contains(&it.0.as_str()));
    let over = matches!(operation.state.as_str(), "done" | "cancelled");
    Ok(if over && !refused { Outcome::Done } else { Outcome::Found })
}
