//! The `dqhost` command: see the library's `cli` module.

use std::process::ExitCode;

fn main() -> ExitCode {
    dqhost::cli::main(std::env::args_os())
}
