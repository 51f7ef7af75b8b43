//! How an event becomes a line: text for people, which a program can split again, or JSON. Whatever a
//! value is, it begins no field and no line, and only this file marks a line as a handler's.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::runtime::RunLines;
use crate::text::{printable, printable_json};

/// Fields whose numbers are seconds. As JSON they stay numbers.
const SECONDS: [&str; 3] = ["took", "delay", "limit"];

/// What stands before a handler's line in text. A host's message that begins like it is in quotes.
const GUEST_MARK: &str = "[guest]";

/// How lines are written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    Text { has_colours: bool },
    Json,
}

impl Format {
    /// The line of an event, with its end.
    pub(super) fn line(self, level: Level, is_guest: bool, fields: &Fields) -> String {
        let mut time = String::new();
        // It fails only if the text does.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let mut line = match self {
            Self::Text { has_colours } => text(&time, level, is_guest, fields, has_colours),
            Self::Json => json(&time, level, is_guest, fields),
        };
        line.push('\n');
        line
    }
}

/// The fields of an event, the message among them.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

#[derive(Debug)]
enum Value {
    Text(String),
    /// A number or a truth value, as it is in JSON.
    Plain(String),
    Float(f64),
}

impl Fields {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields
    }

    /// What the host says about handlers.
    pub(super) fn about_guests(message: String) -> Self {
        let source = Value::Text("host".to_owned());
        Self(vec![("message", Value::Text(message)), ("source", source)])
    }

    /// Adds whose run it was that a library wrote this for, and takes the run's secrets out.
    pub(super) fn add_run(&mut self, run: &RunLines) {
        for (_, value) in &mut self.0 {
            if let Value::Text(text) = value {
                *text = run.hide(text).into_owned();
            }
        }
        if let Some((queue, id, attempt)) = run.place() {
            self.0.push(("queue", Value::Text(queue.to_owned())));
            self.0.push(("id", Value::Text(printable(id).into_owned())));
            self.0.push(("attempt", Value::Plain(attempt.to_string())));
        }
    }

    fn add(&mut self, field: &Field, value: Value) {
        let name = field.name();
        // Where a line of the crate `log` comes from.
        if !name.starts_with("log.") {
            self.0
                .push((name.strip_prefix("r#").unwrap_or(name), value));
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::Float(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, Value::Text(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, Value::Text(format!("{value:?}")));
    }
}

fn json(time: &str, level: Level, is_guest: bool, fields: &Fields) -> String {
    let mut line = format!("{{\"timestamp\":\"{time}\",\"level\":\"{level}\"");
    if is_guest {
        line.push_str(",\"guest\":true");
    }
    for (name, value) in &fields.0 {
        // The host's own mark is the only one.
        if *name == "guest" {
            continue;
        }
        let value = match value {
            Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
            Value::Plain(text) => text.clone(),
            Value::Float(number) => serde_json::Value::from(*number).to_string(),
        };
        let _ = write!(line, ",\"{name}\":{value}");
    }
    line.push('}');
    printable_json(&line).into_owned()
}

/// Time and level, the mark of a handler's line, the message, then each field as `name=value`.
fn text(time: &str, level: Level, is_guest: bool, fields: &Fields, has_colours: bool) -> String {
    let mut line = if has_colours {
        let colour = match level {
            Level::TRACE => 35,
            Level::DEBUG => 34,
            Level::INFO => 32,
            Level::WARN => 33,
            _ => 31,
        };
        format!("\u{1b}[2m{time}\u{1b}[0m \u{1b}[{colour}m{level:>5}\u{1b}[0m")
    } else {
        format!("{time} {level:>5}")
    };
    if is_guest {
        line.push(' ');
        line.push_str(GUEST_MARK);
    }
    for (name, value) in &fields.0 {
        line.push(' ');
        let value = match value {
            Value::Text(text) | Value::Plain(text) => Cow::Borrowed(text.as_str()),
            Value::Float(number) => Cow::Owned(in_words(name, *number)),
        };
        if *name == "message" {
            let is_bare = !is_guest && is_plain_message(&value);
            line.push_str(&if is_bare {
                printable(&value)
            } else {
                quoted(&value)
            });
            continue;
        }
        if has_colours {
            let _ = write!(line, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m");
        } else {
            let _ = write!(line, "{name}=");
        }
        let is_word = |c: char| !c.is_whitespace() && c != '"' && c != '=';
        let is_bare = !value.is_empty() && value.chars().all(is_word);
        line.push_str(&if is_bare {
            printable(&value)
        } else {
            quoted(&value)
        });
    }
    line
}

fn in_words(name: &str, number: f64) -> String {
    match Duration::try_from_secs_f64(number) {
        Ok(duration) if SECONDS.contains(&name) => format!("{duration:?}"),
        _ => number.to_string(),
    }
}

fn quoted(value: &str) -> Cow<'_, str> {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    Cow::Owned(format!("\"{}\"", printable(&escaped)))
}

/// True if nothing in a message of the host reads like a mark, a quoted message or a field: errors of
/// others are in some of them.
fn is_plain_message(message: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let is_field = |word: &str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| name.chars().all(is_name))
    };
    !message.is_empty()
        && !message.trim_start().starts_with(['"', '['])
        && !message.split_whitespace().any(is_field)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    /// Collects both forms of each event; those of the target "guest" are a handler's.
    struct Both(Arc<Mutex<Vec<(String, String)>>>);

    impl<S: tracing::Subscriber> Layer<S> for Both {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            let fields = Fields::of(event);
            let (level, is_guest) = (
                *event.metadata().level(),
                event.metadata().target() == "guest",
            );
            let text = Format::Text { has_colours: false }.line(level, is_guest, &fields);
            let json = Format::Json.line(level, is_guest, &fields);
            self.0.lock().unwrap().push((text, json));
        }
    }

    /// What is logged, as text and as JSON.
    fn logged(log: impl Fn()) -> (String, serde_json::Value) {
        let lines = Arc::default();
        let subscriber = tracing_subscriber::registry().with(Both(Arc::clone(&lines)));
        tracing::subscriber::with_default(subscriber, log);
        let lines = lines.lock().unwrap();
        let [(text, json)] = &lines[..] else {
            panic!("one event was expected")
        };
        let is_unsafe = |c: char| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c);
        for line in [text, json] {
            let line = line.strip_suffix('\n').unwrap();
            assert!(!line.contains(is_unsafe), "{line:?}");
        }
        (text.clone(), serde_json::from_str(json).unwrap())
    }

    /// A line of text taken apart: the mark, the message, the fields.
    #[derive(Debug, PartialEq, Eq)]
    struct Parsed {
        is_guest: bool,
        message: String,
        fields: BTreeMap<String, String>,
    }

    /// A value at the start of a text, and what follows it.
    fn value(text: &str) -> (String, &str) {
        let Some(rest) = text.strip_prefix('"') else {
            let end = text.find(' ').unwrap_or(text.len());
            return (text[..end].to_owned(), &text[end..]);
        };
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => return (value, &rest[at + 1..]),
                '\\' => match chars.next().unwrap().1 {
                    'n' => value.push('\n'),
                    'r' => value.push('\r'),
                    't' => value.push('\t'),
                    'u' => {
                        let code: String = chars
                            .by_ref()
                            .map(|(_, c)| c)
                            .take_while(|c| *c != '}')
                            .collect();
                        let code = u32::from_str_radix(&code[1..], 16).unwrap();
                        value.push(char::from_u32(code).unwrap());
                    }
                    c => value.push(c),
                },
                c => value.push(c),
            }
        }
        panic!("no end of quotes: {text}")
    }

    fn parse(line: &str) -> Parsed {
        let line = line.strip_suffix('\n').unwrap();
        let (_time, rest) = line.split_once(' ').unwrap();
        let rest = &rest[6..];
        let guest = rest.strip_prefix("[guest] ");
        let (is_guest, rest) = (guest.is_some(), guest.unwrap_or(rest));
        let (message, mut rest) = if rest.starts_with('"') {
            value(rest)
        } else {
            let is_name = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let mut words = rest.match_indices(' ').map(|(at, _)| at);
            let end = words.find(|at| {
                let word = rest[at + 1..].split(' ').next().unwrap();
                word.split_once('=').is_some_and(|(name, _)| is_name(name))
            });
            let (message, fields) = rest.split_at(end.unwrap_or(rest.len()));
            (message.to_owned(), fields)
        };
        let mut fields = BTreeMap::new();
        while let Some(field) = rest.strip_prefix(' ') {
            let (name, after) = field.split_once('=').unwrap();
            let (value, after) = value(after);
            assert!(fields.insert(name.to_owned(), value).is_none(), "{line}");
            rest = after;
        }
        assert_eq!(rest, "", "{line}");
        Parsed {
            is_guest,
            message,
            fields,
        }
    }

    #[test]
    fn times_are_numbers_of_seconds_in_json_and_words_in_text() {
        let (text, json) = logged(|| {
            let took = Duration::from_micros(84_500).as_secs_f64();
            tracing::info!(attempt = 2, took, share = 0.5, "acked");
        });
        let (_time, rest) = text.split_once(' ').unwrap();
        assert_eq!(rest.trim(), "INFO acked attempt=2 took=84.5ms share=0.5");
        assert_eq!(json["took"], 0.0845);
        assert_eq!(json["attempt"], 2);
        assert_eq!(json["level"], "INFO");
        assert!(json.get("guest").is_none());
    }

    #[test]
    fn values_with_spaces_are_quoted_and_keep_to_themselves() {
        let (text, _) = logged(|| {
            let reason = "no \"bank\" \\ there\u{1b}[2J\nclass=acked";
            tracing::warn!(reason, class = %"nacked", empty = "", "dead");
        });
        let expected = r#"WARN dead reason="no \"bank\" \\ there\u{1b}[2J\nclass=acked" class=nacked empty="""#;
        assert!(text.trim().ends_with(expected), "{text}");
    }

    #[test]
    fn a_line_of_a_handler_has_a_mark_that_no_other_line_has() {
        let (text, json) = logged(|| tracing::info!(target: "guest", id = "x", "acked id=y"));
        assert!(
            text.ends_with(" INFO [guest] \"acked id=y\" id=x\n"),
            "{text}"
        );
        assert_eq!(json["guest"], true);
        let (text, json) = logged(|| tracing::info!(id = "x", "[guest] acked"));
        assert!(text.ends_with(" INFO \"[guest] acked\" id=x\n"), "{text}");
        assert!(json.get("guest").is_none());
    }

    /// What is likely to be taken for something else.
    const HOSTILE: &str = "([a-c=\"\\\\ \\[\\]\u{0}-\u{1f}\u{9b}\u{202e}\u{a0}é]|\n|id=|\\[guest\\]| acked | INFO ){0,9}";

    proptest! {
        #[test]
        fn a_handlers_line_is_read_back_with_the_hosts_fields(
            message in HOSTILE, context in HOSTILE, any in any::<String>(),
        ) {
            for message in [&message, &any] {
                let (text, json) = logged(|| {
                    tracing::warn!(target: "guest", queue = "q", id = "1", attempt = 2, context, "{message}");
                });
                let fields = [("queue", "q"), ("id", "1"), ("attempt", "2"), ("context", &context)];
                let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
                let expected = Parsed { is_guest: true, message: message.clone(), fields: fields.into() };
                prop_assert_eq!(parse_exactly(&text, &context), expected);
                prop_assert_eq!(json["guest"].as_bool(), Some(true));
                prop_assert_eq!(json["message"].as_str(), Some(message.as_str()));
                prop_assert_eq!(json["context"].as_str(), Some(context.as_str()));
                prop_assert_eq!(json.as_object().unwrap().len(), 8);
            }
        }

        #[test]
        fn no_value_in_a_line_of_the_host_is_taken_for_a_field_or_a_mark(
            error in HOSTILE, reason in HOSTILE,
        ) {
            let (text, json) = logged(|| tracing::warn!(reason, last = 1, "{error}"));
            let parsed = parse_exactly(&text, &reason);
            prop_assert!(!parsed.is_guest && json.get("guest").is_none());
            let fields = [("reason", reason.as_str()), ("last", "1")];
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            prop_assert_eq!(parsed.fields, fields.into());
        }
    }

    /// A value that is not in quotes has its control characters written out, so it is compared in that
    /// form: `value` is the one that this is about.
    fn parse_exactly(text: &str, raw: &str) -> Parsed {
        let mut parsed = parse(text);
        for value in parsed.fields.values_mut() {
            if *value == printable(raw) {
                raw.clone_into(value);
            }
        }
        parsed
    }
}
