//! `dqhost send`.

#![expect(
    clippy::doc_markdown,
    reason = "doc comments of arguments are help texts"
)]

use std::slice::from_ref;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::open::Missing;
use super::topic::{Answer, Target, print_answers};
use super::{Exit, QueueArg, StoreArgs, Usage, lines, log, number, open, payload, time};
use crate::format::line::Defaults;
use crate::format::message::{Repeats, expiring, outcome_text, with_key};
use crate::message::{Due, NewMessage, PAYLOAD_MAX_DEFAULT, RETRIES_MAX, TopicName};
use crate::text::{cut, shell_word};

/// Bytes of a payload without quotes that the advice to quote it repeats.
const WORDS_REPEATED_MAX: usize = 80;

/// A message as people give it, on the command line and at the prompt of the dashboard.
#[derive(Debug, Args)]
pub(super) struct MessageArgs {
    /// Payload: text, @FILE for the bytes of a file, - for stdin
    #[arg(allow_hyphen_values = true)]
    pub payload: Option<String>,
    /// What a shell makes of a payload that is not quoted
    #[arg(hide = true)]
    pub more_words: Vec<String>,
    #[command(flatten)]
    pub timing: Timing,
    /// Deliver again so often after a first failure
    #[arg(long, value_name = "N", default_value_t = NewMessage::RETRIES_DEFAULT,
        value_parser = number::from::<u32>(0..=RETRIES_MAX.into()))]
    pub retries: u32,
    /// Add a header for the handler; may be repeated
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// Send once under this key: a repeat writes nothing
    ///
    /// A repeat is recognised while the message waits, runs or is dead, and within --dedup-window.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub idempotency_key: Option<String>,
    /// Recognise repeats so long after the due time [default: 1d]
    ///
    /// This also holds when the message is gone by then.
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    pub dedup_window: Option<Duration>,
    /// Take the place of the message under the same key
    ///
    /// What waits or is dead under the --idempotency-key gets this payload, these headers, retries and this
    /// time, and begins anew. What runs is followed by one more run. What is gone is sent.
    #[arg(long, conflicts_with = "extend", hide_short_help = true)]
    pub replace: bool,
    /// Give the message under the same key this time
    ///
    /// What waits under the --idempotency-key gets this time and nothing else. What is dead waits anew. What
    /// runs is followed by one more run. What is gone is sent.
    #[arg(long, hide_short_help = true)]
    pub extend: bool,
    /// Let repeats put it off at most so long after the first
    ///
    /// This is for --replace and --extend, and counts from the first send.
    #[arg(long, value_name = "DURATION", value_parser = time::some_duration,
        allow_hyphen_values = true, hide_short_help = true)]
    pub max_wait: Option<Duration>,
    /// Make it a dead letter if it has not begun so long from now
    ///
    /// Its class is message-expired. Retries have to begin by then as well. An attempt that has begun is
    /// not stopped.
    #[arg(long, value_name = "DURATION", value_parser = time::some_duration,
        allow_hyphen_values = true)]
    pub expires_in: Option<Duration>,
    /// Refuse a payload of more bytes
    #[arg(long, value_name = "BYTES", default_value_t = PAYLOAD_MAX_DEFAULT,
        env = "DQHOST_MAX_PAYLOAD", value_parser = number::from::<usize>(0..=u64::MAX))]
    pub max_payload: usize,
}

impl MessageArgs {
    /// Refuses a payload of several words.
    pub(super) fn check_words(&self) -> Result<(), String> {
        let (Some(first), [_, ..]) = (&self.payload, self.more_words.as_slice()) else {
            return Ok(());
        };
        let words = [from_ref(first), &self.more_words].concat().join(" ");
        let words = shell_word(&cut(&words, WORDS_REPEATED_MAX));
        Err(format!(
            "the payload has several words: quote it, as in send {words}"
        ))
    }

    /// The message with these bytes, or why no host would take it.
    pub(super) fn message(self, bytes: Vec<u8>) -> Result<NewMessage, String> {
        payload::check(&bytes, &self.headers, self.max_payload)?;
        let key = self.idempotency_key.as_deref();
        if key.is_none() && self.dedup_window.is_some() {
            return Err("--dedup-window is for messages with an --idempotency-key".to_owned());
        }
        if key.is_none() && (self.replace || self.extend) {
            let why = "--replace and --extend are for messages with an --idempotency-key";
            return Err(why.to_owned());
        }
        let repeats = self.repeats();
        let message = NewMessage {
            due: self.timing.due(),
            retries: self.retries,
            headers: self.headers,
            ..NewMessage::new(bytes)
        };
        let message = expiring(message, self.expires_in)?;
        with_key(message, key, &repeats)
    }

