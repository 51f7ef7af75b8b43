//! What the screens are drawn with: texts that fit, numbers, bars, panels.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Widget};

use super::rates::{Flow, Per, Rates};
use super::state::{COLUMNS_OF_PANELS, ROWS_OF_PANELS, ROWS_OF_STATUS_AND_KEYS};
use super::theme::Theme;
use crate::control::Overview;
use crate::text::{cut, human_duration, printable, printable_json, short_number};

/// From so many columns on what is selected is shown beside its list.
const COLUMNS_OF_SPLIT: u16 = 120;

/// Text from outside as a line of at most `width` columns, with a mark where it is cut.
pub(super) fn safe(text: &str, width: usize) -> String {
    // Four bytes a column are enough for any character that has a width.
    let text = if text.len() > width * 4 + 16 {
        cut(text, width * 4)
    } else {
        text.into()
    };
    let text = printable(&text);
    if columns(&text) <= width {
        return text.into_owned();
    }
    let (mut shown, mut used) = (String::new(), 0);
    for c in text.chars() {
        used += columns(c.encode_utf8(&mut [0; 4]));
        if used >= width {
            break;
        }
        shown.push(c);
    }
    if width > 0 {
        shown.push('…');
    }
    shown
}

/// Columns that a text takes.
pub(super) fn columns(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    Span::raw(text).width()
}

/// The text with blanks behind it up to so many columns.
pub(super) fn padded(text: &str, width: usize) -> String {
    let blanks = width.saturating_sub(columns(text));
    format!("{text}{}", " ".repeat(blanks))
}

pub(super) fn short(number: usize) -> String {
    short_number(number as u64)
}

/// An id in at most `width` columns: of a long one its start, which tells when it was made, and its
/// end, which tells it from others of that time.
pub(super) fn short_id(id: &str, width: usize) -> String {
    let safe_id = safe(id, 80);
    let count = safe_id.chars().count();
    if count <= width || width < 10 {
        return safe(&safe_id, width);
    }
    let end: String = safe_id.chars().skip(count - (width - 9)).collect();
    let start: String = safe_id.chars().take(8).collect();
    format!("{start}…{end}")
}

/// A line of a list, marked and reversed when selected.
pub(super) fn row(theme: Theme, is_selected: bool, text: &str, style: Style) -> Line<'static> {
    let mark = if is_selected { ">" } else { " " };
    let style = if is_selected {
        style.patch(theme.selected())
    } else {
        style
    };
    Line::styled(format!("{mark}{text}"), style)
}

/// A length of time in at most nine columns.
pub(super) fn wait(duration: Duration) -> String {
    const DAYS_MAX: u64 = 9999;
    if duration.as_secs() / 86_400 > DAYS_MAX {
        return format!(">{DAYS_MAX}d");
    }
    human_duration(duration)
}

/// How far away a time is, by the store's clock.
pub(super) fn until(at_ms: u64, now_ms: u64) -> String {
    let wait = |ms| wait(Duration::from_millis(ms));
    match at_ms.checked_sub(now_ms) {
        Some(0) => "now".to_owned(),
        Some(left) => format!("in {}", wait(left)),
        None => format!("{} ago", wait(now_ms - at_ms)),
    }
}

/// How long the first in line has been ready.
pub(super) fn oldest(overview: &Overview, now_ms: u64) -> Option<Duration> {
    let since = overview.oldest_ready_ms?;
    Some(Duration::from_millis(now_ms.saturating_sub(since)))
}

/// Lines one below the other, as many as there is room for. Where a line is too long, its last words
/// are left out: no number loses a digit.
pub(super) fn put(lines: Vec<Line<'static>>, area: Rect, buffer: &mut Buffer) {
    for (line, row) in lines.into_iter().zip(area.rows()) {
        fitted(line, usize::from(area.width)).render(row, buffer);
    }
}

/// The line in so many columns, cut between two words.
pub(super) fn fitted(line: Line<'static>, width: usize) -> Line<'static> {
    if line.width() <= width {
        return line;
    }
    let text: String = line.iter().map(|span| span.content.as_ref()).collect();
    let mut used = 0;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        if c == ' ' {
            end = at;
        }
        used += columns(c.encode_utf8(&mut [0; 4]));
        if used >= width {
            break;
        }
    }
    let end = text[..end].trim_end().len();
    let mut spans = Vec::new();
    let mut left = end;
    for span in line.spans {
        let part = span.content.len().min(left);
        left -= part;
        spans.push(Span::styled(span.content[..part].to_owned(), span.style));
    }
    spans.push(Span::raw("…"));
    Line::from(spans).style(line.style)
}

/// The lines of a text, made harmless and broken where they are longer than the screen.
pub(super) fn wrapped(text: &str, width: usize, is_json: bool) -> Vec<Line<'static>> {
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
        let mut used = 0;
        for c in line.chars() {
            let wide = columns(c.encode_utf8(&mut [0; 4]));
            if used + wide > width {
                // Between two words where one ends not far before.
                let end = part.rfind(' ').filter(|at| part.len() - at < width / 2);
                let rest = end.map_or(String::new(), |at| part.split_off(at + 1));
                lines.push(Line::raw(std::mem::replace(&mut part, rest)));
                used = columns(&part);
            }
            part.push(c);
            used += wide;
        }
        lines.push(Line::raw(part));
    }
    lines
}

