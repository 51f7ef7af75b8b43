//! How fast dqhost is and what it costs: one subcommand for each question, and without one the short
//! form, which asks the most important of them in about six minutes.
//!
//!     cargo bench --bench dqhost
//!     cargo bench --bench dqhost -- drain --slots 64 --store redis --rounds 3 --json drain.json
//!     cargo bench --bench dqhost -- --help
//!
//! What is compared alternates within each round, so that what disturbs the machine disturbs all of
//! it. The table has the median of the rounds with the least and the most, and below it the commands
//! that repeat it.
#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made ends in a panic"
)]

#[path = "../../tests/it/support.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;
#[path = "../../tests/it/dashboard/tty.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod tty;
#[path = "../../tests/it/sandbox/web.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod web;

mod blocking;
mod ceiling;
mod dashboard;
mod drain;
mod fair;
mod hosts;
mod idle;
mod latency;
mod lateness;
mod limits;
mod machine;
mod memory;
mod neighbours;
mod parts;
mod place;
mod punctual;
mod sandbox;
mod send;
mod shares;
mod slots;
mod start;
mod swaps;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use place::StoreKind;
use table::Table;

/// How a person starts this program; what follows are its arguments.
const PROGRAM: &str = "cargo bench --bench dqhost --";

/// The short form: what is measured, how often, and on which stores.
const SHORT: [(&str, u32, &str); 9] = [
    ("send", 5, "redis,redis-aof,file"),
    ("drain", 5, "redis,redis-aof,file"),
    ("lateness --messages 800 --seconds 8", 5, "redis,file"),
    ("latency --messages 100", 5, "redis,file"),
    ("sandbox --messages 30000", 5, ""),
    ("memory", 5, "redis,file"),
    ("idle --pending 50000 --seconds 5", 5, "redis,file"),
    ("start", 5, "redis,file"),
    ("hosts", 5, "redis"),
];

/// How fast dqhost is and what it costs. Without a subcommand: the short form
#[derive(Debug, Parser)]
#[command(name = "dqhost", bin_name = PROGRAM, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    subject: Option<Subject>,
    #[command(flatten)]
    common: Common,
}

/// What holds for every subject.
#[derive(Debug, Args)]
struct Common {
    /// How often everything is measured [default: 5; of subjects that take long, fewer]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The stores that are measured, each a new one; may be repeated
    #[arg(
        long = "store",
        global = true,
        value_name = "STORE",
        value_delimiter = ','
    )]
    stores: Vec<StoreKind>,
    /// Reach Redis by a Unix socket
    #[arg(long, global = true, overrides_with = "tcp")]
    unix: bool,
    /// Reach Redis by TCP on 127.0.0.1, which is the default
    #[arg(long, global = true, overrides_with = "unix")]
    tcp: bool,
    /// Write everything, with each sample, into this file
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Common {
    fn rounds(&self, default: u32) -> u32 {
        self.rounds.unwrap_or(default)
    }

    /// The stores that were named, or these.
    fn stores(&self, default: &[StoreKind]) -> Vec<StoreKind> {
        if self.stores.is_empty() {
            default.to_vec()
        } else {
            self.stores.clone()
        }
    }

    fn is_unix(&self) -> bool {
        self.unix && !self.tcp
    }
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Sends, one by one and in batches
    Send(send::SendArgs),
    /// A backlog of due messages, handled by the real host
    Drain(drain::DrainArgs),
    /// How long after their due times messages are handled
    Lateness(lateness::LatenessArgs),
    /// From the send to the handler, one message at a time
    Latency(latency::LatencyArgs),
    /// A fresh sandbox for each message
    Sandbox(sandbox::SandboxArgs),
    /// What a waiting message takes
    Memory(memory::MemoryArgs),
    /// What a host costs that has nothing to do
    Idle(idle::IdleArgs),
    /// From the start of the process to the first message
    Start(start::StartArgs),
    /// One host and several on one queue
    Hosts(hosts::HostsArgs),
    /// What Redis could do if nothing else took time
    Ceiling(ceiling::CeilingArgs),
    /// How long Redis is kept from others
    Blocking(blocking::BlockingArgs),
    /// What the dashboard costs
    Dashboard(dashboard::DashboardArgs),
    /// What a queue feels of hostile ones on the same host
    Neighbours(neighbours::NeighboursArgs),
    /// What a queue feels of others that take all they can
    Shares(shares::SharesArgs),
    /// Slots that a host finds out by itself beside fixed numbers
    Slots(slots::SlotsArgs),
    /// Two tenants of a queue, one with very many messages
    Fair(fair::FairArgs),
    /// How much of a rate is used by hosts that are killed
    Limits(limits::LimitsArgs),
    /// What messages feel of handlers that are replaced
    Swaps(swaps::SwapsArgs),
}

