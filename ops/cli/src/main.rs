//! The operator's command line of Sekali.

use std::process::ExitCode;

fn main() -> ExitCode {
    sekali::main()
}
