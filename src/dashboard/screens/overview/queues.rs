//! The table of queues: as many columns as there is room for, each as wide as its widest number.

use std::sync::Arc;
use std::time::Instant;

use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::control::QueueView;
use crate::dashboard::rates::{Flow, Per};
use crate::dashboard::state::State;
use crate::dashboard::widgets::{depth, padded, rate, safe, wait, whole};
use crate::text::short_number;

/// Columns of a name at least and at most.
const NAME_MIN: usize = 8;
const NAME_MAX: usize = 24;

/// From so many columns on the heads are whole words.
const COLUMNS_OF_LONG_HEADS: usize = 60;

/// Columns of the mark of a paused queue.
const PAUSED: &str = " [P]";

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Pending,
    Ready,
    Unack,
    Retry,
    Dead,
    Next,
    In,
    Acked,
    Failed,
}

use Column::{Acked, Dead, Failed, In, Next, Pending, Ready, Retry, Unack};

/// In their order on the screen.
const ALL: [Column; 9] = [Pending, Ready, Unack, Retry, Dead, Next, In, Acked, Failed];

/// By what matters most, for a table that fills the screen and for one beside others.
const ALONE: [Column; 9] = [Pending, Dead, Ready, Unack, Retry, Acked, Failed, In, Next];
const BESIDE: [Column; 9] = [Pending, Dead, Acked, Failed, Ready, In, Unack, Retry, Next];

impl Column {
    fn head(self, is_narrow: bool, per: Per) -> &'static str {
        let is_a_minute = per == Per::Minute;
        match self {
            Pending if is_narrow => "PEND",
            Pending => "PENDING",
            Ready => "READY",
            Unack => "UNACK",
            Retry => "RETRY",
            Dead => "DEAD",
            Next => "NEXT",
            In if is_a_minute => "IN/m",
            Acked if is_a_minute => "ACK/m",
            Failed if is_a_minute => "FAIL/m",
            In => "IN/s",
            Acked => "ACK/s",
            Failed => "FAIL/s",
        }
    }

    /// Columns with the blank before: what the head and any number need.
    fn width(self, is_narrow: bool) -> usize {
        match self {
            Pending if !is_narrow => 8,
            Next => 11,
            Failed => 7,
            _ => 6,
        }
    }
}

/// By what the queues can be sorted; the first is their usual order.
pub(super) const SORTS: [&str; 9] = [
    "order", "pending", "ready", "unack", "retry", "dead", "in", "acked", "failed",
];

/// Sorts the queues, the largest number first. Those with equal ones stay in their order.
pub(super) fn sort(state: &mut State) {
    let number = |view: &QueueView| {
        let counts = view.overview.counts;
        let rates = state.rates.get(&view.name);
        let rate = |flow| whole(rates.and_then(|rates| rates.now(flow)).unwrap_or(0.0) * 10.0);
        match state.sort {
            1 => counts.pending,
            2 => counts.ready,
            3 => counts.unack,
            4 => counts.retry,
            5 => counts.dead,
            6 => rate(Flow::In),
            7 => rate(Flow::Acked),
            8 => rate(Flow::Failed),
            _ => 0,
        }
    };
    let queues = &state.snapshot.queues;
    let numbers: Vec<u64> = queues.iter().map(number).collect();
    if numbers.is_sorted_by(|a, b| a >= b) {
        return;
    }
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(numbers[*at]));
    let sorted = order.into_iter().map(|at| queues[at].clone()).collect();
    Arc::make_mut(&mut state.snapshot).queues = sorted;
}

/// The table in so many columns and rows, the head among them.
pub(super) fn table(
    state: &State,
    now: Instant,
    (width, rows): (usize, usize),
    is_beside: bool,
) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let queues = &state.snapshot.queues;
    let has_paused = queues.iter().any(|view| view.overview.paused);
    let reserved = if has_paused { PAUSED.len() } else { 0 };
    let order = if is_beside { BESIDE } else { ALONE };
    let is_narrow = width < COLUMNS_OF_LONG_HEADS;
    let room = width.saturating_sub(2 + reserved);
    let (columns, name_width) = chosen(order, room, is_narrow);
    let mut head = format!("  {:<name_width$}", "QUEUE");
    for column in &columns {
        head.push_str(&cell(
            *column,
            is_narrow,
            column.head(is_narrow, state.settings.per),
        ));
    }
    let mut lines = vec![Line::styled(head, theme.dim())];
    let selected = state.selected_queue();
    let (first, last) = window(selected, queues.len(), rows);
    for (at, view) in queues.iter().enumerate().take(last).skip(first) {
        let mut line = row(state, view, now, (&columns, name_width, is_narrow));
        if at == selected {
            line.spans[0] = Span::raw(">");
            // A colour would be a block in the reversed line.
            for span in &mut line.spans {
                span.style = Style::new();
            }
            let blanks = width.saturating_sub(line.width());
            line.spans.push(Span::raw(" ".repeat(blanks)));
            line = line.patch_style(theme.selected());
        }
        lines.push(line);
    }
    lines
}

