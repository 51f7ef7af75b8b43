//! How the queues stand: depths along the pipeline, what flows, who works.

use std::time::{Duration, Instant};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::{attempts, graphs, oldest, put, row, safe, until};
use crate::control::QueueView;
use crate::dashboard::rates::{Flow, Rates};
use crate::dashboard::state::State;
use crate::dashboard::theme::Theme;
use crate::text::{human_duration, short_number};

/// Rows of the table of queues at most, where there is more to show.
const QUEUES_MAX: usize = 6;

/// From this many rows and columns on there is more than the table.
const ROWS_OF_ALL: u16 = 14;
const COLUMNS_OF_ALL: u16 = 60;

/// A number that fills a bar: ten million.
const BAR_FULL: f64 = 7.0;

pub(super) fn draw(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    if state.snapshot.queues.is_empty() {
        put(first_steps(theme, state), area, buffer);
        return;
    }
    let is_small = area.height < ROWS_OF_ALL || area.width < COLUMNS_OF_ALL;
    let rows = if is_small {
        usize::from(area.height) - 1
    } else {
        QUEUES_MAX
    };
    let mut lines = queue_table(state, now, rows, area.width);
    let Some(view) = state.queue_view().filter(|_| !is_small) else {
        put(lines, area, buffer);
        return;
    };
    lines.push(Line::default());
    lines.extend(pipeline(state, view, now, area.width));
    lines.push(Line::default());
    lines.extend(graphs::flows(state, view, area.width));
    lines.extend(attempts::draw(state, view, area));
    lines.extend(hosts(state, view));
    lines.extend(warnings(state, view, now));
    let room = usize::from(area.height).saturating_sub(lines.len() + 2);
    if room > 1 {
        lines.push(Line::default());
        lines.push(Line::styled("   log", theme.dim()));
        lines.extend(super::log::latest(state, room, usize::from(area.width)));
    }
    put(lines, area, buffer);
}

/// What a person sees who has just begun.
fn first_steps(theme: Theme, state: &State) -> Vec<Line<'static>> {
    if state.snapshot.read_at.is_none() {
        return vec![Line::styled("reading the store…", theme.dim())];
    }
    vec![
        Line::raw("No queue yet. Three things to begin with:"),
        Line::raw("  s   sends a message: send '{\"order\": 1}' --in 5s"),
        Line::raw("  ?   shows the keys of each screen, : takes commands"),
        Line::raw("  dqhost --help   lists what can be done from a shell"),
    ]
}

fn queue_table(state: &State, now: Instant, rows: usize, width: u16) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let wide = width >= 80;
    let name_width = usize::from(width).saturating_sub(68).clamp(8, 24);
    let head = if wide {
        format!(
            "  {:<name_width$} {:>7} {:>6} {:>6} {:>6} {:>6}  {:<7} {:>6} {:>6} {:>6}",
            "QUEUE",
            "PENDING",
            "READY",
            "UNACK",
            "RETRY",
            "DEAD",
            "NEXT",
            "IN/s",
            "ACK/s",
            "FAIL/s"
        )
    } else {
        format!(
            "  {:<8} {:>5} {:>5} {:>5} {:>5} {:>5}",
            "QUEUE", "PEND", "READY", "UNACK", "RETRY", "DEAD"
        )
    };
    let mut lines = vec![Line::styled(head, theme.dim())];
    let now_ms = state.snapshot.now_ms(now);
    let first = state.selected.saturating_sub(rows.saturating_sub(2));
    let queues = state.snapshot.queues.iter().enumerate().skip(first);
    for (at, view) in queues.take(rows.saturating_sub(1).max(1)) {
        let c = view.overview.counts;
        let [pending, ready, unack, retry, dead] =
            [c.pending, c.ready, c.unack, c.retry, c.dead].map(short_number);
        let mut text = if wide {
            let next = view
                .overview
                .next_due_ms
                .map_or("-".to_owned(), |at| until(at, now_ms));
            let next = next.trim_start_matches("in ").to_owned();
            let rates = state.rates.get(&view.name);
            let [arrives, acked, failed] =
                [Flow::In, Flow::Acked, Flow::Failed].map(|flow| rate(rates, flow));
            format!(
                " {:<name_width$} {pending:>7} {ready:>6} {unack:>6} {retry:>6} {dead:>6}  {next:<7} \
                 {arrives:>6} {acked:>6} {failed:>6}",
                safe(view.name.as_str(), name_width),
            )
        } else {
            let name = safe(view.name.as_str(), 8);
            format!(" {name:<8} {pending:>5} {ready:>5} {unack:>5} {retry:>5} {dead:>5}")
        };
        let mut style = Style::new();
        if view.overview.paused {
            text.push_str(" [P]");
            style = theme.warn();
        }
        lines.push(row(theme, at == state.selected, &text, style));
    }
    lines
}

pub(super) fn rate(rates: Option<&Rates>, flow: Flow) -> String {
    match rates.and_then(|rates| rates.now(flow)) {
        None => "-".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => short_number(whole(rate)),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and widths are small and not negative"
)]
pub(super) fn whole(number: f64) -> u64 {
    number.round().max(0.0) as u64
}

