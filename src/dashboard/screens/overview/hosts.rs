//! Who serves the queue, and how long things take here.

use std::time::Duration;

use ratatui::text::{Line, Span};

use crate::control::{Quantiles, QueueView, SeenHost};
use crate::dashboard::state::State;
use crate::dashboard::widgets::{safe, short, wait};
use crate::text::short_number;

/// Columns from which on there is a line for each host instead of two.
const COLUMNS_OF_A_LINE: usize = 60;

/// Everybody who serves the queue.
pub(super) fn lines(state: &State, view: &QueueView, width: usize) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    if view.hosts.is_empty() {
        return vec![Line::styled(" none serves this queue", theme.dim())];
    }
    let own = state.snapshot.host.as_ref().map(|host| host.id.as_str());
    let mut lines = Vec::new();
    for SeenHost { info, seen_ms_ago } in &view.hosts {
        let here = if own == Some(info.id.as_str()) {
            " (here)"
        } else {
            ""
        };
        let name = Span::raw(format!(" {}{here}", safe(&info.id, 9)));
        let slots = at_work(info.in_flight, info.slots);
        let seen = format!("seen {} ago", wait(Duration::from_millis(*seen_ms_ago)));
        let handler = safe(&info.handler, 9);
        if width >= COLUMNS_OF_A_LINE {
            let version = safe(&info.version, 10);
            let text = format!("  {slots}, {seen}, handler {handler}, dqhost {version}");
            lines.push(Line::from(vec![name, Span::styled(text, theme.dim())]));
        } else {
            let text = Span::styled(format!("  {seen}"), theme.dim());
            lines.push(Line::from(vec![name, text]));
            lines.push(Line::styled(format!("   {slots}"), theme.dim()));
        }
    }
    lines
}

/// How many slots are in use, and how many messages a host has reserved beyond them.
fn at_work(in_flight: usize, slots: usize) -> String {
    let text = format!("{} of {} slots", short(in_flight.min(slots)), short(slots));
    match in_flight.saturating_sub(slots) {
        0 => text,
        more => format!("{text}, {} more reserved", short(more)),
    }
}

/// How long handlers took and how late messages were, as a table.
pub(super) fn times(state: &State, view: &QueueView) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let Some(report) = &view.report else {
        return vec![Line::styled(" no host of it runs here", theme.dim())];
    };
    let head = format!(" {:<8} {:>9} {:>9}", "", "p50", "p99");
    let row = |name, of: Quantiles| {
        let cells = if of.count == 0 {
            ["-".to_owned(), "-".to_owned()]
        } else {
            [of.p50, of.p99].map(precise)
        };
        Line::raw(format!(" {name:<8} {:>9} {:>9}", cells[0], cells[1]))
    };
    vec![
        Line::styled(head, theme.dim()),
        row("handler", report.took),
        row("lateness", report.late),
        Line::styled(
            format!(" of {} messages", short_number(report.took.count)),
            theme.dim(),
        ),
    ]
}

/// The same in one line.
pub(super) fn times_in_words(view: &QueueView) -> String {
    let words = |name, of: Quantiles| match of.count {
        0 => format!("{name} -"),
        _ => format!("{name} p50 {}, p99 {}", precise(of.p50), precise(of.p99)),
    };
    let report = view.report.as_ref();
    report.map_or(String::new(), |report| {
        format!(
            "{}  {}",
            words("handler", report.took),
            words("late", report.late)
        )
    })
}

/// A short time with its unit.
fn precise(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1000 => format!("{micros}µs"),
        1000..10_000 => format!("{}.{}ms", micros / 1000, micros % 1000 / 100),
        _ => wait(duration),
    }
}
