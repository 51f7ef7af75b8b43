//! What happened to one message, as a picture: sent, due, each attempt, its end.

use std::time::Duration;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::control::{End, Ended};
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::{by_words, padded, safe, until, wait, wrapped};
use crate::message::{Attempt, HistoryEntry, MessageId, Record, State as MessageState};
use crate::text::printable;

/// Signs that have a place on the line in common.
const SENT: char = '●';
const DUE: char = '▼';
const FAILED: char = '▲';
const ACKED: char = '▶';
const DIED: char = '×';

/// Columns of the line at most: a longer one tells no more.
const LINE_MAX: usize = 80;

/// Columns of what an event is called, and of the time since the one before.
const NAME: usize = 13;
const SINCE: usize = 10;

/// What is known of a message.
pub(in crate::dashboard::screens) struct Known<'a> {
    pub id: &'a MessageId,
    pub record: Option<&'a Record>,
    pub ended: Option<&'a Ended>,
}

/// Something that happened to it, or will.
struct Event {
    at_ms: u64,
    sign: char,
    name: String,
    /// More than its name says.
    more: String,
    style: Style,
}

impl Known<'_> {
    /// The picture, with a line or two for each event.
    pub(in crate::dashboard::screens) fn lines(
        &self,
        theme: Theme,
        now_ms: u64,
        width: usize,
    ) -> Vec<Line<'static>> {
        let events = self.events(theme);
        let Some(first) = events.first() else {
            return Vec::new();
        };
        let mut lines = vec![Line::styled("timeline", theme.dim())];
        lines.extend(picture(theme, &events, width.min(LINE_MAX)));
        let mut before = first.at_ms;
        for event in &events {
            let since = match event.at_ms.saturating_sub(before) {
                0 => String::new(),
                ms => format!("+{}", wait(Duration::from_millis(ms))),
            };
            before = event.at_ms;
            let rest = format!(
                " {} {} {}",
                padded(&event.name, NAME),
                padded(&since, SINCE),
                until(event.at_ms, now_ms)
            );
            lines.push(Line::from(vec![
                Span::styled(event.sign.to_string(), event.style),
                Span::raw(rest),
            ]));
            let more = by_words(&event.more, width.saturating_sub(2));
            lines.extend(
                more.into_iter()
                    .filter(|line| line.width() > 0)
                    .map(|line| {
                        let mut spans = vec![Span::raw("  ")];
                        spans.extend(line.spans);
                        Line::from(spans).style(theme.dim())
                    }),
            );
        }
        if let Some(missing) = self.missing() {
            lines.extend(wrapped(&missing, width, false));
        }
        lines
    }

    /// In their order.
    fn events(&self, theme: Theme) -> Vec<Event> {
        let event = |at_ms, (sign, name): (char, &str), style| Event {
            at_ms,
            sign,
            name: name.to_owned(),
            more: String::new(),
            style,
        };
        let sent = self.id.sent_at_ms();
        let mut events: Vec<Event> = sent
            .map(|at_ms| event(at_ms, (SENT, "sent"), theme.accent()))
            .into_iter()
            .collect();
        let due = (self.record)
            .filter(|record| record.state == MessageState::Pending)
            .and_then(|record| record.at_ms);
        let its_end = self.its_end();
        let due = due.or(its_end.and_then(|ended| ended.due_at_ms));
        events.extend(due.map(|at_ms| event(at_ms, (DUE, "due"), theme.warn())));
        let history = self
            .record
            .map_or(&[][..], |record| record.history.as_slice());
        for entry in history {
            events.push(match entry {
                HistoryEntry::Attempt(attempt) => failed(theme, attempt),
                HistoryEntry::Redriven { at_ms, .. } => {
                    event(*at_ms, (SENT, "redriven"), theme.accent())
                }
            });
        }
        // The moment alone puts an end before what it follows from.
        events.sort_by_key(|event| event.at_ms);
        let dead = self
            .record
            .filter(|record| record.state == MessageState::Dead);
        if let Some(ended) = its_end {
            events.push(self.end(theme, ended));
        } else if let Some(at_ms) = dead.and_then(|record| record.at_ms) {
            events.push(event(at_ms, (DIED, "dead"), theme.bad()));
        }
        events
    }

    /// How it ended, unless that was told of another message, which had the same id before.
    fn its_end(&self) -> Option<&Ended> {
        let is_it = |ended: &&Ended| match self.record {
            None => true,
            Some(record) if record.state != MessageState::Dead => false,
            Some(record) => record.last_attempt().is_none_or(|last| {
                let took = last.duration_ms.unwrap_or(ended.duration_ms);
                ended.end == End::Died
                    && (ended.attempt, ended.duration_ms) == (last.attempt, took)
                    && (&ended.host, &ended.handler) == (&last.host, &last.handler)
            }),
        };
        self.ended.filter(is_it)
    }

    fn end(&self, theme: Theme, ended: &Ended) -> Event {
        let (sign, name, style) = match ended.end {
            End::Acked => (ACKED, "acked", theme.good()),
            End::Died => (DIED, "died", theme.bad()),
            End::Cancelled => (DIED, "cancelled", theme.warn()),
        };
        let by = by(&ended.host, &ended.handler);
        let after = wait(Duration::from_millis(ended.duration_ms));
        let is_told = self.has_attempt(ended.attempt);
        Event {
            at_ms: ended.at_ms,
            sign,
            name: name.to_owned(),
            more: if is_told {
                String::new()
            } else {
                format!("attempt {} in {after}{by}", ended.attempt)
            },
            style,
        }
    }

    fn has_attempt(&self, number: u32) -> bool {
        let is_it = |entry: &HistoryEntry| match entry {
            HistoryEntry::Attempt(attempt) => attempt.attempt == number,
            HistoryEntry::Redriven { .. } => false,
        };
        self.record
            .is_some_and(|record| record.history.iter().any(is_it))
    }

    /// What is kept of a message that is gone is its last attempt alone.
    fn missing(&self) -> Option<String> {
        let ended = self.ended.filter(|_| self.record.is_none())?;
        match ended.attempt {
            ..2 => None,
            2 => Some("attempt 1 failed; no more is kept of it".to_owned()),
            n => Some(format!(
                "attempts 1 to {} failed; no more is kept of them",
                n - 1
            )),
        }
    }
}

