//! The `dqhost` command: see the library's `cli` module.

#![warn(clippy::print_stderr, clippy::print_stdout)]

use std::process::ExitCode;

/// Gives back what handlers made the host take for a moment; the system's keeps much of it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Where tests end the process; builds for use have none of it.
    #[cfg(debug_assertions)]
    let _failpoints = fail::FailScenario::setup();
    dqhost::cli::main(std::env::args_os())
}
