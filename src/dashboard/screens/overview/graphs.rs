//! What flowed in the last minutes: a band for what came in, what was acked and what failed.

use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::control::QueueView;
use crate::dashboard::rates::Flow;
use crate::dashboard::state::{State, ZOOMS};
use crate::dashboard::widgets::{rate, rate_with_unit, wait, whole};

/// Columns before the bands, for their names and what flows now; and behind them, for the highest.
pub(super) const NAMES: usize = 15;
pub(super) const HIGHEST: usize = 9;

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// From so many rows on the time has a line of its own, and there is a blank between two bands.
const ROWS_OF_AXIS: usize = 4;
const ROWS_OF_GAPS: usize = 12;

/// One band: what stands before its first row and behind it, a value for each column, and the value that
/// fills it.
pub(super) struct Band {
    pub(super) head: String,
    pub(super) series: Vec<Option<f64>>,
    pub(super) highest: f64,
    pub(super) top: String,
    pub(super) style: Style,
}

/// How long a time the bands show.
pub(super) fn span(state: &State, width: u16) -> String {
    let columns = u32::try_from(plot(width)).unwrap_or(u32::MAX);
    wait(ZOOMS[state.zoom].saturating_mul(columns))
}

/// Columns of the bands.
fn plot(width: u16) -> usize {
    usize::from(width).saturating_sub(NAMES + HIGHEST).max(1)
}

pub(super) fn bands(state: &State, view: &QueueView, area: Rect) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let columns = plot(area.width);
    let per = state.settings.per;
    let rates = state.rates.get(&view.name);
    let band = |name, flow, style| {
        let series = rates.map_or_else(
            || vec![None; columns],
            |rates| rates.series(flow, ZOOMS[state.zoom], columns),
        );
        let highest = series.iter().flatten().copied().fold(0.0, f64::max);
        Band {
            head: format!("{name:<6}{:>6}{} ", rate(per, rates, flow), per.unit()),
            series,
            highest,
            top: String::new(),
            style,
        }
    };
    let mut bands = [
        band(
            "in",
            Flow::In,
            theme.accent().remove_modifier(Modifier::BOLD),
        ),
        band("acked", Flow::Acked, theme.good()),
        band(
            "failed",
            Flow::Failed,
            theme.bad().remove_modifier(Modifier::BOLD),
        ),
    ];
    // Of one scale: what fails is seen as the part that it is of all.
    let highest = bands.iter().map(|band| band.highest).fold(0.0, f64::max);
    for band in &mut bands {
        band.highest = highest;
        band.top = rate_with_unit(per, highest);
    }
    let rows = usize::from(area.height);
    let has_axis = rows >= ROWS_OF_AXIS;
    let gaps = if rows >= ROWS_OF_GAPS { 2 } else { 0 };
    let left = rows.saturating_sub(usize::from(has_axis) + gaps);
    let mut lines = Vec::new();
    for (at, band) in bands.iter().enumerate() {
        // What is left over goes to the first ones.
        let height = (left + 2 - at) / 3;
        lines.extend(rows_of(band, height));
        if gaps > 0 && at < 2 {
            lines.push(Line::default());
        }
    }
    if has_axis {
        let begin = format!("-{}", span(state, area.width));
        let blanks = columns.saturating_sub(begin.len() + 3);
        let axis = format!("{}{begin}{}now", " ".repeat(NAMES), " ".repeat(blanks));
        lines.push(Line::styled(axis, theme.dim()));
    }
    lines
}

pub(super) fn rows_of(band: &Band, height: usize) -> Vec<Line<'static>> {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let mut lines = Vec::new();
    for row in (0..height).rev() {
        let is_top = row + 1 == height;
        let head = if is_top { band.head.as_str() } else { "" };
        let mut spans = vec![Span::raw(format!("{head:<NAMES$}"))];
        let look = |value: Option<f64>| match value {
            Some(value) if value > 0.0 => band.style,
            _ => dim,
        };
        for run in band.series.chunk_by(|a, b| look(*a) == look(*b)) {
            let text = run
                .iter()
                .map(|value| sign(*value, band.highest, (row, height)));
            spans.push(Span::styled(text.collect::<String>(), look(run[0])));
        }
        if is_top && band.highest > 0.0 {
            let top = format!("{:>width$}", band.top, width = HIGHEST - 1);
            spans.push(Span::styled(top, dim));
        }
        lines.push(Line::from(spans));
    }
    lines
}

/// A column's sign in one row of a band, the lowest being 0. The highest value fills all rows.
#[expect(clippy::cast_precision_loss, reason = "a band has a few rows")]
fn sign(value: Option<f64>, highest: f64, (row, height): (usize, usize)) -> char {
    let Some(value) = value else { return ' ' };
    let eighths = if highest > 0.0 {
        whole(value / highest * (height * 8) as f64).max(u64::from(value > 0.0))
    } else {
        0
    };
    let here = usize::try_from(eighths)
        .unwrap_or(0)
        .saturating_sub(row * 8);
    match here {
        0 if row == 0 => LEVELS[0],
        0 => ' ',
        _ => LEVELS[here.min(8) - 1],
    }
}
