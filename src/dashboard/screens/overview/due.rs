//! When the pending messages of a queue fall due: what is new and what is tried again, and when all of
//! it is done at the present rate.

use std::fmt::Write as _;
use std::time::Duration;

use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Line;

use super::graphs::{Band, HIGHEST, NAMES, rows_of};
use crate::control::{DueAhead, DueSpan, Query, QueryResult, QueueView};
use crate::dashboard::rates::{Flow, Per, Rates};
use crate::dashboard::state::State;
use crate::dashboard::widgets::{columns, rate_with_unit, wait};
use crate::text::short_number;

/// How far ahead is shown: its name, the length of a span, how many there are, and between how many of
/// them the time is told.
pub(super) const REACHES: [(&str, Duration, usize, usize); 4] = [
    ("minute", Duration::from_secs(5), 12, 3),
    ("hour", Duration::from_mins(2), 30, 5),
    ("day", Duration::from_hours(1), 24, 4),
    ("week", Duration::from_hours(6), 28, 4),
];

/// Less than this comes and goes with no meaning.
const BACKLOG: u64 = 100;

/// What tells it.
pub(super) fn query(state: &State) -> Query {
    let (_, span, spans, _) = REACHES[state.reach];
    let queue = state.queue.clone();
    queue.map_or(Query::Nothing, |queue| Query::Due { queue, span, spans })
}

/// The answer, if it is there: or why it is not given.
fn ahead(state: &State) -> Option<Result<&DueAhead, &str>> {
    match &state.snapshot.result {
        QueryResult::Due { query, ahead } if *query == state.query => {
            Some(ahead.as_deref().map_err(String::as_str))
        }
        _ => None,
    }
}

pub(super) fn title(state: &State, view: &QueueView) -> String {
    let (name, span, ..) = REACHES[state.reach];
    let mut text = format!("Due in the next {name} (z)");
    let Some(Ok(ahead)) = ahead(state) else {
        return text;
    };
    let sum = |of: fn(&DueSpan) -> u64| ahead.spans.iter().map(of).fold(0, u64::saturating_add);
    let failed = sum(|span| span.failed);
    let new = sum(|span| span.count).saturating_sub(failed);
    let is_more = ahead.spans.iter().any(|span| span.is_more);
    let at_least = |is_so: bool| if is_so { "+" } else { "" };
    let _ = write!(
        text,
        " ── {}{} new, {}{} to retry",
        short_number(new),
        at_least(is_more),
        short_number(failed),
        at_least(ahead.partial)
    );
    let rates = state.rates.get(&view.name);
    let per = state.settings.per;
    if let Some(end) = rates.and_then(|rates| forecast((per, rates), view, ahead, span)) {
        let _ = write!(text, " ── {end}");
    }
    text
}

/// When the backlog is done, with what falls due meanwhile, if as many are acked as now.
fn forecast(
    (per, rates): (Per, &Rates),
    view: &QueueView,
    ahead: &DueAhead,
    span: Duration,
) -> Option<String> {
    let counts = view.overview.counts;
    let backlog = counts.ready.saturating_add(counts.retry);
    let rate = rates.now(Flow::Acked).filter(|rate| *rate > 0.0)?;
    if backlog < BACKLOG || ahead.spans.iter().any(|span| span.is_more) {
        return None;
    }
    let due = ahead.spans.iter().map(|span| span.count);
    let text = match done_in(backlog, due, rate * span.as_secs_f64()) {
        Some(spans) => {
            let left = Duration::try_from_secs_f64(spans * span.as_secs_f64()).ok()?;
            format!("at {} done in {}", rate_with_unit(per, rate), wait(left))
        }
        None => format!("at {} not done by then", rate_with_unit(per, rate)),
    };
    Some(text)
}

/// After how many spans a backlog is done. It grows by what falls due in each span, and so many are done in
/// one. None if some is left after the last.
#[expect(
    clippy::cast_precision_loss,
    reason = "a forecast is shown in two units"
)]
fn done_in(backlog: u64, due: impl Iterator<Item = u64>, done: f64) -> Option<f64> {
    let mut left = backlog as f64;
    for (at, due) in due.enumerate() {
        let falls = done - due as f64;
        if left <= falls {
            return Some(at as f64 + left / falls);
        }
        left -= falls;
    }
    None
}

