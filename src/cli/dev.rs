//! `dqhost dev`: builds a handler on every save, and tries it. Nothing is kept, and no store is asked.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use self::project::{Project, Saves};
use super::run::calls::{self, RETRIES_DEFAULT};
use super::sandbox::SandboxArgs;
use super::{DEFAULT_QUEUE, Exit, log, print};
use crate::message::NewMessage;
use crate::runtime::{Call, Effort, Handler, Report, Runtime};
use crate::store::address::Endpoints;
use crate::text::{self, printable};
use crate::verdict::Outcome;

mod project;

#[derive(Debug, Args)]
pub(super) struct DevArgs {
    /// Folder of the handler
    ///
    /// Its file handler.toml says how the handler is built, and which messages it is tried with. A line
    /// on standard input is the payload of one more message.
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Build and try it once
    ///
    /// The exit code is 0 if all messages are acked, 6 if one is rejected, and 1 if one fails. It is 4 if
    /// there is no handler.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

pub(super) async fn dev(args: DevArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let project = Project::read(&args.folder)?;
    let permissions = args
        .sandbox
        .permissions(Endpoints::default(), RETRIES_DEFAULT)?;
    let mut bench = Bench {
        runtime: args
            .sandbox
            .runtime(1, permissions)?
            .with_effort(Effort::Quick),
        sandbox: args.sandbox,
        project,
        handler: None,
        before: HashMap::new(),
    };
    if args.once {
        return bench.round().await;
    }
    let saves = bench.project.watch()?;
    bench.watch(saves).await
}

/// What came of a message in the round before.
struct Before {
    outcome: Outcome,
    duration: Duration,
    memory: usize,
}

/// The handler as it is now, and what it did last.
struct Bench {
    runtime: Runtime,
    sandbox: SandboxArgs,
    project: Project,
    handler: Option<Handler>,
    /// By payload.
    before: HashMap<Vec<u8>, Before>,
}

impl Bench {
    /// Rounds for each save, and a run for each line of standard input; until it is interrupted.
    async fn watch(&mut self, mut saves: Saves) -> anyhow::Result<Exit> {
        let mut lines = stdin_lines();
        self.rounds(&mut saves).await?;
        loop {
            tokio::select! {
                () = saves.next() => self.rounds(&mut saves).await?,
                Some(line) = lines.recv() => {
                    self.run(1, NewMessage::new(line.into_bytes())).await?;
                }
            }
        }
    }

    /// A round, and another one if something was saved meanwhile. A build may write files beside its output,
    /// which looks like a save, so there is no third.
    async fn rounds(&mut self, saves: &mut Saves) -> anyhow::Result<()> {
        self.round().await?;
        if saves.take() {
            self.round().await?;
            saves.take();
        }
        let mut out = print::stdout();
        writeln!(
            out,
            "waiting for a save, or for a payload in a line; Ctrl-C ends"
        )?;
        out.flush()?;
        Ok(())
    }

    /// Builds, loads, and runs all messages. A mistake in any of them is shown, and the handler before it
    /// stays.
    async fn round(&mut self) -> anyhow::Result<Exit> {
        let started = Instant::now();
        let status = self.project.build();
        let built = started.elapsed();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => {
                let so = match self.handler {
                    Some(_) => "the handler before it stays",
                    None => "there is no handler to try",
                };
                tell!("the build failed ({status}), so {so}");
                return Ok(Exit::Handler);
            }
            Err(error) => {
                tell!("the build cannot be started: {error}");
                return Ok(Exit::Handler);
            }
        }
        let started = Instant::now();
        let read = self.sandbox.read(&self.runtime, &self.project.file);
        match read.and_then(|file| self.runtime.load(&file)) {
            Ok(handler) => self.handler = Some(handler),
            Err(error) => {
                tell!("{error}");
                return Ok(Exit::Handler);
            }
        }
        let (built, loaded) = (built.as_secs_f64(), started.elapsed().as_secs_f64());
        let digest = self.handler.as_ref().map_or("", Handler::digest);
        let digest = digest.get(..12).unwrap_or(digest);
        writeln!(
            print::stdout(),
            "\nbuilt in {built:.2} s, loaded in {loaded:.2} s, sha256:{digest}…"
        )?;
        let file = self.project.messages.display().to_string();
        let messages = match calls::messages(&file, RETRIES_DEFAULT, Vec::new()).await {
            Ok(messages) => messages,
            Err(error) => {
                tell!("{error}");
                return Ok(Exit::Usage);
            }
        };
        let mut exit = Exit::Done;
        for (number, message) in (1..).zip(messages) {
            if let Some(outcome) = self.run(number, message).await? {
                exit = super::run::worse(exit, super::run::exit_of(&outcome));
            }
        }
        Ok(exit)
    }

    /// Runs one message and shows it beside the last run of its payload. None without a handler.
    async fn run(&mut self, number: u64, message: NewMessage) -> io::Result<Option<Outcome>> {
        let Some(handler) = &self.handler else {
            tell!("there is no handler yet");
            return Ok(None);
        };
        let payload = message.payload.clone();
        let report = handler.run(call(message)).await;
        let now = Before {
            outcome: report.outcome.clone(),
            duration: report.duration,
            memory: report.memory,
        };
        let before = self.before.insert(payload.clone(), now);
        show(number, &payload, &report, before.as_ref())?;
        Ok(Some(report.outcome))
    }
}

/// The first delivery of a message.
fn call(message: NewMessage) -> Call {
    Call {
        sent_at_ms: message.id.sent_at_ms(),
        id: message.id.to_string(),
        queue: DEFAULT_QUEUE.to_owned(),
        payload: message.payload,
        headers: message.headers,
        attempt: 1,
        attempts_max: message.retries.saturating_add(1),
        due_at_ms: None,
    }
}

/// A line for the run, what changed since the one before, and what the handler printed.
fn show(number: u64, payload: &[u8], report: &Report, before: Option<&Before>) -> io::Result<()> {
    let mut out = print::stdout();
    let ms = |duration: Duration| format!("{:.2}", duration.as_secs_f64() * 1000.0);
    let class = report.outcome.class();
    let (time, memory) = (ms(report.duration), report.memory / 1024);
    let (time_before, memory_before) = match before {
        Some(before) => (
            format!(" ({})", ms(before.duration)),
            format!(" ({})", before.memory / 1024),
        ),
        None => Default::default(),
    };
    let shown = text::payload(payload, print::PAYLOAD_IN_LIST);
    writeln!(
        out,
        "{number:>3}  {class:<10} {time}{time_before} ms  {memory}{memory_before} KiB  {shown}"
    )?;
    let reason = report.outcome.reason();
    if !reason.is_empty() {
        writeln!(out, "     {}", printable(&reason))?;
    }
    if let Some(before) = before.filter(|before| before.outcome != report.outcome) {
        let reason = before.outcome.reason();
        let colon = if reason.is_empty() { "" } else { ": " };
        let class = before.outcome.class();
        writeln!(out, "     it was {class}{colon}{}", printable(&reason))?;
    }
    for sent in &report.outbox {
        let shown = text::payload(&sent.message.payload, print::PAYLOAD_IN_LIST);
        writeln!(out, "     sends to {}: {shown}", sent.queue)?;
    }
    for line in &report.log {
        writeln!(out, "     | {}", printable(&line.text))?;
    }
    out.flush()
}

/// The lines of standard input, read by a thread of their own; the last is the end.
fn stdin_lines() -> UnboundedReceiver<String> {
    let (sender, lines) = unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            // Bytes that are no text end it, as the end does.
            let Ok(line) = line else { return };
            if !line.is_empty() && sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
