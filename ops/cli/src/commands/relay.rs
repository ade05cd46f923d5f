use sekali_consumer::config::Needs;
use sekali_consumer::{run_relay, shutdown_signal};
use sekali_worker::log;

use crate::args::Global;
use crate::exit::{Failure, Outcome};

pub(super) async fn run(global: &Global) -> Result<Outcome, Failure> {
    let config = super::load(global, Needs::Relay)?;
    log::init(&config.log)?;
    run_relay(&config, shutdown_signal()).await?;
    Ok(Outcome::Done)
}
