//! The command line: what can be asked for, and the one place that puts concrete parts together.

#![expect(
    clippy::doc_markdown,
    reason = "doc comments of arguments are help texts"
)]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::format::time;
use crate::runtime::{CHILD_COMMAND, HandlerError};
use crate::store::StoreError;
use crate::text::printable;

/// Writes a line to stderr. If its reader is gone, the line is lost and the command goes on:
/// `eprintln!` would panic.
macro_rules! tell {
    ($($text:tt)*) => {{
        let line = format!($($text)*) + "\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }};
}

mod audit;
mod backoff_args;
mod backup;
mod cancel;
mod check;
mod compile;
mod completions;
mod component;
mod config;
mod dead;
mod dead_try;
mod dev;
mod doctor;
mod events;
mod export;
mod fail_if;
mod folder;
mod get;
mod handlers;
mod hardening;
mod help;
mod host_args;
mod import;
mod keys;
mod limits;
mod lines;
mod list;
mod list_ended;
mod listen;
mod log;
mod machine_memory;
mod man;
mod move_queue;
mod new;
mod number;
mod open;
mod opened;
mod outcome;
mod page;
mod passed_sockets;
mod payload;
mod plans;
mod print;
mod prompt;
mod purge;
mod push;
mod queue_limits;
mod queues;
mod reload;
mod run;
mod running;
mod sandbox;
mod schedule;
mod screen;
mod send;
mod serve;
mod service;
mod signals;
mod signers;
mod source;
mod stats;
mod steer;
mod store_args;
mod table;
mod token;
mod topic;
mod traces;
mod up;
mod watched;
mod which;
mod wit;

use passed_sockets::PassedSockets;
use store_args::{DurabilityArg, QueueArg, RedisArgs, SettingsArgs, StoreArgs};

/// The queue that is meant when none is named.
const DEFAULT_QUEUE: &str = "default";

const EXAMPLES: &str = "\
Examples:
  dqhost --handler h.wasm                       Handle messages on the dashboard
  dqhost send '{\"order\":1}' --in 30s            Send a message due in 30 s
  dqhost stats                                  Count the messages in each state
  dqhost dead list                              Show what failed, and why
  dqhost --handler h.wasm --redis redis://HOST  Share the work of machines

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the store is not reachable or not
usable, 4 the handler is not valid, 5 partly done, 6 run: the handler rejected
the message.";

/// Delayed and retried messages, each handled in a WebAssembly sandbox of its own.
#[derive(Debug, Parser)]
#[command(name = "dqhost", version, args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    up: host_args::UpArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Handle messages (also: dqhost without a command)
    Up(Box<host_args::UpArgs>),
    /// Send messages
    Send(send::SendArgs),
    /// Show how many messages are in each state, and totals
    Stats(stats::StatsArgs),
    /// Show one message with its failed attempts
    Get(get::GetArgs),
    /// List the messages in one state
    List(list::ListArgs),
    /// Print what happens on queues, as JSON lines
    ///
    /// With --follow it prints what happens from now on, by all hosts, until it is stopped. It is best
    /// effort: what is missing is a line with the event gap, as far as that is known.
    Events(events::EventsArgs),
    /// Cancel waiting messages
    Cancel(cancel::CancelArgs),
    /// Change when waiting messages are due [default: now]
    Reschedule(steer::RescheduleArgs),
    /// Remove all waiting messages of a queue
    ///
    /// It removes the messages that are pending, ready or in retry when it begins, and with --dead the
    /// dead letters. What arrives later stays, and so does what is in flight.
    Purge(purge::PurgeArgs),
    /// Pause delivery of a queue until `resume`
    Pause(steer::PauseArgs),
    /// Resume delivery of a paused queue
    Resume(steer::ResumeArgs),
    /// Move queues to another store
    #[command(alias = "copy")]
    Move(move_queue::MoveArgs),
    /// Write the messages of a queue as JSON lines
    ///
    /// What moves on meanwhile may be missing or be there twice, so pause the queue first. `dqhost import`
    /// reads the lines.
    Export(export::ExportArgs),
    /// Read messages that `export` has written
    ///
    /// They keep their ids, payloads, headers, due times and the retries that are left; dead letters also keep
    /// their failed attempts.
    Import(import::ImportArgs),
    /// Check a store for inconsistencies, and repair them
    ///
    /// It works while hosts and producers go on. Without --repair it changes nothing. The exit code is
    /// 0 if nothing is wrong or all of it was repaired, and 1 if anything is left.
    Audit(audit::AuditArgs),
    /// Make hosts of this user take over changed files
    ///
    /// It sends SIGHUP to them: handlers and settings that have changed are read again. What cannot be
    /// used changes nothing, and the host's log says so. The exit code is 1 if no host was told.
    Reload(running::ReloadArgs),
    /// Copy the file of messages while hosts work on it
    ///
    /// The copy has all that the file holds at one moment. Leases in it end as after a crash, and their
    /// messages are delivered again.
    Backup(backup::BackupArgs),
    /// Check whether a host can work here, and what to mend
    ///
    /// It changes nothing. The exit code is 1 if anything is bad.
    Doctor(doctor::DoctorArgs),
    /// List, send again or delete dead letters
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    /// Show, check or describe the file of settings
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Show when the schedules of dqhost.toml send messages
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Show what a handler needs, and whether it can run
    Check(check::CheckArgs),
    /// Push a handler to a registry
    ///
    /// It prints the address that hosts take the handler from, with its digest. A user and a password are those
    /// that `docker login` keeps.
    Push(push::PushArgs),
    /// Give messages to a handler, and keep nothing
    Run(Box<run::RunArgs>),
    /// Make a folder with a new handler, ready to build and run
    New(new::NewArgs),
    /// Build a handler on every save, and try it
    Dev(Box<dev::DevArgs>),
    /// Write the interface files for a new handler
    Wit(wit::WitArgs),
    /// Make a handler of a core module, as clang and Go build it
    ///
    /// A module without bindings of its own world is taken for one of `dqhost wit`. The exit code is 4 if
    /// the file is none that can become a handler.
    Component(component::ComponentArgs),
    /// Subscribe queues to topics
    ///
    /// `dqhost send --topic NAME` puts a copy of a message into each queue that has subscribed.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Serve the HTTP API without handling messages
    ///
    /// `dqhost up --listen ADDR` serves it beside a host.
    Serve(serve::ServeArgs),
    /// Make tokens for the HTTP API
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Open the dashboard without handling messages
    Top(screen::TopArgs),
    /// List the keys of the dashboard
    Keys(keys::KeysArgs),
    /// Print the completion script of a shell
    ///
    /// It completes commands, flags and paths, and from the store queues and ids of messages. In bash:
    /// source <(dqhost completions bash)
    Completions(completions::CompletionsArgs),
    /// Write the manual pages into a folder
    Man(man::ManArgs),
}

/// How a run of the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Store = 3,
    Handler = 4,
    Partly = 5,
    Rejected = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A mistake in what was asked, found after the arguments were parsed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// The exit code that an error leads to.
fn exit_of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<StoreError>() {
            return match error {
                StoreError::Refused { .. } => Exit::Failed,
                StoreError::Unreachable { .. } | StoreError::Unusable { .. } => Exit::Store,
            };
        }
        if cause.is::<HandlerError>() {
            return Exit::Handler;
        }
        if cause.is::<Usage>() {
            return Exit::Usage;
        }
    }
    Exit::Failed
}

