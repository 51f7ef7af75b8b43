//! How the fields of a log line are written as text: for people, and in words that a program can
//! split again.

use std::fmt;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

use crate::text::printable;

/// Fields whose numbers are seconds. As JSON they stay numbers.
const SECONDS: [&str; 3] = ["took", "delay", "limit"];

/// The message as it is, then each field as `name=value`. A value with spaces is in quotes, and no
/// control character gets through.
pub(super) struct TextFields;

impl<'w> FormatFields<'w> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut text = Text {
            writer,
            is_empty: true,
            result: Ok(()),
        };
        fields.record(&mut text);
        text.result
    }
}

struct Text<'w> {
    writer: Writer<'w>,
    is_empty: bool,
    result: fmt::Result,
}

impl Text<'_> {
    fn add(&mut self, field: &Field, value: &str) {
        let name = field.name();
        // Where a line of the crate `log` comes from.
        if self.result.is_err() || name.starts_with("log.") {
            return;
        }
        let name = name.strip_prefix("r#").unwrap_or(name);
        self.result = self.write(name, value);
        self.is_empty = false;
    }

    fn write(&mut self, name: &str, value: &str) -> fmt::Result {
        if !self.is_empty {
            self.writer.write_char(' ')?;
        }
        if name == "message" {
            return self.writer.write_str(&printable(value));
        }
        if self.writer.has_ansi_escapes() {
            write!(self.writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m")?;
        } else {
            write!(self.writer, "{name}=")?;
        }
        if value.is_empty() || value.contains(|c: char| c.is_whitespace() || c == '"') {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            write!(self.writer, "\"{}\"", printable(&quoted))
        } else {
            self.writer.write_str(&printable(value))
        }
    }
}

impl Visit for Text<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        match Duration::try_from_secs_f64(value) {
            Ok(duration) if SECONDS.contains(&field.name()) => {
                self.add(field, &format!("{duration:?}"));
            }
            _ => self.add(field, &value.to_string()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Lines {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// What is logged, as text without times and as JSON.
    fn logged(log: impl Fn()) -> (String, serde_json::Value) {
        let (text, json) = (Lines::default(), Lines::default());
        let builder = || {
            tracing_subscriber::fmt()
                .with_target(false)
                .with_ansi(false)
        };
        let in_text = builder()
            .without_time()
            .fmt_fields(TextFields)
            .with_writer(text.clone());
        tracing::subscriber::with_default(in_text.finish(), &log);
        let in_json = builder()
            .json()
            .flatten_event(true)
            .with_writer(json.clone());
        tracing::subscriber::with_default(in_json.finish(), &log);
        let text = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
        let json = serde_json::from_slice(&json.0.lock().unwrap()).unwrap();
        (text, json)
    }

    #[test]
    fn times_are_numbers_of_seconds_in_json_and_words_in_text() {
        let (text, json) = logged(|| {
            let took = Duration::from_micros(84_500).as_secs_f64();
            tracing::info!(attempt = 2, took, share = 0.5, "acked");
        });
        assert_eq!(text.trim(), "INFO acked attempt=2 took=84.5ms share=0.5");
        assert_eq!(json["took"], 0.0845);
    }

    #[test]
    fn values_with_spaces_are_quoted_and_keep_to_themselves() {
        let (text, _) = logged(|| {
            let reason = "no \"bank\" \\ there\u{1b}[2J\nclass=acked";
            tracing::warn!(reason, class = %"nacked", empty = "", "dead");
        });
        let expected = r#"WARN dead reason="no \"bank\" \\ there\u{1b}[2J\nclass=acked" class=nacked empty="""#;
        assert_eq!(text.trim(), expected);
    }

    proptest! {
        #[test]
        fn no_value_is_taken_for_another_field(value in "[a-c=\"\\\\ \u{0}-\u{1f}\u{9b}é]{0,12}") {
            let (text, _) = logged(|| tracing::info!(value, last = 1, "x"));
            let line = text.trim_end_matches('\n');
            prop_assert!(!line.contains(char::is_control), "{:?}", line);
            let between = line.strip_prefix(" INFO x value=").unwrap().strip_suffix(" last=1").unwrap();
            let is_word = !between.contains([' ', '"']) && !between.is_empty();
            let inner = between.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let ends_alone = inner.is_some_and(|inner| {
                let plain = inner.replace("\\\\", "").replace("\\\"", "");
                !plain.contains('"') && !plain.ends_with('\\')
            });
            prop_assert!(is_word || ends_alone, "{:?}", line);
        }
    }
}
