//! The help: a short one by what a user wants, and the whole one of the parser.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::{ContextValue, ErrorKind};
use clap::{Arg, Args, Command, CommandFactory};

use super::{Cli, Exit, StoreArgs};
use crate::text::printable;

/// The heading of the flags that say which store is used, and how. They are the same for all
/// commands, so that `-h` leaves them out.
pub(super) const STORE: &str = "Store";

const STORE_HINT: &str = "Store flags (--db, --redis and more): dqhost help store";

/// What `dqhost` alone and `dqhost -h` print, within 80 columns.
const SHORT: &str = "\
Delayed and retried messages, each handled in a WebAssembly sandbox of its own

Usage: dqhost --handler FILE [FLAGS]
       dqhost COMMAND [FLAGS]

Handle:
  --handler FILE          Handle messages, on a dashboard (also: up)
  check, run, component   Check a handler; try it; make it of a core module
  new, dev, wit, push     Make a handler; try each save; its interface; push it
Send:
  send                    Send messages: text, files, or a message a line
  topic list  topic subscribe  topic unsubscribe   Send to several queues
  serve                   Serve the HTTP API without handling messages
  token new               Make a token for the HTTP API
Look:
  top, keys               Open the dashboard without a host; list its keys
  stats                   Show how many messages are in each state
  list, get, events       List messages in one state; show one; follow events
  dead list               List dead letters with their reasons
Steer:
  pause, resume, purge    Pause or resume a queue; remove its waiting messages
  cancel, reschedule      Cancel waiting messages; change when they are due
  dead try                Run dead letters through another handler
  dead redrive  dead delete   Send dead letters again; delete them
Settings:
  config show             Show every setting, and where it comes from
  config check  config schema  Check dqhost.toml; print its JSON schema
  reload                  Make running hosts take over changed files
  schedule list           Show when schedules send messages
  schedule run            Send the message of a schedule now
  schedule pause  schedule resume  Stop a schedule for a while
Move and check:
  move, export, import    Move queues to another store, or to and from a file
  audit, backup, doctor   Mend damage; copy the file; check store and machine
  completions, man        Complete commands in a shell; write manual pages

Messages are kept in a file of yours, or where store flags or dqhost.toml say.
Flags of a command: dqhost COMMAND -h    Store flags: dqhost help store
Everything: dqhost --help
";

/// Columns of the help in a file or a pipe.
const WIDTH: usize = 80;

/// The parser, with the help as it is shown.
pub(super) fn command() -> Command {
    fitted(shaped(
        Cli::command().mut_subcommand("config", without_flags_of_host),
    ))
}

/// A terminal has its width; anything else has none.
fn fitted(command: Command) -> Command {
    if io::stdout().is_terminal() {
        command
    } else {
        command.term_width(WIDTH)
    }
}

/// The help names the variables of the environment. Their values may be secret, and they may hold
/// control characters.
fn without_values(arg: Arg) -> Arg {
    arg.hide_env_values(true)
}

/// Leaves the flags of `dqhost up` out of the help of the commands that take all of them.
fn without_flags_of_host(command: Command) -> Command {
    let hide = |arg: Arg| {
        let is_shown = ["config", "origin", "help"].contains(&arg.get_id().as_str());
        arg.hide(!is_shown)
    };
    command.mut_subcommands(|below| below.mut_args(hide))
}

/// A number below zero is a value: the flag refuses it by its name, where the parser would look for a flag `-1`.
fn with_negative_numbers(arg: Arg) -> Arg {
    let takes_one = arg.get_long().is_some() && arg.get_action().takes_values();
    if takes_one && !arg.is_allow_hyphen_values_set() {
        return arg.allow_negative_numbers(true);
    }
    arg
}

/// Leaves the flags of the store out of the short help, and says where they are.
fn shaped(command: Command) -> Command {
    let is_of_store = |arg: &Arg| arg.get_help_heading() == Some(STORE);
    let has_store = command.get_arguments().any(is_of_store);
    let has_more = command.get_after_help().is_some();
    let command = command
        .mut_args(|arg| {
            let hides = is_of_store(&arg) || arg.is_hide_short_help_set();
            with_negative_numbers(without_values(arg.hide_short_help(hides)))
        })
        .mut_subcommands(shaped);
    if has_store && !has_more {
        command.after_help(STORE_HINT)
    } else {
        command
    }
}

/// The flags of the store, as a command that has no others.
fn of_store() -> Command {
    StoreArgs::augment_args(Command::new("dqhost COMMAND"))
        .about("Choose where messages are kept: the same flags for every command")
        .disable_help_flag(true)
        .mut_args(without_values)
}

/// Prints what the parser does not know of: the short help, and that of the store's flags.
pub(super) fn asked_for(args: &[OsString]) -> Option<Exit> {
    let words: Vec<&str> = args.iter().skip(1).filter_map(|arg| arg.to_str()).collect();
    let text = match words.as_slice() {
        ["-h"] => SHORT.to_owned(),
        ["help", "store"] => fitted(of_store()).render_long_help().to_string(),
        _ => return None,
    };
    // Whoever asked may have gone.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Some(Exit::Done)
}

/// Prints what the parser says instead of an answer: help, a version, or what is wrong.
pub(super) fn refused(error: &clap::Error, args: &[OsString]) -> ExitCode {
    let is_bare = args.len() <= 1;
    if is_bare && error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = io::stderr().lock().write_all(SHORT.as_bytes());
        return Exit::Usage.into();
    }
    if error.use_stderr() {
        // It repeats what was given, which may be anything.
        for line in with_values_on_one_line(error).lines() {
            tell!("{}", printable(line));
        }
    } else {
        // Help and version.
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// What the parser says. Line breaks in a value that it repeats are written out, its own stay.
fn with_values_on_one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    error.context().fold(text, |text, (_, value)| match value {
        ContextValue::String(value) if value.contains('\n') => {
            text.replace(value, &printable(value))
        }
        _ => text,
    })
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that the parser knows, with those below them.
    fn names(command: &Command) -> Vec<String> {
        let commands = command.get_subcommands();
        let named = commands.filter(|command| command.get_name() != "help");
        named
            .flat_map(|command| {
                let below = command.get_subcommands().map(Command::get_name);
                let below: Vec<&str> = below.filter(|name| *name != "help").collect();
                match below.as_slice() {
                    [] => vec![command.get_name().to_owned()],
                    below => below
                        .iter()
                        .map(|name| format!("{} {name}", command.get_name()))
                        .collect(),
                }
            })
            .collect()
    }

    #[test]
    fn the_short_help_is_short_and_names_every_command() {
        assert!(SHORT.lines().count() < 40);
        assert!(SHORT.lines().all(|line| line.chars().count() <= 80));
        let words: Vec<&str> = SHORT.split([' ', ',', '\n', '(', ')', ':']).collect();
        for name in names(&command()) {
            let is_there = match name.split_once(' ') {
                Some(_) => SHORT.contains(&format!("  {name} ")),
                None => words.contains(&name.as_str()),
            };
            assert!(is_there, "{name}");
        }
    }

    #[test]
    fn the_help_of_a_command_and_of_each_flag_is_one_short_line() {
        fn check(command: &Command) {
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.chars().count() <= 60, "{}: {help}", command.get_name());
            }
            let about = command.get_about().map(ToString::to_string);
            let length = about.unwrap_or_default().chars().count();
            assert!(length <= 80, "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }
}