/// Runs the program with these arguments, the first being its name.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let [_, command, limits, engine] = args.as_slice()
        && command == CHILD_COMMAND
    {
        return compile::compile(limits, engine).into();
    }
    if let Some(exit) = completions::asked_for(&args).or_else(|| help::asked_for(&args)) {
        return exit.into();
    }
    let (cli, config) = match config::parse(&args) {
        Ok(parsed) => parsed,
        Err(failure) => return failure.tell(&args),
    };
    config.tell_warnings();
    let is_service = matches!(cli.command, None | Some(Command::Up(_) | Command::Serve(_)));
    let mut sockets = PassedSockets::default();
    if is_service {
        hardening::give_up_privileges();
        sockets = PassedSockets::of_environment();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            tell!("error: no threads to run on: {error}");
            return Exit::Failed.into();
        }
    };
    let result = runtime.block_on(async {
        let result = dispatch(cli, &config, sockets).await;
        opened::close_all().await;
        result
    });
    // A read of stdin cannot be interrupted and must not keep the program alive.
    runtime.shutdown_background();
    match result {
        Ok(exit) => exit.into(),
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => Exit::Done.into(),
        Err(error) => {
            tell!("error: {}", printable(&format!("{error:#}")));
            exit_of(&error).into()
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

async fn dispatch(
    cli: Cli,
    config: &config::Config,
    sockets: PassedSockets,
) -> anyhow::Result<Exit> {
    match cli.command {
        None => up::up(cli.up, config, sockets).await,
        Some(Command::Up(args)) => up::up(*args, config, sockets).await,
        Some(Command::Send(args)) => send::send(args).await,
        Some(Command::Stats(args)) => stats::stats(args).await,
        Some(Command::Get(args)) => get::get(args).await,
        Some(Command::List(args)) => list::list(args).await,
        Some(Command::Events(args)) => events::events(args).await,
        Some(Command::Cancel(args)) => cancel::cancel(args).await,
        Some(Command::Reschedule(args)) => steer::reschedule(args).await,
        Some(Command::Purge(args)) => purge::purge(args).await,
        Some(Command::Pause(args)) => steer::pause(args).await,
        Some(Command::Resume(args)) => steer::resume(args).await,
        Some(Command::Config(command)) => config::run(command, config),
        Some(Command::Schedule(command)) => schedule::run(command, config).await,
        Some(Command::Check(args)) => check::check(&args),
        Some(Command::Push(args)) => push::push(&args),
        Some(Command::Run(args)) => run::run(*args).await,
        Some(Command::New(args)) => new::new(&args),
        Some(Command::Dev(args)) => dev::dev(*args).await,
        Some(Command::Wit(args)) => wit::wit(&args),
        Some(Command::Component(args)) => component::component(&args),
        Some(Command::Serve(args)) => serve::serve(args, sockets).await,
        Some(Command::Token(command)) => token::token(command),
        Some(Command::Topic(command)) => topic::run(command).await,
        Some(Command::Top(args)) => screen::top(args, config.look(&[])).await,
        Some(Command::Keys(_)) => keys::keys(config),
        Some(Command::Completions(args)) => completions::completions(&args),
        Some(Command::Man(args)) => man::man(&args),
        Some(Command::Move(args)) => move_queue::run(args).await,
        Some(Command::Export(args)) => export::export(args).await,
        Some(Command::Import(args)) => import::import(args).await,
        Some(Command::Audit(args)) => audit::audit(args).await,
        Some(Command::Reload(args)) => running::reload(&args),
        Some(Command::Backup(args)) => backup::backup(args).await,
        Some(Command::Doctor(args)) => doctor::doctor(args).await,
        Some(Command::Dead(command)) => {
            dead::dead(command, &|queue| config.max_redrives(queue)).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        help::command().debug_assert();
    }
}
