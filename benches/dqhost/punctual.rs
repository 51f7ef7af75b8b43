//! What the example handler `punctual` prints, found in the logs of hosts.

use serde_json::Value;

use crate::support::Host;

/// One run of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) id: String,
    /// When it ran, unix microseconds.
    pub(crate) at_us: i128,
    /// How long after the due time; none for a message that never waited for one.
    pub(crate) late_us: Option<i128>,
}

/// A line of the log, if it is one of those that it printed.
pub(crate) fn run(line: &Value) -> Option<Run> {
    let words: Vec<&str> = line["message"].as_str()?.split(' ').collect();
    let ["at", at, "late", late] = words[..] else {
        return None;
    };
    Some(Run {
        id: line["id"].as_str()?.to_owned(),
        at_us: at.parse().ok()?,
        late_us: late.parse().ok(),
    })
}

/// Stops a host; all runs that it has logged.
pub(crate) fn runs_of(host: Host) -> Vec<Run> {
    host.signal(rustix::process::Signal::TERM);
    let (status, lines) = host.end();
    assert!(status.success(), "{status}: {lines:#?}");
    lines.iter().filter_map(run).collect()
}