/// The five depths as bars, in the order in which a message passes them.
fn pipeline(state: &State, view: &QueueView, now: Instant, width: u16) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let now_ms = state.snapshot.now_ms(now);
    let overview = &view.overview;
    let counts = overview.counts;
    let room = usize::from(width).saturating_sub(58).clamp(10, 40);
    let next = overview
        .next_due_ms
        .map(|at_ms| format!("next due {}", until(at_ms, now_ms)));
    let backing_off = match overview.failed.backing_off {
        0 => None,
        n if overview.failed.partial => Some(format!("{n} of 500 failed ones back off")),
        n => Some(format!("{} back off", short_number(n))),
    };
    let pending = [next, backing_off]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ");
    let ready = oldest(overview, now_ms).map_or(String::new(), |age| {
        format!("oldest {}", human_duration(age))
    });
    let unack = state.snapshot.host.as_ref().map_or(String::new(), |host| {
        format!("{} of {} slots busy here", host.busy, host.slots)
    });
    let hold = if overview.paused {
        "paused: nothing leaves"
    } else {
        ""
    };
    let ready = [ready.as_str(), hold]
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect::<Vec<_>>()
        .join(", ");
    [
        ("pending", counts.pending, pending, theme.accent()),
        ("ready", counts.ready, ready, theme.good()),
        ("unack", counts.unack, unack, theme.good()),
        ("retry", counts.retry, String::new(), theme.warn()),
        ("dead", counts.dead, String::new(), theme.bad()),
    ]
    .into_iter()
    .map(|(name, depth, note, style)| {
        let arrow = if name == "pending" { " " } else { "→" };
        Line::from(vec![
            Span::raw(format!(" {arrow} {name:<8} {:>7} ", short_number(depth))),
            Span::styled(
                format!("{:<room$}", bar(depth, room)),
                style.remove_modifier(Modifier::BOLD),
            ),
            Span::styled(format!(" {note}"), theme.dim()),
        ])
    })
    .collect()
}

/// A bar that grows with the logarithm of the number, so that ten beside a million is seen.
#[expect(clippy::cast_precision_loss, reason = "a bar has a few dozen columns")]
pub(super) fn bar(number: u64, width: usize) -> String {
    if number == 0 {
        return String::new();
    }
    let part = (number as f64 + 1.0).log10() / BAR_FULL;
    let columns = whole(part.min(1.0) * width as f64).max(1);
    "█".repeat(usize::try_from(columns).unwrap_or(width))
}

/// Everybody who serves the queue.
fn hosts(state: &State, view: &QueueView) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    if view.hosts.is_empty() {
        return vec![Line::styled(
            "   hosts    none serves this queue",
            theme.warn(),
        )];
    }
    let own = state.snapshot.host.as_ref().map(|host| host.id.as_str());
    let line = |(at, host): (usize, &crate::control::SeenHost)| {
        let info = &host.info;
        let name = if at == 0 { "hosts" } else { "" };
        let here = if own == Some(info.id.as_str()) {
            " (here)"
        } else {
            ""
        };
        Line::from(vec![
            Span::raw(format!(
                "   {name:<8} {}{here}",
                safe(&info.id, 9).trim_end_matches('…')
            )),
            Span::styled(
                format!(
                    "  {} slots, {} in flight, handler {}, dqhost {}, seen {} ago",
                    info.slots,
                    info.in_flight,
                    safe(&info.handler, 9),
                    safe(&info.version, 10),
                    human_duration(Duration::from_millis(host.seen_ms_ago)),
                ),
                theme.dim(),
            ),
        ])
    };
    view.hosts.iter().enumerate().map(line).collect()
}

/// What an operator would want to be told.
fn warnings(state: &State, view: &QueueView, now: Instant) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let overview = &view.overview;
    let mut found = Vec::new();
    if overview.paused {
        found.push("the queue is paused: p lets it go on".to_owned());
    }
    if overview.counts.moving > 0 {
        found.push(format!(
            "{} messages are on their way to or from another store: end it with `dqhost move`",
            overview.counts.moving
        ));
    }
    let age = oldest(overview, state.snapshot.now_ms(now)).filter(|_| !overview.paused);
    if let Some(age) = age.filter(|age| *age > Duration::from_secs(30)) {
        let age = human_duration(age);
        found.push(format!(
            "messages wait {age} for a slot: more slots, hosts or a faster handler"
        ));
    }
    if let Some(late) = view.report.as_ref().map(|report| report.late)
        && late.count > 0
        && late.p50 > Duration::from_secs(5)
        && overview.counts.ready == 0
    {
        found.push("messages come late though none wait: is this host's clock right?".to_owned());
    }
    let host = state.snapshot.host.as_ref();
    if let Some(refused) = host.map(|host| host.summary.refused).filter(|n| *n > 0) {
        found.push(format!(
            "{} calls of handlers were refused here: the log says which",
            short_number(refused)
        ));
    }
    let warn = |text: String| Line::styled(format!(" ! {text}"), theme.warn());
    found.into_iter().map(warn).collect()
}
