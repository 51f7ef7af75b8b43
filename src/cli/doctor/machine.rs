//! What there is to say of this machine and this terminal.

use std::io::{self, IsTerminal};

use rustix::process::{Resource, getrlimit};

use super::Findings;

/// Files that a host may open at least: connections of handlers and of the HTTP API.
const FILES_MIN: u64 = 1024;

/// The smallest screen on which panels have room.
const SCREEN_MIN: (u16, u16) = (30, 6);

pub(super) fn look(findings: &mut Findings) {
    limits(findings);
    terminal(findings, &|name| std::env::var(name).ok());
}

fn limits(findings: &mut Findings) {
    match getrlimit(Resource::Nofile).current {
        Some(files) if files < FILES_MIN => findings.warn(
            "open files",
            format!("this process may open {files}"),
            "raise it: `ulimit -n 65536`, or LimitNOFILE= of the service",
        ),
        Some(files) => findings.ok("open files", format!("this process may open {files}")),
        None => findings.ok("open files", "there is no limit"),
    }
    match getrlimit(Resource::As).current {
        Some(bytes) => findings.warn(
            "addresses",
            format!("the address space has a limit of {} MiB", bytes >> 20),
            "remove it: `ulimit -v unlimited`. Each slot reserves about 8 GiB of it",
        ),
        None => findings.ok("addresses", "the address space has no limit"),
    }
}

fn terminal(findings: &mut Findings, variable: &dyn Fn(&str) -> Option<String>) {
    let about = "terminal";
    let term = variable("TERM").unwrap_or_default();
    if !io::stdout().is_terminal() {
        return findings.ok(about, "there is none, so a host prints log lines");
    }
    if term.is_empty() || term == "dumb" {
        let mend = "set TERM, as to xterm-256color";
        return findings.warn(about, "TERM tells nothing of it: no dashboard", mend);
    }
    let (columns, rows) = crossterm::terminal::size().unwrap_or((0, 0));
    if columns < SCREEN_MIN.0 || rows < SCREEN_MIN.1 {
        let what = format!("it has {columns} columns and {rows} rows");
        findings.warn(about, what, "make it 30 columns by 6 rows or larger");
    } else {
        let what = format!(
            "{term}, {columns} columns and {rows} rows, {}",
            colours(&term, variable)
        );
        findings.ok(about, what);
    }
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let locale = locale.filter_map(variable).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    if locale.contains("utf-8") || locale.contains("utf8") {
        findings.ok("characters", "the locale says UTF-8");
    } else {
        let mend = "set LANG, as to C.UTF-8, or give --ascii";
        findings.warn("characters", "the locale does not say UTF-8", mend);
    }
}

fn colours(term: &str, variable: &dyn Fn(&str) -> Option<String>) -> &'static str {
    let is_set = |name| variable(name).is_some_and(|value: String| !value.is_empty());
    if is_set("NO_COLOR") {
        "without colours (NO_COLOR)"
    } else if is_set("COLORTERM") {
        "all colours"
    } else if term.contains("256color") {
        "256 colours"
    } else {
        "16 colours"
    }
}
