use sekali_consumer::config::{Config, Needs};
use sekali_consumer::operate::pauses::{self, Changed, Paused};
use sekali_consumer::operate::{self};

use crate::args::{Global, PauseArgs};
use crate::exit::{Failure, Outcome};
use crate::output;

/// Pauses, or takes a pause back.
pub(super) async fn change(global: &Global, args: PauseArgs, pauses: bool) -> Result<Outcome, Failure> {
    let config = super::super::load(global, Needs::Postgres)?;
    let group = args.group.clone().unwrap_or_else(|| config.consumer_name().to_owned());
    if group.is_empty() {
        return Err(Failure::usage("name the group: --group, or consumer.group in the configuration"));
    }
    if let Some(topic) = &args.topic {
        known(&config, &group, topic)?;
    }
    let pool = operate::open(&config).await?;
    let (topic, actor) = (args.topic.as_deref(), super::actor(&args.signed));
    let changed = match pauses {
        true => pauses::pause(&pool, &group, topic, &actor).await?,
        false => pauses::resume(&pool, &group, topic, &actor).await?,
    };
    output::show(global.output, &changed, text)?;
    let in_vain = changed.outcome == "not_paused" || (!pauses && changed.group_is_paused);
    Ok(if in_vain { Outcome::Found } else { Outcome::Done })
}

/// A topic that the configured group does not read is a slip of the finger.
fn known(config: &Config, group: &str, topic: &str) -> Result<(), Failure> {
    let topics = &config.consumer.topics;
    if group != config.consumer_name() || topics.is_empty() || topics.iter().any(|it| it == topic) {
        return Ok(());
    }
    let read = topics.join(", ");
    Err(Failure::usage(format!("group {group} does not read topic {topic}, but {read}; retry topics go with theirs")))
}

fn text(it: &Changed) -> String {
    let what = it.topic.as_ref().map_or_else(|| "all topics".to_owned(), |it| format!("topic {it}"));
    let group = &it.group;
    let text = match it.outcome {
        "paused" => format!("{what} of group {group}: paused; every worker stops within about 10 s\n"),
        "paused_already" => format!("{what} of group {group}: paused already\n"),
        "resumed" => format!("{what} of group {group}: resumed; every worker goes on within about 10 s\n"),
        _ => format!("{what} of group {group}: was not paused\n"),
    };
    let still = it.group_is_paused && it.topic.is_some() && !it.outcome.starts_with("paused");
    if still { text + "all topics of the group are paused: `sekali resume --all` takes that back\n" } else { text }
}

pub(super) async fn list(global: &Global, group: Option<&str>) -> Result<Outcome, Failure> {
    let paused = pauses::list(&super::database(global).await?, group).await?;
    output::show(global.output, &paused, |paused| {
        let rows = paused.iter().map(|it: &Paused| {
            let topic = it.topic.clone().unwrap_or_else(|| "(all)".to_owned());
            [it.group.clone(), topic, it.paused_at.to_string(), it.who.clone(), it.reason.clone()]
        });
        output::table(["GROUP", "TOPIC", "SINCE", "BY", "REASON"], rows)
    })?;
    Ok(Outcome::Done)
}
