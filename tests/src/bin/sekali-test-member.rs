//! A member of a test's consumer group as a process of its own, which can be killed: the handler of
//! [`sekali_tests::scripted`] with the configuration file that is named as argument, or the effect of
//! [`sekali_tests::performing`] when its provider's address is in the environment.

use std::process::ExitCode;

use sekali_consumer::{Config, Consumer, shutdown_signal};
use sekali_tests::performing::Calling;
use sekali_tests::scripted::Scripted;

#[tokio::main]
async fn main() -> ExitCode {
    let path = std::env::args_os().nth(1).unwrap_or_default();
    let run = async {
        let config = Config::load(Some(path.as_ref()))?;
        match std::env::var("SEKALI_TEST_EFFECT") {
            Ok(provider) => {
                let calling = Calling::at(&provider).await;
                Consumer::connect_effect(config, calling).await?.run(shutdown_signal()).await
            }
            Err(_) => Consumer::connect(config, Scripted::default()).await?.run(shutdown_signal()).await,
        }
    };
    match run.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr)]
            {
                eprintln!("{}", error.chain());
            }
            ExitCode::FAILURE
        }
    }
}
