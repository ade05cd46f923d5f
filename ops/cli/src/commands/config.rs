use sekali_consumer::config::{Config, Needs};
use serde_json::json;

use crate::args::{ConfigCommand, Global};
use crate::exit::{Failure, Outcome};
use crate::output;

pub(super) fn run(global: &Global, command: &ConfigCommand) -> Result<Outcome, Failure> {
    match command {
        ConfigCommand::Check => {
            super::load(global, Needs::Everything)?;
            let file = super::file(global).map(|it| it.display().to_string());
            let result = json!({ "ok": true, "file": file });
            output::show(global.output, &result, |_| match &file {
                Some(file) => format!("{file} is usable"),
                None => "the environment is usable; there is no file".to_owned(),
            })?;
        }
        ConfigCommand::Print { defaults: true } => print(global, &Config::print_defaults())?,
        ConfigCommand::Print { defaults: false } => print(global, &super::load(global, Needs::Nothing)?.print())?,
    }
    Ok(Outcome::Done)
}

fn print(global: &Global, text: &str) -> Result<(), Failure> {
    let table: toml::Table =
        text.parse().map_err(|error| Failure::error(format!("cannot read the printed configuration: {error}")))?;
    output::show(global.output, &table, |_| text.to_owned())
}
