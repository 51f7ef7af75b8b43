//! `docs/cli.md`: all commands and flags, as the parser has them.

use std::fmt::Write as _;
use std::path::Path;

use clap::Command;

use super::{STORE, WIDTH, command, of_store};

const START: &str = "\
# Commands and flags

This page is made from the help of the program: `dqhost COMMAND --help` prints the same. Limits and permissions of
handlers stand with `dqhost up` only, and the flags of the store at the end.
";

/// Flags of these headings are shown once: with `up`, and at the end of the page.
const SHOWN_ONCE: [&str; 2] = ["Handler limits and permissions", STORE];

const STORE_FLAGS: &str =
    "\n## Store flags\n\nThey are the same for every command that uses a store.\n";

const FIRST: &str = "up";

fn without(command: Command, headings: &[&str]) -> Command {
    command.mut_args(|arg| {
        let hides = arg
            .get_help_heading()
            .is_some_and(|heading| headings.contains(&heading));
        if hides { arg.hide(true) } else { arg }
    })
}

fn add(page: &mut String, command: &mut Command, name: &str) {
    let text = command.render_long_help().to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let _ = write!(
        page,
        "\n## {name}\n\n```text\n{}\n```\n",
        lines.join("\n").trim_end()
    );
}

/// A command and those below it, but for the hidden ones.
fn add_all(page: &mut String, command: &Command, name: &str) {
    for below in command.get_subcommands() {
        if below.is_hide_set() || below.get_name() == "help" {
            continue;
        }
        let hidden = if below.get_name() == FIRST {
            &SHOWN_ONCE[1..]
        } else {
            &SHOWN_ONCE[..]
        };
        let name = format!("{name} {}", below.get_name());
        add(page, &mut without(below.clone(), hidden), &name);
        add_all(page, below, &name);
    }
}

fn page() -> String {
    let mut command = command().term_width(WIDTH);
    command.build();
    let mut page = START.to_owned();
    // What it does without a command is what `up` does.
    let mut all = command.clone().mut_args(|arg| arg.hide(true));
    add(&mut page, &mut all, "dqhost");
    add_all(&mut page, &command, "dqhost");
    page += STORE_FLAGS;
    let store = of_store().term_width(WIDTH).render_long_help();
    let flags = store.to_string();
    let flags = flags
        .split_once("Store:\n")
        .map_or(flags.as_str(), |(_, flags)| flags);
    let lines: Vec<&str> = flags.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n```text\n{}\n```\n", lines.join("\n").trim_end());
    page
}

#[test]
fn the_reference_is_what_the_parser_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let page = page();
    if std::env::var_os("DQHOST_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/cli.md is not what the parser has: DQHOST_UPDATE_DOCS=1 cargo test --lib reference"
    );
}
