//! Graphs of the last minutes, and how long things took.

use std::time::Duration;

use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::overview::{rate, whole};
use crate::control::{Quantiles, QueueView};
use crate::dashboard::rates::Flow;
use crate::dashboard::state::{State, ZOOMS};
use crate::text::human_duration;

/// Graphs of the last minutes, and how long things took.
pub(super) fn flows(state: &State, view: &QueueView, width: u16) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let columns = usize::from(width).saturating_sub(52).clamp(12, 60);
    let rates = state.rates.get(&view.name);
    let report = view.report.as_ref();
    let took = report.map_or(String::new(), |report| quantiles("handler", report.took));
    let lateness = report.map_or(String::new(), |report| quantiles("late", report.late));
    let span = ZOOMS[state.zoom];
    let shown = human_duration(span.saturating_mul(u32::try_from(columns).unwrap_or(1)));
    [
        ("in/s", Flow::In, theme.accent(), took),
        ("ack/s", Flow::Acked, theme.good(), lateness),
        (
            "fail/s",
            Flow::Failed,
            theme.bad(),
            format!("graphs: {shown}, + - change it"),
        ),
    ]
    .into_iter()
    .map(|(name, flow, style, note)| {
        let series = rates
            .map(|rates| rates.series(flow, span, columns))
            .unwrap_or_default();
        Line::from(vec![
            Span::raw(format!("   {name:<8} {:>7} ", rate(rates, flow))),
            Span::styled(
                format!("{:<columns$}", spark(&series)),
                style.remove_modifier(Modifier::BOLD),
            ),
            Span::styled(format!(" {note}"), theme.dim()),
        ])
    })
    .collect()
}

fn quantiles(name: &str, of: Quantiles) -> String {
    if of.count == 0 {
        return format!("{name} -");
    }
    format!("{name} p50 {}, p99 {}", precise(of.p50), precise(of.p99))
}

/// A short time with its unit.
fn precise(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1000 => format!("{micros}µs"),
        1000..10_000 => format!("{}.{}ms", micros / 1000, micros % 1000 / 100),
        _ => human_duration(duration),
    }
}

/// Columns that are as high as their numbers, the highest being full.
fn spark(series: &[f64]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let max = series.iter().copied().fold(0.0, f64::max);
    let level = |value: f64| match value / max {
        part if part > 0.0 => {
            let at = usize::try_from(whole(part * 8.0)).unwrap_or(8).clamp(1, 8);
            LEVELS[at - 1]
        }
        _ => ' ',
    };
    series.iter().map(|value| level(*value)).collect()
}