/// Notes where the queues are, for the mouse.
pub(super) fn note_rows(state: &State, area: Rect) {
    let count = state.snapshot.queues.len();
    let (first, _) = window(state.selected_queue(), count, usize::from(area.height));
    state.note_rows(area, 1, first);
}

/// Which queues are shown, if not all are: `3–7 of 32`.
pub(super) fn shown(state: &State, rows: usize) -> String {
    let count = state.snapshot.queues.len();
    let (first, last) = window(state.selected_queue(), count, rows);
    if last - first == count {
        return String::new();
    }
    format!("{}–{last} of {count}", first + 1)
}

/// The first queue that is shown and the one behind the last; the selected one is among them.
fn window(selected: usize, count: usize, rows: usize) -> (usize, usize) {
    let room = rows.saturating_sub(1).max(1);
    let first = selected
        .saturating_sub(room - 1)
        .min(count.saturating_sub(room));
    (first, (first + room).min(count))
}

/// The columns that fit, in their order, and the width of the names.
fn chosen(order: [Column; 9], width: usize, is_narrow: bool) -> (Vec<Column>, usize) {
    let mut left = width.saturating_sub(NAME_MIN);
    let mut fitting = Vec::new();
    for column in order {
        if column.width(is_narrow) > left {
            break;
        }
        left -= column.width(is_narrow);
        fitting.push(column);
    }
    let columns = ALL
        .into_iter()
        .filter(|column| fitting.contains(column))
        .collect();
    (columns, (NAME_MIN + left).min(NAME_MAX))
}

fn cell(column: Column, is_narrow: bool, text: &str) -> String {
    let width = column.width(is_narrow);
    match column {
        Next => format!("  {text:<rest$}", rest = width - 2),
        _ => format!("{text:>width$}"),
    }
}

fn row(
    state: &State,
    view: &QueueView,
    now: Instant,
    (columns, name_width, is_narrow): (&[Column], usize, bool),
) -> Line<'static> {
    let theme = state.settings.theme;
    let counts = view.overview.counts;
    let (per, rates) = (state.settings.per, state.rates.get(&view.name));
    let look = if view.overview.paused {
        theme.warn()
    } else {
        Style::new()
    };
    let name = padded(&safe(view.name.as_str(), name_width), name_width);
    let mut spans = vec![Span::raw(" "), Span::styled(format!(" {name}"), look)];
    for column in columns {
        let (text, style) = match column {
            Pending => (short_number(counts.pending), depth(counts.pending)),
            Ready => (short_number(counts.ready), depth(counts.ready)),
            Unack => (short_number(counts.unack), depth(counts.unack)),
            Retry => (short_number(counts.retry), depth(counts.retry)),
            Dead if counts.dead > 0 => (short_number(counts.dead), theme.bad()),
            Dead => (short_number(0), depth(0)),
            Next => (next_due(state, view, now), Style::new()),
            In => (rate(per, rates, Flow::In), Style::new()),
            Acked => (rate(per, rates, Flow::Acked), Style::new()),
            Failed => (rate(per, rates, Flow::Failed), Style::new()),
        };
        spans.push(Span::styled(
            cell(*column, is_narrow, &text),
            look.patch(style),
        ));
    }
    if view.overview.paused {
        spans.push(Span::styled(PAUSED, theme.warn()));
    }
    Line::from(spans)
}

/// In how long the next message is due.
fn next_due(state: &State, view: &QueueView, now: Instant) -> String {
    let now_ms = state.snapshot.now_ms(now);
    match view.overview.next_due_ms {
        None => "-".to_owned(),
        Some(at_ms) if at_ms <= now_ms => "now".to_owned(),
        Some(at_ms) => wait(std::time::Duration::from_millis(at_ms - now_ms)),
    }
}
