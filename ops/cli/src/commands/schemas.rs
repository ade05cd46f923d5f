mod baseline;
mod pending;

use std::path::{Path, PathBuf};

use sekali_consumer::config::Needs;
use sekali_producer::schemas::{SchemaFile, read_directory, with_built_in};

use crate::args::{Global, SchemaFiles, SchemasCommand};
use crate::exit::{Failure, Outcome};
use crate::output;

/// Where recorded schemas are unless said otherwise.
const BASELINE: &str = "schemas/baseline";

pub(super) async fn run(global: &Global, command: SchemasCommand) -> Result<Outcome, Failure> {
    match command {
        SchemasCommand::Check(args) if args.against_dlq => {
            pending::check(global, &current(global, &args.files)?, args.first).await
        }
        SchemasCommand::Check(args) => {
            let recorded = read(&recorded(&args.files)).map_err(|failure| {
                Failure::usage(format!(
                    "{failure}; name another with --baseline, or record with `sekali schemas record`"
                ))
            })?;
            baseline::check(global, &recorded, &current(global, &args.files)?)
        }
        SchemasCommand::Record(files) => baseline::record(global, &recorded(&files), &current(global, &files)?),
        SchemasCommand::Asyncapi => {
            output::print(&sekali_schemas::asyncapi::document())?;
            Ok(Outcome::Done)
        }
    }
}

fn recorded(files: &SchemaFiles) -> PathBuf {
    files.baseline.clone().unwrap_or_else(|| PathBuf::from(BASELINE))
}

/// The schemas as they are now.
fn current(global: &Global, files: &SchemaFiles) -> Result<Vec<SchemaFile>, Failure> {
    if let Some(directory) = &files.schemas {
        return read(directory);
    }
    let config = super::load(global, Needs::Nothing)?;
    with_built_in(config.schemas.directory.as_deref()).map_err(|problems| Failure::usage(problems.join("\n")))
}

fn read(directory: &Path) -> Result<Vec<SchemaFile>, Failure> {
    read_directory(directory).map_err(|problems| Failure::usage(problems.join("\n")))
}