/// The spans as bars, and the time below them.
pub(super) fn bars(state: &State, area: Rect) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let ahead = match ahead(state) {
        Some(Ok(ahead)) => ahead,
        Some(Err(error)) => return vec![Line::styled(format!(" {error}"), theme.dim())],
        None => return vec![Line::styled(" reading…", theme.dim())],
    };
    let (_, span, spans, ticks) = REACHES[state.reach];
    let plot = usize::from(area.width)
        .saturating_sub(NAMES + HIGHEST)
        .max(1);
    let highest = ahead.spans.iter().map(|span| span.count).max().unwrap_or(0);
    let band = |name: &str, style, of: fn(&DueSpan) -> u64| {
        let value = |column: usize| {
            let from = column * spans / plot;
            let to = ((column + 1) * spans / plot).max(from + 1);
            let shown = ahead.spans.get(from..to).unwrap_or_default();
            shown.iter().map(of).max().map(number)
        };
        Band {
            head: format!("{name:<NAMES$}"),
            series: (0..plot).map(value).collect(),
            highest: number(highest),
            top: short_number(highest),
            style,
        }
    };
    let new_style = theme.accent().remove_modifier(Modifier::BOLD);
    let rows = usize::from(area.height);
    let mut lines = Vec::new();
    if rows < 3 {
        let all = band("due", new_style, |span| span.count);
        lines.extend(rows_of(&all, rows.saturating_sub(1).max(1)));
    } else {
        let of_retry = (rows - 1) / 3;
        let new = band("new", new_style, |span| {
            span.count.saturating_sub(span.failed)
        });
        let mut retry = band("retry", theme.warn(), |span| span.failed);
        retry.top.clear();
        lines.extend(rows_of(&new, rows - 1 - of_retry.max(1)));
        lines.extend(rows_of(&retry, of_retry.max(1)));
    }
    let times = times(span, spans, (plot, ticks));
    lines.push(Line::styled(times, theme.dim()));
    lines
}

/// The times below the bars.
fn times(span: Duration, spans: usize, (plot, ticks): (usize, usize)) -> String {
    let mut text = " ".repeat(NAMES);
    for at in (0..=spans).step_by(ticks) {
        let time = match u32::try_from(at) {
            Ok(0) => "now".to_owned(),
            // Whole units: the smaller ones are zero.
            Ok(at) => {
                let time = wait(span.saturating_mul(at));
                time.split(' ').next().unwrap_or_default().to_owned()
            }
            Err(_) => break,
        };
        let place = NAMES + at * plot / spans;
        // The last one ends where the bars end.
        let place = if at == spans {
            place - time.len()
        } else {
            place
        };
        let blanks = place.saturating_sub(columns(&text));
        if at == 0 || blanks > 0 {
            text.push_str(&" ".repeat(blanks));
            text.push_str(&time);
        }
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "a bar has a few rows")]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_done_with_what_falls_due_meanwhile() {
        let done = |backlog, due: &[u64], rate| done_in(backlog, due.iter().copied(), rate);
        assert_eq!(done(100, &[0, 0, 0], 50.0), Some(2.0));
        // 100 and 30 more, of which 50 are done in each.
        assert_eq!(done(100, &[30, 0, 0], 50.0), Some(2.6));
        assert_eq!(done(100, &[50, 50, 50], 50.0), None);
        assert_eq!(done(100, &[0, 0, 0], 10.0), None);
        assert_eq!(done(u64::MAX, &[u64::MAX], 1.0), None);
    }

    #[test]
    fn the_spans_of_each_reach_are_told_by_whole_times() {
        for (name, span, spans, ticks) in REACHES {
            assert_eq!(spans % ticks, 0, "{name}");
            assert!(spans <= crate::control::DUE_SPANS_MAX, "{name}");
            let text = times(span, spans, (3 * spans, ticks));
            assert!(text.trim_start().starts_with("now"), "{text}");
            assert_eq!(columns(&text), NAMES + 3 * spans, "{text}");
        }
    }
}
