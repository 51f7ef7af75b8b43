//! `dqhost import`: messages as `dqhost export` prints them.
//!
//! What is to run is sent under its own id, which the store knows for a while, so that a repeat sends nothing
//! twice. Dead letters come in two steps, like those of another store: out of every host's reach, then among
//! the dead letters.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::json;
use tokio::io::{AsyncRead, BufReader};

use super::lines::{TooLong, read_line, too_long};
use super::open::Missing;
use super::{Exit, StoreArgs, Usage, log, number, open, payload, print, time};
use crate::format::line::line_max;
use crate::format::listed::{self, Listed};
use crate::message::{MessageId, NewMessage, PAYLOAD_MAX_DEFAULT, QueueName, Record, State};
use crate::store::{Page, Peer, Store, StoreResult};
use crate::text::{grouped, printable};

/// Messages that are accepted in one step.
const STEP: usize = 100;

/// How the store calls the other side of an import. The next one goes on with what an interrupted one left.
const PEER: &str = "an import";

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// Queue that the messages go to, made if it is missing
    #[arg(value_name = "QUEUE")]
    queue: QueueName,
    /// File of `dqhost export`; - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Know what was imported for so long, also when it is gone
    ///
    /// Within this time a repeat sends no message twice.
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = time::some_duration)]
    dedup_window: Duration,
    /// Refuse larger payloads, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = PAYLOAD_MAX_DEFAULT,
        value_parser = number::from::<usize>(1..=512 << 20))]
    max_payload: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

/// What became of the lines.
#[derive(Debug, Default)]
struct Counted {
    sent: u64,
    dead: u64,
    /// There already, or imported before.
    known: u64,
    wrong: u64,
}

pub(super) async fn import(args: ImportArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let input: Box<dyn AsyncRead + Unpin + Send> = if args.file.as_os_str() == "-" {
        Box::new(tokio::io::stdin())
    } else {
        let file = payload::open(&args.file);
        let file =
            file.map_err(|error| Usage(format!("cannot read {}: {error}", args.file.display())))?;
        Box::new(tokio::fs::File::from_std(file))
    };
    let store = open::store(&args.store, Missing::Make).await?;
    let mut importer = Importer {
        store: &*store,
        queue: &args.queue,
        alive: Vec::new(),
        dead: Vec::new(),
        run: None,
        counted: Counted::default(),
    };
    let read = importer.read(BufReader::new(input), &args).await;
    let counted = &importer.counted;
    read.with_context(|| {
        let (sent, dead) = (grouped(counted.sent), grouped(counted.dead));
        format!("{sent} messages and {dead} dead letters were imported before; a repeat goes on")
    })?;
    told(&args, counted)?;
    let right = counted.sent + counted.dead + counted.known;
    if right + counted.wrong == 0 {
        let file = args.file.display().to_string();
        tell!(
            "{} has no line, so nothing is imported: `dqhost export` writes a line for each message",
            printable(&file)
        );
    }
    Ok(match (right, counted.wrong) {
        (_, 0) => Exit::Done,
        (0, _) => Exit::Failed,
        _ => Exit::Partly,
    })
}

fn told(args: &ImportArgs, counted: &Counted) -> io::Result<()> {
    let queue = &args.queue;
    if args.json {
        return print::json_line(&json!({
            "queue": queue, "sent": counted.sent, "dead": counted.dead, "known": counted.known,
            "wrong": counted.wrong,
        }));
    }
    let [sent, dead, known] = [counted.sent, counted.dead, counted.known].map(grouped);
    writeln!(
        print::stdout(),
        "{queue}: {sent} sent, {dead} dead letters, {known} known already"
    )
}

struct Importer<'a> {
    store: &'a dyn Store,
    queue: &'a QueueName,
    alive: Vec<NewMessage>,
    dead: Vec<Record>,
    /// Of the transfer, once it has begun.
    run: Option<String>,
    counted: Counted,
}

impl Importer<'_> {
    async fn read<R: AsyncRead + Unpin>(
        &mut self,
        mut reader: BufReader<R>,
        args: &ImportArgs,
    ) -> anyhow::Result<()> {
        let defaults = listed::defaults(args.max_payload);
        let mut number = 0_u64;
        while let Some(line) = read_line(&mut reader, line_max(&defaults))
            .await
            .context("reading the lines")?
        {
            number += 1;
            let parsed = match line {
                Ok(line) if line.trim_ascii().is_empty() => continue,
                Ok(line) => listed::parse(&line, &defaults, args.dedup_window),
                Err(TooLong) => Err(too_long(&defaults)),
            };
            match parsed {
                Ok(Listed::Alive(message)) => self.alive.push(message),
                Ok(Listed::Dead(record)) => self.dead.push(*record),
                Err(error) => {
                    self.counted.wrong += 1;
                    tell!("line {number} is not imported: {}", printable(&error));
                }
            }
            if self.alive.len() + self.dead.len() >= STEP {
                self.accept().await?;
            }
        }
        self.accept().await?;
        Ok(())
    }

    /// Hands over what was read.
    async fn accept(&mut self) -> StoreResult<()> {
        let alive = std::mem::take(&mut self.alive);
        if !alive.is_empty() {
            for sent in self.store.send(self.queue, &alive).await? {
                if sent.due_at_ms.is_some() {
                    self.counted.sent += 1;
                } else {
                    self.counted.known += 1;
                }
            }
        }
        let dead = std::mem::take(&mut self.dead);
        if !dead.is_empty() {
            self.bury(dead).await?;
        }
        Ok(())
    }

    async fn bury(&mut self, dead: Vec<Record>) -> StoreResult<()> {
        let run = match &self.run {
            Some(run) => run.clone(),
            None => self.begin().await?,
        };
        let mut new = Vec::with_capacity(dead.len());
        let mut seen = HashSet::new();
        for record in dead {
            if !seen.insert(record.id.clone())
                || self.store.get(self.queue, &record.id).await?.is_some()
            {
                self.counted.known += 1;
            } else {
                new.push(record);
            }
        }
        let ids: Vec<MessageId> = new.iter().map(|record| record.id.clone()).collect();
        self.store.import(self.queue, &run, &new).await?;
        self.store.commit_import(self.queue, &run, &ids).await?;
        self.counted.dead += ids.len() as u64;
        Ok(())
    }

    /// Begins, and ends what an interrupted import left behind: it read those from its file, so they are to
    /// be here.
    async fn begin(&mut self) -> StoreResult<String> {
        let run = uuid::Uuid::new_v4().to_string();
        let peer = Peer {
            name: PEER.to_owned(),
            renamed: false,
            run: run.clone(),
        };
        self.store.begin_transfer(self.queue, &peer).await?;
        // What is still there after that has an id that is no text.
        let mut committed = HashSet::new();
        loop {
            let page = Page {
                offset: 0,
                limit: STEP,
                payload_max: 0,
            };
            let left = self.store.list(self.queue, State::Moving, page).await?;
            let ids = left.into_iter().map(|record| record.id);
            let ids: Vec<MessageId> = ids.filter(|id| committed.insert(id.clone())).collect();
            if ids.is_empty() {
                break;
            }
            self.store.commit_import(self.queue, &run, &ids).await?;
        }
        self.run = Some(run.clone());
        Ok(run)
    }
}