fn failed(theme: Theme, attempt: &Attempt) -> Event {
    let after = attempt.duration_ms.map_or(String::new(), |ms| {
        format!(" after {}", wait(Duration::from_millis(ms)))
    });
    let class = printable(&attempt.class);
    Event {
        at_ms: attempt.at_ms,
        sign: FAILED,
        name: format!("attempt {}", attempt.attempt),
        more: format!("{class}{after}{}", by(&attempt.host, &attempt.handler)),
        style: theme.warn(),
    }
}

/// The host, and the beginning of the digest.
fn by(host: &str, handler: &str) -> String {
    if host.is_empty() {
        return String::new();
    }
    format!(", host {}, handler {}", safe(host, 9), safe(handler, 9))
}

/// The events on a line that is as long as the time between the first and the last.
fn picture(theme: Theme, events: &[Event], width: usize) -> Option<Line<'static>> {
    let (first, last) = (events.first()?.at_ms, events.last()?.at_ms);
    let span = last.checked_sub(first).filter(|span| *span > 0)?;
    if events.len() > width {
        return None;
    }
    let mut columns: Vec<usize> = Vec::new();
    for event in events {
        let part = u128::from(event.at_ms.clamp(first, last) - first);
        let column = part * (width as u128 - 1) / u128::from(span);
        let column = usize::try_from(column).unwrap_or(width);
        // Each has a column of its own, and the last ones have room.
        let next = columns.last().map_or(0, |before| before + 1);
        columns.push(column.max(next).min(width - (events.len() - columns.len())));
    }
    let mut spans = Vec::new();
    let mut at = 0;
    for (event, column) in events.iter().zip(columns) {
        spans.push(Span::styled("─".repeat(column - at), theme.dim()));
        spans.push(Span::styled(event.sign.to_string(), event.style));
        at = column + 1;
    }
    Some(Line::from(spans))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn theme() -> Theme {
        Theme {
            light: false,
            no_color: false,
            ascii: false,
        }
    }

    /// A message in this state, which has failed once.
    fn failed_once(state: MessageState) -> Record {
        let attempt = Attempt {
            attempt: 2,
            at_ms: 9_000,
            class: "rejected".to_owned(),
            reason: String::new(),
            duration_ms: Some(12),
            host: "h".to_owned(),
            handler: "new".to_owned(),
            log: String::new(),
        };
        Record {
            id: "order-1".into(),
            state,
            at_ms: Some(10_000),
            attempts: 2,
            retries_left: 0,
            headers: Vec::new(),
            history: vec![HistoryEntry::Attempt(attempt)],
            payload: None,
        }
    }

    fn ended(end: End, handler: &str) -> Ended {
        Ended {
            id: "order-1".into(),
            at_ms: 9_001,
            end,
            attempt: 2,
            duration_ms: 12,
            due_at_ms: Some(8_000),
            host: "h".to_owned(),
            handler: handler.to_owned(),
            class: String::new(),
            reason: String::new(),
            has_result: false,
        }
    }

    #[test]
    fn an_id_that_was_sent_again_does_not_end_as_it_did_before() {
        use MessageState::{Dead, Pending, Retry};
        for (state, end, handler, expected) in [
            (Dead, End::Died, "new", "due attempt 2 died"),
            (Dead, End::Died, "old", "attempt 2 dead"),
            (Dead, End::Acked, "new", "attempt 2 dead"),
            (Retry, End::Acked, "new", "attempt 2"),
            (Pending, End::Died, "new", "attempt 2 due"),
        ] {
            let (record, ended) = (failed_once(state), ended(end, handler));
            let known = Known {
                id: &record.id,
                record: Some(&record),
                ended: Some(&ended),
            };
            let events = known.events(theme());
            let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
            assert_eq!(names.join(" "), expected, "{state:?} {end:?}");
        }
    }

    proptest! {
        #[test]
        fn every_event_is_on_the_line_whenever_it_was(
            mut times in prop::collection::vec(prop_oneof![any::<u64>(), 0..50_u64], 1..30),
            width in 0..90_usize,
        ) {
            times.sort_unstable();
            let event = |at_ms: &u64| Event {
                at_ms: *at_ms,
                sign: FAILED,
                name: String::new(),
                more: String::new(),
                style: Style::new(),
            };
            let events: Vec<Event> = times.iter().map(event).collect();
            let is_drawn = times.first() < times.last() && times.len() <= width;
            let line = picture(theme(), &events, width);
            prop_assert_eq!(line.is_some(), is_drawn);
            let Some(line) = line else { return Ok(()) };
            let text: String = line.iter().map(|span| span.content.as_ref()).collect();
            prop_assert!(text.chars().count() <= width, "{}", text);
            prop_assert_eq!(text.matches(FAILED).count(), times.len());
        }
    }
}
