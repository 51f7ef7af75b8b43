//! What `dqhost run` prints of one run.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::cli::print;
use crate::format;
use crate::message::{Due, NewMessage, Outgoing};
use crate::runtime::{Report, Source};
use crate::text::{human_duration, printable};
use crate::verdict::Outcome;

fn delay_ms(outcome: &Outcome) -> Option<u128> {
    match outcome {
        Outcome::Nacked { delay, .. } => delay.map(|delay| delay.as_millis()),
        _ => None,
    }
}

pub(super) fn as_json(report: &Report) -> Value {
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
    let (result, result_base64) = report
        .result
        .as_deref()
        .map_or((None, None), format::json::payload);
    json!({
        "verdict": report.outcome.class(),
        "reason": report.outcome.reason(),
        "delay_ms": delay_ms(&report.outcome),
        "duration_ms": report.duration.as_secs_f64() * 1000.0,
        "memory": report.memory,
        "refused": report.refused,
        "sends": sends,
        "result": result,
        "result_base64": result_base64,
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
    let (text, base64) = format::json::payload(&message.payload);
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

pub(super) fn print_text(report: &Report) -> io::Result<()> {
    let mut out = print::stdout();
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
    if let Some(result) = &report.result {
        let shown = crate::text::payload(result, print::PAYLOAD_IN_LIST);
        writeln!(out, "result    {shown}")?;
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
