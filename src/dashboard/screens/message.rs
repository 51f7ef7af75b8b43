//! One message: its payload, its headers, its attempts.

use std::fmt::Write as _;
use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::control::{End, LISTED_PAYLOAD_MAX, Query, ended_text};
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::state::{Effect, Opened, PayloadView, Screen, State, scrolled};
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::{frame, put, safe, split, until, wait, wrapped};
use crate::message::{Attempt, HistoryEntry, MessageId, QueueName, Record, State as MessageState};
use crate::text::{printable, times};

mod json;
mod payload;
pub(super) mod timeline;

/// Bytes of a payload that are shown.
const SHOWN_MAX: usize = 64 * 1024;

/// From so many columns on the timeline stands beside the message.
const COLUMNS_OF_TIMELINE: u16 = 160;

pub(super) const SCOPE: Scope = Scope::Screen(
    "One message",
    &[
        Action::RunNow,
        Action::Cancel,
        Action::Redrive,
        Action::Try,
        Action::Edit,
        Action::Delete,
        Action::PayloadView,
        Action::CopyId,
        Action::CopyPayload,
    ],
);

/// What is shown instead of a screen while a message is open.
#[derive(Debug)]
pub(super) struct Message;

impl Screen for Message {
    fn name(&self) -> &'static str {
        "Message"
    }

    fn scope(&self, _: &State) -> Scope {
        SCOPE
    }

    fn query(&self, state: &State) -> Query {
        let opened = self.current(state);
        opened.map_or(Query::Nothing, |(queue, id)| Query::Message { queue, id })
    }

    fn current(&self, state: &State) -> Option<(QueueName, MessageId)> {
        let opened = state.opened.as_ref()?;
        Some((opened.queue.clone(), opened.id.clone()))
    }

    fn navigate(&self, state: &mut State, action: Action) {
        let page = state.list_rows();
        if let Some(opened) = &mut state.opened {
            opened.scroll = scrolled(opened.scroll, action, page);
        }
    }

    fn act(&self, state: &mut State, action: Action) -> Option<Vec<Effect>> {
        let opened = state
            .opened
            .as_mut()
            .filter(|_| action == Action::PayloadView)?;
        opened.scroll = 0;
        opened.view = match opened.view {
            PayloadView::Json => PayloadView::Text,
            PayloadView::Text => PayloadView::Hex,
            PayloadView::Hex => PayloadView::Json,
        };
        Some(Vec::new())
    }

    fn draw(&self, state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer) {
        draw(state, now, area, buffer);
    }
}

fn draw(state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let now_ms = state.snapshot.now_ms(now);
    let Some(opened) = &mut state.opened else {
        return;
    };
    let (area, beside) = if area.width < COLUMNS_OF_TIMELINE {
        (area, None)
    } else {
        split(area)
    };
    if let Some(beside) = beside {
        let area = frame(theme, "What happened", beside, buffer);
        put(timeline(theme, opened, now_ms, area.width), area, buffer);
    }
    let area = frame(theme, "Message", area, buffer);
    let mut lines = text(theme, opened, now_ms, usize::from(area.width));
    if beside.is_none() {
        lines.push(Line::default());
        lines.extend(timeline(theme, opened, now_ms, area.width));
    }
    let hidden = lines.len().saturating_sub(usize::from(area.height));
    opened.scroll = opened.scroll.min(hidden);
    put(lines.split_off(opened.scroll), area, buffer);
}

fn timeline(theme: Theme, opened: &Opened, now_ms: u64, width: u16) -> Vec<Line<'static>> {
    let known = timeline::Known {
        id: &opened.id,
        record: opened.record.as_deref(),
        ended: opened.ended.as_deref(),
    };
    known.lines(theme, now_ms, usize::from(width))
}

/// What a list knows of its selected message.
pub(super) fn beside_list(
    theme: Theme,
    record: &Record,
    now_ms: u64,
    area: Rect,
    buffer: &mut Buffer,
) {
    let area = frame(theme, "Selected", area, buffer);
    let width = usize::from(area.width);
    put(listed(theme, record, now_ms, width), area, buffer);
}

/// The same as lines.
pub(super) fn listed(
    theme: Theme,
    record: &Record,
    now_ms: u64,
    width: usize,
) -> Vec<Line<'static>> {
    let id = safe(record.id.as_str(), width);
    let mut lines = vec![Line::styled(id, theme.accent())];
    let beginning = (PayloadView::Json, LISTED_PAYLOAD_MAX);
    lines.extend(about(theme, record, beginning, now_ms, width));
    lines
}

fn text(theme: Theme, opened: &Opened, now_ms: u64, width: usize) -> Vec<Line<'static>> {
    let id = safe(opened.id.as_str(), 80);
    let mut lines = vec![Line::from(vec![
        Span::raw("message "),
        Span::styled(id, theme.accent()),
    ])];
    if opened.is_gone {
        lines.push(how_it_ended(theme, opened, now_ms));
    }
    let Some(record) = opened.record.as_deref() else {
        if !opened.is_gone {
            lines.push(Line::styled("reading…", theme.dim()));
        }
        return lines;
    };
    if opened.is_gone {
        lines.push(Line::styled("what was last known of it:", theme.dim()));
    }
    lines.extend(about(
        theme,
        record,
        (opened.view, SHOWN_MAX),
        now_ms,
        width,
    ));
    lines
}