    fn repeats(&self) -> Repeats {
        Repeats {
            window: self.dedup_window,
            replace: self.replace,
            extend: self.extend,
            max_wait: self.max_wait,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct SendArgs {
    #[command(flatten)]
    message: MessageArgs,
    #[command(flatten)]
    queue: QueueArg,
    /// Send a copy to each queue of this topic
    ///
    /// All of them get it, or none. `dqhost topic subscribe` adds a queue.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "queue",
        hide_short_help = true
    )]
    topic: Option<TopicName>,
    /// Send a message for each line of stdin or @FILE
    ///
    /// A line is a JSON object: {"payload": ..., "in": "5s", "at": ..., "retries": 3, "headers": {...},
    /// "idempotency_key": ..., "dedup_window": "1d", "expires_in": "10m"}. A line with a key may also have
    /// "replace": true or "extend": true, and "max_wait": "1h". "payload" is a string or any JSON,
    /// "payload_base64" is for bytes, "at_ms" is a time in unix milliseconds, and headers may also be
    /// a list of pairs. A wrong line is reported, and the others are sent.
    ///
    /// What `list --json`, `get --json` and `dead list --json` print is such a line too. Each line is
    /// sent as a new message with a new id, and with the same payload, headers and retries. A pending
    /// message keeps its due time; any other is due at once.
    #[arg(long, conflicts_with = "idempotency_key")]
    ndjson: bool,
    /// Print a JSON object for each message
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
pub(super) struct Timing {
    /// Deliver so long from now: 1500ms, 30s, 2h, 1d
    #[arg(long = "in", value_name = "DURATION", value_parser = time::duration,
        allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Deliver at this time, such as 14:00
    ///
    /// Use 2026-12-31T14:00:00Z, "2026-12-31 14:00" or 14:00.
    #[arg(long, value_name = "TIME", value_parser = time::at, allow_hyphen_values = true)]
    at: Option<u64>,
}

impl Timing {
    pub(super) fn due(self) -> Due {
        match (self.at, self.delay) {
            (Some(at_ms), _) => Due::At(at_ms),
            (None, delay) => Due::In(delay.unwrap_or_default()),
        }
    }
}

pub(super) fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give it as KEY=VALUE".to_owned()),
    }
}

pub(super) async fn send(args: SendArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let message = args.message;
    message.check_words().map_err(Usage)?;
    let target = match args.topic {
        Some(_) if message.repeats().change() => {
            let why = "--replace and --extend are for one queue, and a topic may have several";
            return Err(Usage(why.to_owned()).into());
        }
        Some(topic) => Target::Topic(topic),
        None => Target::Queue(args.queue.queue),
    };
    if args.ndjson {
        let source = message.payload.as_deref().unwrap_or("-");
        let source = payload::source(source)?.ok_or_else(|| {
            Usage(format!(
                "--ndjson reads - or @FILE, and {source:?} is neither"
            ))
        })?;
        let store = open::store(&args.store, Missing::Make).await?;
        let repeats = message.repeats();
        let defaults = Defaults {
            due: message.timing.due(),
            retries: message.retries,
            headers: message.headers,
            key: None,
            repeats,
            expires_in: message.expires_in,
            max_payload: message.max_payload,
        };
        return lines::send(source.input, &*store, &target, &defaults, args.json).await;
    }
    let text = message.payload.as_deref().ok_or_else(no_payload)?;
    let bytes = payload::read(text, message.max_payload).await?;
    let message = message.message(bytes).map_err(Usage)?;
    let store = open::store(&args.store, Missing::Make).await?;
    let answers = target.send(&*store, &[message]).await?;
    print_answers(&answers, args.json).with_context(|| accepted(&answers))?;
    Ok(Exit::Done)
}

/// What is said if the answers to one message cannot be printed: a repeated command would send it twice.
fn accepted(answers: &[Answer]) -> String {
    let Some(Answer { sent, .. }) = answers.first() else {
        return "nothing was sent".to_owned();
    };
    let what = outcome_text(sent.outcome).unwrap_or("was sent, so do not send it again");
    format!("message {} {what}", sent.id)
}

fn no_payload() -> Usage {
    Usage("give the payload: text, @FILE for the bytes of a file, or - for stdin".to_owned())
}
