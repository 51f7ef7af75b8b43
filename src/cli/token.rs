//! `dqhost token`.

use std::io::Write;

use clap::{Args, Subcommand};

use super::{Exit, print};
use crate::http_api::{Grant, Role, name_of, new_token};
use crate::message::QueueName;

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token for the HTTP API, and its line for --tokens
    ///
    /// The first line is the token, for the client. The second line is for the file of --tokens, which
    /// keeps only the SHA-256 of the token.
    New(NewArgs),
}

#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// Name of the client, for the log
    #[arg(value_parser = name_of)]
    name: String,
    /// Allow this: send, view or operate; may be repeated
    ///
    /// send: send messages. view: look at messages, queues and metrics. operate: everything.
    #[arg(long, value_name = "ROLE", required = true)]
    role: Vec<Role>,
    /// Allow it for this queue; may be repeated [default: all]
    #[arg(long, short, value_name = "NAME")]
    queue: Vec<QueueName>,
}

pub(super) fn token(command: TokenCommand) -> anyhow::Result<Exit> {
    let TokenCommand::New(args) = command;
    let grant = Grant {
        name: args.name,
        roles: args.role.into_iter().collect(),
        queues: (!args.queue.is_empty()).then(|| args.queue.into_iter().collect()),
    };
    let (token, line) = new_token(&grant);
    writeln!(print::stdout(), "{token}\n{line}")?;
    Ok(Exit::Done)
}
