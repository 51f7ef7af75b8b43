//! The program's log.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::Usage;

/// Logs to stderr. A bare level is meant for this program; the libraries below keep to warnings.
pub(super) fn to_stderr(level: &str, json: bool) -> anyhow::Result<()> {
    let directives = match level {
        "error" | "warn" | "info" | "debug" | "trace" => {
            format!("warn,dqhost={level},guest={level}")
        }
        other => other.to_owned(),
    };
    let filter = EnvFilter::try_new(&directives)
        .map_err(|error| Usage(format!("--log {level:?} is not understood: {error}")))?;
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .with_target(false);
    let result = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.try_init()
    };
    result.map_err(|error| anyhow::anyhow!("the log cannot be set up: {error}"))
}
