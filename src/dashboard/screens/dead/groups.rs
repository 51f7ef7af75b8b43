//! Dead letters by reason.

use std::fmt::Write as _;
use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::control::{Group, Searched};
use crate::dashboard::screens::list::{TIME, filter_span, still_searching};
use crate::dashboard::screens::message::listed;
use crate::dashboard::state::State;
use crate::dashboard::widgets::{
    columns, depth, frame, padded, put, row, safe, split, until, wrapped,
};
use crate::message::State as MessageState;
use crate::text::short_number;

/// From so many columns on the trends have a column, and the first times.
const COLUMNS_OF_TREND: usize = 60;
const COLUMNS_OF_FIRST: usize = 100;

/// How long trends may go back, and how that is said.
const REACHES: [(u64, &str); 14] = [
    (60, "1m"),
    (5 * 60, "5m"),
    (15 * 60, "15m"),
    (30 * 60, "30m"),
    (3600, "1h"),
    (3 * 3600, "3h"),
    (6 * 3600, "6h"),
    (12 * 3600, "12h"),
    (24 * 3600, "24h"),
    (3 * 86_400, "3d"),
    (7 * 86_400, "7d"),
    (30 * 86_400, "30d"),
    (90 * 86_400, "90d"),
    (365 * 86_400, "365d"),
];

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The columns beside the reason.
struct Columns {
    /// Those of a trend, how long it goes back, and how that is said.
    trend: Option<(usize, u64, &'static str)>,
    has_first: bool,
    width: usize,
}

impl Columns {
    fn of(groups: &[Group], width: usize, now_ms: u64) -> Self {
        let firsts = groups
            .iter()
            .map(|group| group.first_ms)
            .filter(|at| *at > 0);
        let oldest = now_ms.saturating_sub(firsts.min().unwrap_or(now_ms)) / 1000;
        let reach = REACHES.iter().find(|(seconds, _)| *seconds > oldest);
        let (seconds, name) = *reach.unwrap_or(&REACHES[REACHES.len() - 1]);
        let trend = (width / 6).min(24);
        Self {
            trend: (width >= COLUMNS_OF_TREND).then_some((trend, seconds * 1000, name)),
            has_first: width >= COLUMNS_OF_FIRST,
            width,
        }
    }

    fn head(&self) -> String {
        let mut head = format!(" {:>6}  {:<TIME$}", "COUNT", "LATEST");
        if self.has_first {
            let _ = write!(head, "  {:<TIME$}", "FIRST");
        }
        if let Some((width, _, name)) = self.trend {
            let _ = write!(head, "  {:<width$}", format!("LAST {name}"));
        }
        head + "  REASON"
    }

    fn line(&self, (count, latest, first): (u64, &str, &str), trend: &str, reason: &str) -> String {
        let mut line = format!("{:>6}  {latest:<TIME$}", short_number(count));
        if self.has_first {
            let _ = write!(line, "  {first:<TIME$}");
        }
        if let Some((width, ..)) = self.trend {
            line.push_str("  ");
            line.push_str(&padded(trend, width));
        }
        line.push_str("  ");
        let room = self.width.saturating_sub(columns(&line) + 1);
        line + &safe(reason, room)
    }

