use sekali_consumer::admin;
use sekali_consumer::config::Needs;

use crate::args::Global;
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) async fn run(global: &Global) -> Result<Outcome, Failure> {
    let config = super::load(global, Needs::Group)?;
    let lag = admin::lag(&config).await?;
    output::show(global.output, &lag, |lag| {
        let rows = lag.iter().map(|it| {
            [
                it.topic.clone(),
                it.partition.to_string(),
                it.committed.map_or("-".to_owned(), |it| it.to_string()),
                it.end.to_string(),
                it.lag.to_string(),
                if it.delayed { "delayed by design".to_owned() } else { String::new() },
            ]
        });
        let mut text = output::table(["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", ""], rows);
        let total = |delayed| lag.iter().filter(|it| it.delayed == delayed).map(|it| it.lag).sum::<i64>();
        text.push_str(&format!("\nsource topics: {} behind, retry topics: {} waiting\n", total(false), total(true)));
        text
    })?;
    Ok(Outcome::Done)
}
