//! One message: its payload, its headers, its attempts.

use std::fmt::Write as _;
use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{put, safe, until};
use crate::dashboard::state::{Opened, PayloadView, State};
use crate::dashboard::theme::Theme;
use crate::message::{Attempt, HistoryEntry, Record, State as MessageState};
use crate::text::{hex, human_duration, printable, printable_json};

/// Bytes of a payload that are shown.
const SHOWN_MAX: usize = 64 * 1024;

/// Bytes of a line in hexadecimal.
const HEX_ROW: usize = 16;

pub(super) fn draw(state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let now_ms = state.snapshot.now_ms(now);
    let Some(opened) = &mut state.opened else {
        return;
    };
    let mut lines = text(theme, opened, now_ms, usize::from(area.width));
    let hidden = lines.len().saturating_sub(usize::from(area.height));
    opened.scroll = opened.scroll.min(hidden);
    put(lines.split_off(opened.scroll), area, buffer);
}

fn text(theme: Theme, opened: &Opened, now_ms: u64, width: usize) -> Vec<Line<'static>> {
    let id = safe(opened.id.as_str(), 80);
    let mut lines = vec![Line::from(vec![
        Span::raw("message "),
        Span::styled(id, theme.accent()),
    ])];
    if opened.is_gone {
        lines.push(Line::styled(
            format!(
                "no longer in queue {}: acked, cancelled, redriven or deleted",
                opened.queue
            ),
            theme.good(),
        ));
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
    lines.extend(facts(record, now_ms));
    for (key, value) in &record.headers {
        lines.push(Line::raw(format!(
            "header    {}={}",
            printable(key),
            safe(value, width.max(20) - 12)
        )));
    }
    lines.push(Line::default());
    lines.extend(payload_lines(theme, record, opened.view, width));
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
            } => lines.push(Line::raw(format!(
                "redriven from {}, {}",
                safe(redriven_from, 60),
                until(*at_ms, now_ms)
            ))),
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

fn payload_lines(
    theme: Theme,
    record: &Record,
    view: PayloadView,
    width: usize,
) -> Vec<Line<'static>> {
    let Some(bytes) = &record.payload else {
        return vec![Line::styled(
            "payload   missing from the store",
            theme.bad(),
        )];
    };
    let shown = &bytes[..bytes.len().min(SHOWN_MAX)];
    let json = || {
        let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        let text = serde_json::to_string_pretty(&value).ok()?;
        Some(text[..text.floor_char_boundary(SHOWN_MAX)].to_owned())
    };
    let as_text = || match std::str::from_utf8(shown) {
        Ok(text) => Some(text.to_owned()),
        Err(error) if error.error_len().is_none() => {
            Some(String::from_utf8_lossy(&shown[..error.valid_up_to()]).into_owned())
        }
        Err(_) => None,
    };
    let (name, text) = match view {
        PayloadView::Json => match json() {
            Some(json) => ("JSON", Some(json)),
            None => ("text", as_text()),
        },
        PayloadView::Text => ("text", as_text()),
        PayloadView::Hex => ("hexadecimal", None),
    };
    let name = if text.is_none() { "hexadecimal" } else { name };
    let mut head = format!("payload   {} bytes, as {name}", bytes.len());
    if bytes.len() > SHOWN_MAX {
        let _ = write!(head, ", the first {SHOWN_MAX}");
    }
    let mut lines = vec![Line::styled(head, theme.dim())];
    match text {
        Some(text) => lines.extend(wrapped(&text, width, name == "JSON")),
        None => lines.extend(
            shown
                .chunks(HEX_ROW)
                .enumerate()
                .map(|(row, bytes)| hex_row(row, bytes)),
        ),
    }
    lines
}

/// The lines of a text, made harmless and broken where they are longer than the screen.
fn wrapped(text: &str, width: usize, is_json: bool) -> Vec<Line<'static>> {
    let width = width.max(10);
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let line = line
            .strip_suffix('\r')
            .unwrap_or(line)
            .replace('\t', "    ");
        let line = if is_json {
            printable_json(&line)
        } else {
            printable(&line)
        };
        let mut part = String::new();
        let mut columns = 0;
        for c in line.chars() {
            let wide = Span::raw(c.to_string()).width();
            if columns + wide > width {
                lines.push(Line::raw(std::mem::take(&mut part)));
                columns = 0;
            }
            part.push(c);
            columns += wide;
        }
        lines.push(Line::raw(part));
    }
    lines
}

fn hex_row(row: usize, bytes: &[u8]) -> Line<'static> {
    let pairs: Vec<String> = bytes.iter().map(|byte| hex(&[*byte])).collect();
    let text: String = bytes
        .iter()
        .map(|&byte| {
            if (0x20..0x7f).contains(&byte) {
                char::from(byte)
            } else {
                '.'
            }
        })
        .collect();
    Line::raw(format!(
        "{:06x}  {:<47}  {text}",
        row * HEX_ROW,
        pairs.join(" ")
    ))
}

fn attempt_lines(theme: Theme, attempt: &Attempt, now_ms: u64, width: usize) -> Vec<Line<'static>> {
    let mut text = format!("{:>3}  {}", attempt.attempt, printable(&attempt.class));
    if let Some(ms) = attempt.duration_ms {
        let took = human_duration(std::time::Duration::from_millis(ms));
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