/// What became of a message that the queue no longer has.
fn how_it_ended(theme: Theme, opened: &Opened, now_ms: u64) -> Line<'static> {
    if let Some(ended) = &opened.ended {
        let text = ended_text(ended, now_ms);
        return match ended.end {
            End::Acked => Line::styled(text, theme.good()),
            End::Cancelled => Line::raw(text),
            End::Died => Line::raw(format!("{text}; redriven or deleted since")),
        };
    }
    if let Some(end) = &opened.end {
        return Line::styled(end.clone(), theme.good());
    }
    let last_state = opened.record.as_ref().map(|record| record.state);
    let queue = &opened.queue;
    match last_state {
        // Nothing else takes it from a host.
        Some(MessageState::Unack) => {
            Line::styled(format!("acked by a host of {queue}"), theme.good())
        }
        None => Line::raw(format!(
            "not in {queue}: acked by a host, cancelled, or never sent"
        )),
        Some(MessageState::Dead) => Line::raw(format!(
            "no longer a dead letter of {queue}: redriven or deleted"
        )),
        _ => Line::styled(
            format!("no longer in {queue}: acked by a host, or cancelled"),
            theme.good(),
        ),
    }
}

/// What is known of a message, with at most so many bytes of its payload.
fn about(
    theme: Theme,
    record: &Record,
    (view, payload_max): (PayloadView, usize),
    now_ms: u64,
    width: usize,
) -> Vec<Line<'static>> {
    let mut lines = facts(record, now_ms);
    for (key, value) in &record.headers {
        lines.push(Line::raw(format!(
            "header    {}={}",
            printable(key),
            safe(value, width.max(20) - 12)
        )));
    }
    lines.push(Line::default());
    lines.extend(payload::lines(theme, record, (view, payload_max), width));
    lines.push(Line::default());
    lines.push(Line::styled("attempts, latest first", theme.dim()));
    if record.history.is_empty() {
        lines.push(Line::raw("none has failed so far"));
    }
    for entry in record.history.iter().rev() {
        match entry {
            HistoryEntry::Attempt(attempt) => {
                lines.extend(attempt_lines(theme, attempt, now_ms, width));
            }
            HistoryEntry::Redriven {
                redriven_from,
                at_ms,
                redrives,
            } => {
                let mut text = format!(
                    "redriven from {}, {}",
                    safe(redriven_from, 60),
                    until(*at_ms, now_ms)
                );
                if *redrives > 1 {
                    let _ = write!(text, ", {} in all", times(*redrives));
                }
                lines.push(Line::raw(text));
            }
        }
    }
    lines
}

fn facts(record: &Record, now_ms: u64) -> Vec<Line<'static>> {
    let mut state = format!("state     {}", record.state.as_str());
    if let Some(at_ms) = record.at_ms {
        let what = match record.state {
            MessageState::Unack => "its lease ends",
            MessageState::Dead => "died",
            _ => "due",
        };
        let _ = write!(state, ", {what} {}", until(at_ms, now_ms));
    }
    let last = record.retries_left == 0 && record.state != MessageState::Dead;
    let left = format!(
        "attempts  {} failed, {} retries left{}",
        record.attempts,
        record.retries_left,
        if last {
            ": the next failure is the last"
        } else {
            ""
        },
    );
    vec![Line::raw(state), Line::raw(left)]
}

fn attempt_lines(theme: Theme, attempt: &Attempt, now_ms: u64, width: usize) -> Vec<Line<'static>> {
    let mut text = format!("{:>3}  {}", attempt.attempt, printable(&attempt.class));
    if let Some(ms) = attempt.duration_ms {
        let took = wait(std::time::Duration::from_millis(ms));
        let _ = write!(text, " after {took}");
    }
    let _ = write!(text, ", {}", until(attempt.at_ms, now_ms));
    let mut lines = vec![Line::styled(text, theme.warn())];
    let indented = |text: &str, style: Style| {
        wrapped(text, width.saturating_sub(5), false)
            .into_iter()
            .map(|line| {
                let mut spans = vec![Span::raw("     ")];
                spans.extend(line.spans);
                Line::from(spans).style(style)
            })
            .collect::<Vec<_>>()
    };
    if !attempt.reason.is_empty() {
        lines.extend(indented(&attempt.reason, Style::new()));
    }
    if !attempt.host.is_empty() {
        let handler = safe(&attempt.handler, 13);
        let by = format!("host {}, handler {handler}", safe(&attempt.host, 36));
        lines.extend(indented(&by, theme.dim()));
    }
    if !attempt.log.trim().is_empty() {
        lines.extend(indented(attempt.log.trim_end(), theme.good()));
    }
    lines
}