impl Subject {
    fn measure(&self, common: &Common, table: &mut Table) {
        match self {
            Self::Send(args) => send::measure(args, common, table),
            Self::Drain(args) => drain::measure(args, common, table),
            Self::Lateness(args) => lateness::measure(args, common, table),
            Self::Latency(args) => latency::measure(args, common, table),
            Self::Sandbox(args) => sandbox::measure(args, common, table),
            Self::Memory(args) => memory::measure(args, common, table),
            Self::Idle(args) => idle::measure(args, common, table),
            Self::Start(args) => start::measure(args, common, table),
            Self::Hosts(args) => hosts::measure(args, common, table),
            Self::Ceiling(args) => ceiling::measure(args, common, table),
            Self::Blocking(args) => blocking::measure(args, common, table),
            Self::Dashboard(args) => dashboard::measure(args, common, table),
            Self::Neighbours(args) => neighbours::measure(args, common, table),
            Self::Shares(args) => shares::measure(args, common, table),
            Self::Slots(args) => slots::measure(args, common, table),
            Self::Fair(args) => fair::measure(args, common, table),
            Self::Limits(args) => limits::measure(args, common, table),
            Self::Swaps(args) => swaps::measure(args, common, table),
        }
    }
}

/// Measures what these words ask for.
fn measure(words: &[String], table: &mut Table) {
    let cli = Cli::parse_from(std::iter::once(PROGRAM).chain(words.iter().map(String::as_str)));
    if let Some(subject) = cli.subject {
        table.begin(&words[0], &format!("{PROGRAM} {}", words.join(" ")));
        subject.measure(&cli.common, table);
    }
}

/// The words of one line of the short form, with what was given instead of its own.
fn short(line: (&str, u32, &str), given: &Common) -> Vec<String> {
    let (subject, rounds, stores) = line;
    let mut words: Vec<String> = subject.split(' ').map(str::to_owned).collect();
    words.extend(["--rounds".to_owned(), given.rounds(rounds).to_string()]);
    let mut stores = stores.to_owned();
    if !stores.is_empty() && !given.stores.is_empty() {
        let names: Vec<String> = given.stores.iter().map(StoreKind::to_string).collect();
        stores = names.join(",");
    }
    if !stores.is_empty() {
        words.extend(["--store".to_owned(), stores]);
    }
    if given.is_unix() {
        words.push("--unix".to_owned());
    }
    words
}

/// The words as a person would repeat them: the subject first, and without the file that was written.
fn repeated(words: &[String], subject: &str) -> Vec<String> {
    let mut kept = vec![subject.to_owned()];
    let mut words = words.iter().filter(|word| *word != subject);
    while let Some(word) = words.next() {
        if word == "--json" {
            words.next();
        } else if !word.starts_with("--json=") {
            kept.push(word.clone());
        }
    }
    kept
}

fn main() -> ExitCode {
    // Cargo says --bench to every program that it runs as one.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let cli = Cli::parse_from(std::iter::once(PROGRAM).chain(words.iter().map(String::as_str)));
    let mut table = Table::default();
    match &cli.subject {
        Some(_) => {
            let subject = words
                .iter()
                .find(|word| Subject::has_subcommand(word))
                .unwrap();
            measure(&repeated(&words, subject), &mut table);
        }
        None => {
            for line in SHORT {
                measure(&short(line, &cli.common), &mut table);
            }
        }
    }
    print!("{}", table.text());
    if let Some(file) = &cli.common.json {
        std::fs::write(file, format!("{:#}\n", table.json())).unwrap();
    }
    if table.is_refused() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