    /// How many died when, as bars. Where none did there is nothing.
    fn trend(&self, group: &Group, now_ms: u64) -> String {
        let Some((width, reach_ms, _)) = self.trend else {
            return String::new();
        };
        let span_ms = (reach_ms / width.max(1) as u64).max(1);
        let counts = group.trend.spans(span_ms, width, now_ms);
        let most = counts.iter().copied().max().unwrap_or(0).max(1);
        let bar = |count: &u64| match *count {
            0 => ' ',
            count => {
                let level = u128::from(count) * 7 / u128::from(most);
                LEVELS[usize::try_from(level).unwrap_or(7).min(7)]
            }
        };
        counts.iter().map(bar).collect()
    }
}

/// What all of a group say: the words themselves if they are the same, else what they have in common.
fn said(group: &Group) -> &str {
    group.text.as_deref().unwrap_or(&group.reason)
}

pub(super) fn draw(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let now_ms = state.snapshot.now_ms(now);
    let groups = state.groups();
    let known = groups.map_or(&[][..], |(groups, _)| groups);
    let (area, beside) = split(area);
    if let Some(beside) = beside {
        let selected = state.selected.checked_sub(1);
        match selected.and_then(|selected| known.get(selected)) {
            Some(group) => selected_group(state, group, now_ms, (beside, buffer)),
            None => all_groups(state, known, (beside, buffer)),
        }
    }
    let area = frame(theme, "Dead letters by reason", area, buffer);
    let dead = state
        .queue_view()
        .map_or(0, |view| view.overview.counts.dead);
    let style = if dead > 0 { theme.bad() } else { depth(0) };
    let mut head = vec![
        Span::raw("dead letters by reason: "),
        Span::styled(short_number(dead), style),
    ];
    head.extend(filter_span(state));
    let mut lines = vec![Line::from(head)];
    let columns = Columns::of(known, usize::from(area.width), now_ms);
    lines.push(Line::styled(columns.head(), theme.dim()));
    match groups {
        None => lines.push(Line::styled("  reading…", theme.dim())),
        Some(groups) => {
            let rows = state.list_rows();
            // The selected line stays in sight.
            let first = state.selected.saturating_sub(rows - 1);
            state.note_rows(area, 2, first);
            lines.extend(group_lines(
                state,
                &columns,
                (groups, dead),
                (now_ms, first),
            ));
        }
    }
    put(lines, area, buffer);
}

fn group_lines(
    state: &State,
    columns: &Columns,
    ((groups, searched), dead): ((&[Group], Searched), u64),
    (now_ms, first): (u64, usize),
) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let counts = groups.iter().map(|group| group.count);
    let total = counts.fold(0, u64::saturating_add);
    let all = if dead == 0 {
        "no dead letters"
    } else {
        "all of them"
    };
    let all = columns.line((total, "", ""), "", all);
    let others = groups.iter().map(|group| {
        let (latest, since) = (
            until(group.latest_ms, now_ms),
            until(group.first_ms, now_ms),
        );
        let trend = columns.trend(group, now_ms);
        columns.line((group.count, &latest, &since), &trend, said(group))
    });
    let lines = std::iter::once(all).chain(others).enumerate().skip(first);
    let mut lines: Vec<Line<'static>> = lines
        .map(|(at, text)| row(theme, at == state.selected, &text, Style::new()))
        .collect();
    lines.extend(still_searching(state, searched, MessageState::Dead));
    lines
}

/// All reasons in full, as many as there is room for.
fn all_groups(state: &State, groups: &[Group], (area, buffer): (Rect, &mut Buffer)) {
    /// Columns of a count, and of the blank behind it.
    const COUNT: usize = 8;
    let area = frame(state.settings.theme, "All reasons", area, buffer);
    let width = usize::from(area.width).saturating_sub(COUNT);
    let mut lines = Vec::new();
    for group in groups.iter().take(usize::from(area.height)) {
        for (at, line) in wrapped(said(group), width, false).into_iter().enumerate() {
            let count = if at == 0 {
                short_number(group.count)
            } else {
                String::new()
            };
            let mut spans = vec![Span::raw(format!("{count:>6}  "))];
            spans.extend(line.spans);
            lines.push(Line::from(spans));
        }
    }
    put(lines, area, buffer);
}

/// The reason in full, and one of its dead letters with its payload.
fn selected_group(state: &State, group: &Group, now_ms: u64, (area, buffer): (Rect, &mut Buffer)) {
    let theme = state.settings.theme;
    let area = frame(theme, "Selected reason", area, buffer);
    let width = usize::from(area.width);
    let mut lines = wrapped(said(group), width, false);
    for line in &mut lines {
        line.style = theme.accent();
    }
    let latest = until(group.latest_ms, now_ms);
    let times = match group.count {
        1 => format!("1 dead letter, {latest}"),
        count => format!(
            "{} dead letters, the first {}, the latest {latest}",
            short_number(count),
            until(group.first_ms, now_ms)
        ),
    };
    lines.extend(wrapped(&times, width, false));
    if let Some(record) = &group.example {
        lines.push(Line::default());
        lines.push(Line::styled("one of them", theme.dim()));
        lines.extend(listed(theme, record, now_ms, width));
    }
    put(lines, area, buffer);
}
