//! `dqhost run`: one message through a handler, without a store.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::sandbox::SandboxArgs;
use super::send::header;
use super::{DEFAULT_QUEUE, Exit, Usage, log, number, payload, print};
use crate::message::{Due, MessageId, NewMessage, Outgoing, PAYLOAD_MAX_DEFAULT, QueueName};
use crate::runtime::{Call, Report, Source};
use crate::store::address::Endpoints;
use crate::text::{human_duration, printable};
use crate::verdict::Outcome;

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Handler: a WebAssembly component
    file: PathBuf,
    /// Payload: text, @FILE for the bytes of a file, - for stdin
    #[arg(
        long,
        value_name = "PAYLOAD",
        default_value = "",
        allow_hyphen_values = true
    )]
    payload: String,
    /// Add a header for the handler; may be repeated
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Number this delivery
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = number::from::<u32>(1..=u32::MAX.into()))]
    attempt: u32,
    /// Number the last delivery that the message may have
    #[arg(long, value_name = "N", default_value_t = NewMessage::RETRIES_DEFAULT + 1,
        value_parser = number::from::<u32>(0..=u32::MAX.into()))]
    attempts: u32,
    /// Give the message this id [default: a new one]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Name the queue that it comes through
    #[arg(long, short, value_name = "NAME", default_value = DEFAULT_QUEUE)]
    queue: QueueName,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

pub(super) async fn run(args: RunArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let permissions = args
        .sandbox
        .permissions(Endpoints::default(), NewMessage::RETRIES_DEFAULT)?;
    let runtime = args.sandbox.runtime(1, permissions)?;
    let handler = runtime.load(&args.sandbox.read(&runtime, &args.file)?)?;
    let bytes = payload::read(&args.payload, PAYLOAD_MAX_DEFAULT).await?;
    payload::check(&bytes, &args.headers, PAYLOAD_MAX_DEFAULT).map_err(Usage)?;
    let id = args.id.map_or_else(MessageId::new, MessageId::from);
    let report = handler
        .run(Call {
            sent_at_ms: id.sent_at_ms(),
            id: id.to_string(),
            queue: args.queue.to_string(),
            payload: bytes,
            headers: args.headers,
            attempt: args.attempt,
            attempts_max: args.attempts.max(args.attempt),
            due_at_ms: None,
        })
        .await;
    if args.json {
        print::json_line(&as_json(&report))?;
    } else {
        print_text(&report)?;
    }
    Ok(match report.outcome {
        Outcome::Acked => Exit::Done,
        Outcome::Rejected { .. } => Exit::Rejected,
        _ => Exit::Failed,
    })
}

fn delay_ms(outcome: &Outcome) -> Option<u128> {
    match outcome {
        Outcome::Nacked { delay, .. } => delay.map(|delay| delay.as_millis()),
        _ => None,
    }
}

fn as_json(report: &Report) -> Value {
    let sends: Vec<Value> = report.outbox.iter().map(sent_json).collect();
    let log: Vec<Value> = report
        .log
        .iter()
        .map(|line| match &line.source {
            Source::Stdout => json!({"source": "stdout", "text": line.text}),
            Source::Stderr => json!({"source": "stderr", "text": line.text}),
            Source::Host => json!({"source": "host", "text": line.text}),
            Source::Log { level, context } => json!({
                "source": "log", "level": level.as_str(), "context": context, "text": line.text,
            }),
        })
        .collect();
    json!({
        "verdict": report.outcome.class(),
        "reason": report.outcome.reason(),
        "delay_ms": delay_ms(&report.outcome),
        "duration_ms": report.duration.as_secs_f64() * 1000.0,
        "memory": report.memory,
        "refused": report.refused,
        "sends": sends,
        "log": log,
    })
}

/// When it would be due after the ack, in milliseconds.
fn due_in_ms(message: &NewMessage) -> u128 {
    match message.due {
        Due::In(delay) => delay.as_millis(),
        Due::At(_) => 0,
    }
}

fn sent_json(Outgoing { queue, message }: &Outgoing) -> Value {
    let (text, base64) = print::text_of(&message.payload);
    json!({
        "id": message.id,
        "queue": queue,
        "delay_ms": due_in_ms(message),
        "retries": message.retries,
        "headers": message.headers,
        "payload": text,
        "payload_base64": base64,
    })
}

fn print_text(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let reason = report.outcome.reason();
    write!(out, "verdict   {}", report.outcome.class())?;
    if !reason.is_empty() {
        write!(out, ": {}", printable(&reason))?;
    }
    if let Some(delay) = delay_ms(&report.outcome) {
        write!(out, ", to be retried in {delay} ms")?;
    }
    writeln!(out)?;
    let ms = report.duration.as_secs_f64() * 1000.0;
    writeln!(out, "duration  {ms:.3} ms")?;
    writeln!(out, "memory    {} KiB", report.memory / 1024)?;
    if report.refused > 0 {
        writeln!(out, "refused   {}", report.refused)?;
    }
    for sent in &report.outbox {
        let (message, queue) = (&sent.message, &sent.queue);
        let delay =
            std::time::Duration::from_millis(u64::try_from(due_in_ms(message)).unwrap_or(0));
        writeln!(
            out,
            "sends     {queue}, due in {}, {} retries: {}",
            human_duration(delay),
            message.retries,
            crate::text::payload(&message.payload, print::PAYLOAD_IN_LIST)
        )?;
    }
    for line in &report.log {
        let source = match &line.source {
            Source::Stdout => "stdout".to_owned(),
            Source::Stderr => "stderr".to_owned(),
            Source::Host => "dqhost".to_owned(),
            Source::Log { level, context } if context.is_empty() => level.as_str().to_owned(),
            Source::Log { level, context } => {
                format!("{} {}", level.as_str(), printable(context))
            }
        };
        writeln!(out, "log       {source}: {}", printable(&line.text))?;
    }
    Ok(())
}
