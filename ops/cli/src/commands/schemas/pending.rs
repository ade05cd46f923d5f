//! Messages that are on their way, or given up, held against schemas.

use sekali_consumer::admin::unreadable::{self, Unreadable};
use sekali_consumer::config::Needs;
use sekali_producer::schemas::{SchemaFile, Schemas};

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) async fn check(global: &Global, current: &[SchemaFile], first: usize) -> Result<Outcome, Failure> {
    let schemas = Schemas::only(current).map_err(|problems| Failure::usage(problems.join("\n")))?;
    let config = crate::commands::load(global, Needs::Everything)?;
    let found = unreadable::unreadable(&config, schemas, first).await?;
    output::show(global.output, &found, text)?;
    Ok(if found.refused == 0 { Outcome::Done } else { Outcome::Found })
}

fn text(found: &Unreadable) -> String {
    let rows = found.counts.iter().map(|it| {
        let ty = it.ty.clone().unwrap_or_else(|| "without a schema".to_owned());
        [it.place.as_str().to_owned(), ty, it.messages.to_string(), it.refused.to_string()]
    });
    let mut text = output::table(["PLACE", "TYPE", "MESSAGES", "REFUSED"], rows);
    if !found.first.is_empty() {
        let rows = found.first.iter().map(|it| [it.place.as_str().to_owned(), it.id.clone(), it.refusal.clone()]);
        text.push('\n');
        text.push_str(&output::table(["PLACE", "ID", "REFUSED BECAUSE"], rows));
    }
    text.push_str(&format!("\n{} of {} messages could not be read\n", found.refused, found.messages));
    text
}