/// Lines for a sentence of so many columns, with no word on two of them unless it is longer than a line.
pub(super) fn by_words(text: &str, width: usize) -> Vec<Line<'static>> {
    let width = width.max(10);
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in printable(text).split_whitespace() {
        if !line.is_empty() && columns(&line) + 1 + columns(word) <= width {
            line = line + " " + word;
            continue;
        }
        for part in wrapped(word, width, false) {
            if !line.is_empty() {
                lines.push(Line::raw(line));
            }
            line = part.to_string();
        }
    }
    lines.push(Line::raw(line));
    lines
}

/// A box with a title, which leaves what is inside.
pub(super) fn panel(theme: Theme, title: Line<'static>, area: Rect, buffer: &mut Buffer) -> Rect {
    let room = usize::from(area.width.saturating_sub(4));
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.dim())
        .title(fitted(title, room));
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}

/// A title of a panel.
pub(super) fn title(theme: Theme, text: &str) -> Line<'static> {
    let style = theme.accent().remove_modifier(Modifier::DIM);
    Line::styled(format!(" {text} "), style)
}

/// A box around a screen where there is room for one; what is left.
pub(super) fn frame(theme: Theme, text: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    if area.height < ROWS_OF_PANELS - ROWS_OF_STATUS_AND_KEYS || area.width < COLUMNS_OF_PANELS {
        return area;
    }
    panel(theme, title(theme, text), area, buffer)
}

/// The place of a list, and that of what is selected where there is room for it.
pub(super) fn split(area: Rect) -> (Rect, Option<Rect>) {
    if area.width < COLUMNS_OF_SPLIT || area.height < ROWS_OF_PANELS - ROWS_OF_STATUS_AND_KEYS {
        return (area, None);
    }
    let [list, beside] =
        Layout::horizontal([Constraint::Percentage(56), Constraint::Fill(1)]).areas(area);
    (list, Some(beside))
}

/// An empty box with a title on top of what is there; what is inside of it.
pub(super) fn pop_up(theme: Theme, text: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    Clear.render(area, buffer);
    panel(theme, title(theme, text), area, buffer)
}

/// Nothing is neutral.
pub(super) fn depth(number: u64) -> Style {
    if number == 0 {
        Style::new().add_modifier(Modifier::DIM)
    } else {
        Style::new()
    }
}

/// A rate in at most five columns.
pub(super) fn rate(per: Per, rates: Option<&Rates>, flow: Flow) -> String {
    match rates.and_then(|rates| rates.now(flow)) {
        None => "-".to_owned(),
        Some(rate) => rate_text(per.of(rate)),
    }
}

/// The same with its unit.
pub(super) fn rate_with_unit(per: Per, rate: f64) -> String {
    format!("{}{}", rate_text(per.of(rate)), per.unit())
}

pub(super) fn rate_text(rate: f64) -> String {
    if rate < 9.95 {
        format!("{rate:.1}")
    } else {
        short_number(whole(rate))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and widths are not negative, and too large a rate stays the largest number"
)]
pub(super) fn whole(number: f64) -> u64 {
    number.round().max(0.0) as u64
}

/// A part of a whole as a bar.
#[expect(clippy::cast_precision_loss, reason = "a bar has a few dozen columns")]
pub(super) fn gauge(part: u64, of: u64, width: usize) -> String {
    let share = if of == 0 {
        0.0
    } else {
        (part as f64 / of as f64).min(1.0)
    };
    let full = usize::try_from(whole(share * width as f64)).unwrap_or(width);
    // What is not empty is seen.
    let full = full.max(usize::from(part > 0)).min(width);
    format!("{}{}", "█".repeat(full), "░".repeat(width - full))
}

/// A bar that grows with the logarithm of the number, so that ten beside a million is seen.
#[expect(clippy::cast_precision_loss, reason = "a bar has a few dozen columns")]
pub(super) fn bar(number: u64, width: usize) -> String {
    /// A number that fills a bar: ten million.
    const FULL: f64 = 7.0;
    if number == 0 {
        return String::new();
    }
    let part = (number as f64 + 1.0).log10() / FULL;
    let columns = whole(part.min(1.0) * width as f64).max(1);
    "█".repeat(usize::try_from(columns).unwrap_or(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_on_one_line_unless_it_is_longer() {
        let lines = |text: &str, width| -> Vec<String> {
            let lines = by_words(text, width);
            lines.iter().map(Line::to_string).collect()
        };
        let text = "acked 213503982d ago, by host 5a6b7c8d-host: no";
        let wanted = [
            "acked",
            "213503982d",
            "ago, by host",
            "5a6b7c8d-host:",
            "no",
        ];
        assert_eq!(lines(text, 14), wanted);
        assert_eq!(
            lines("a 123456789012345 b", 10),
            ["a", "1234567890", "12345 b"]
        );
        assert_eq!(lines("", 10), [""]);
        assert_eq!(lines("a\x1bb", 10), ["a\\u{1b}b"]);
    }
}
