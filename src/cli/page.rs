//! Which part of a list a command prints, and how.

use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};

use super::which::filter;
use super::{number, print};
use crate::control::{Filter, WHOLE_PAYLOAD};

/// Which part of a list, and how it is printed.
#[derive(Debug, Clone, Args)]
pub(super) struct PageArgs {
    /// List only messages that match this filter
    ///
    /// Every word must be found: `word`, `!word`, id:, payload:, reason:, class:, header:.
    #[arg(long = "match", value_name = "FILTER", value_parser = filter)]
    pub filter: Option<Filter>,
    /// List so many messages at most; 0 lists all
    #[arg(long, value_name = "N", default_value_t = 50,
        value_parser = number::from::<usize>(0..=u64::MAX))]
    limit: usize,
    /// Pass over so many messages first
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = number::from::<usize>(0..=u64::MAX))]
    pub offset: usize,
    /// Print a JSON object for each message
    #[arg(long)]
    json: bool,
    /// Choose how messages are printed
    ///
    /// wide: a table with a header and times from now, as on a terminal. lines: a line for each message,
    /// as in a pipe. json: as --json.
    #[arg(long, short, value_name = "FORMAT", conflicts_with = "json")]
    output: Option<Output>,
}

/// How messages are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Wide,
    Lines,
    Json,
}

impl PageArgs {
    pub(super) fn output(&self) -> Output {
        match self.output {
            _ if self.json => Output::Json,
            Some(output) => output,
            None if io::stdout().is_terminal() => Output::Wide,
            None => Output::Lines,
        }
    }

    /// Bytes that are printed of a payload at most, and one more.
    pub(super) fn payload_max(&self) -> usize {
        match self.output() {
            Output::Json => WHOLE_PAYLOAD,
            Output::Wide | Output::Lines => print::PAYLOAD_IN_LIST + 1,
        }
    }

    /// Messages after which the list ends.
    pub(super) fn wanted(&self) -> usize {
        match self.limit {
            0 => usize::MAX,
            limit => limit,
        }
    }
}
