use sekali_consumer::admin::topics::{self, Action, Plan};
use sekali_consumer::config::Needs;

use crate::args::{Global, TopicsCommand};
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) async fn run(global: &Global, command: TopicsCommand) -> Result<Outcome, Failure> {
    let config = super::load(global, Needs::Group)?;
    match command {
        TopicsCommand::Plan { exit_code } => {
            let plan = topics::plan(&config).await?;
            output::show(global.output, &plan, |plan| text(plan, false))?;
            let differs = plan.topics.iter().any(|it| it.action != Action::Keep || !it.problems.is_empty());
            Ok(if exit_code && differs { Outcome::Found } else { Outcome::Done })
        }
        TopicsCommand::Apply => {
            let plan = topics::apply(&config).await?;
            output::show(global.output, &plan, |plan| text(plan, true))?;
            let stuck = plan.topics.iter().any(|it| !it.problems.is_empty());
            Ok(if stuck { Outcome::Found } else { Outcome::Done })
        }
    }
}

fn text(plan: &Plan, applied: bool) -> String {
    let rows = plan.topics.iter().map(|topic| {
        let action = match (topic.action, applied) {
            (Action::Keep, _) => "keep",
            (Action::Create, false) => "create",
            (Action::Create, true) => "created",
            (Action::Alter, false) => "alter",
            (Action::Alter, true) => "altered",
        };
        let settings = topic.settings.iter().map(|it| match &it.now {
            Some(now) => format!("{} {now} -> {}", it.name, it.wanted),
            None => format!("{} {}", it.name, it.wanted),
        });
        let details: Vec<String> = settings.collect();
        [
            action.to_owned(),
            topic.name.clone(),
            topic.role.as_str().to_owned(),
            topic.partitions.to_string(),
            details.join(", "),
        ]
    });
    let mut text = output::table(["ACTION", "TOPIC", "ROLE", "PARTITIONS", "SETTINGS"], rows);
    for topic in &plan.topics {
        for problem in &topic.problems {
            text.push_str(&format!("\nneeds you: {}: {problem}\n", topic.name));
        }
    }
    text
}
