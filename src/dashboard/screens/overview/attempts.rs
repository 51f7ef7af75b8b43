//! Messages by the attempt that is theirs next: how often things fail, and what is close to dead.

use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::control::{FailedAt, QueueView};
use crate::dashboard::state::State;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::bar;
use crate::text::short_number;

/// One line of the histogram.
pub(super) struct Attempts {
    name: String,
    count: String,
    number: u64,
    /// Those for which it is the last.
    last: u64,
}

/// What is to be known of the numbers.
fn note(view: &QueueView, columns: &[Attempts]) -> &'static str {
    if view.overview.failed.partial {
        "of some that failed"
    } else if columns.iter().any(|column| column.last > 0) {
        "! it is the last one"
    } else {
        ""
    }
}

/// What has never failed, and what has, by how often.
pub(super) fn histogram(view: &QueueView) -> Vec<Attempts> {
    let sample = &view.overview.failed;
    let counts = view.overview.counts;
    let alive = counts.alive();
    let failed = sample.by_failed.iter().map(|at| at.count);
    let failed = failed.fold(0, u64::saturating_add);
    let never = alive.saturating_sub(failed);
    let first = Attempts {
        name: ordinal(1),
        // Those that were not looked at may be of either kind.
        count: if sample.partial {
            format!("{} or less", short_number(never))
        } else {
            short_number(never)
        },
        number: never,
        last: 0,
    };
    let later = sample.by_failed.iter().map(|at: &FailedAt| Attempts {
        name: ordinal(at.failed.saturating_add(1)),
        count: short_number(at.count),
        number: at.count,
        last: at.last,
    });
    std::iter::once(first).chain(later).collect()
}

fn style(theme: Theme, column: &Attempts) -> Style {
    if column.last > 0 {
        theme.warn()
    } else {
        Style::new()
    }
}

fn marked(column: &Attempts) -> String {
    match column.last {
        0 => column.count.clone(),
        last => format!("{} ({}!)", column.count, short_number(last)),
    }
}

/// As many as fit into one line.
pub(super) fn one_line(state: &State, view: &QueueView, width: usize) -> Line<'static> {
    let theme = state.settings.theme;
    let columns = histogram(view);
    let mut spans = vec![Span::raw(" attempt")];
    let mut left = width.saturating_sub(10);
    for column in &columns {
        let text = format!("  {} {}", column.name, marked(column));
        if text.len() > left {
            spans.push(Span::raw(" …"));
            break;
        }
        left -= text.len();
        spans.push(Span::styled(text, style(theme, column)));
    }
    spans.push(Span::styled(
        format!("  {}", note(view, &columns)),
        theme.dim(),
    ));
    Line::from(spans)
}

/// A bar for each attempt, as many as there are rows.
pub(super) fn bars(state: &State, view: &QueueView, area: Rect) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let columns = histogram(view);
    let rows = usize::from(area.height);
    let counts = columns.iter().map(|column| marked(column).len()).max();
    let counts = counts.unwrap_or(0);
    let room = usize::from(area.width).saturating_sub(counts + 9);
    let hidden = columns.len().saturating_sub(rows);
    let shown = columns.len() - hidden - usize::from(hidden > 0);
    let line = |column: &Attempts| {
        let look = style(theme, column);
        Line::from(vec![
            Span::styled(format!(" {:<5} ", column.name), look),
            Span::styled(format!("{:>counts$} ", marked(column)), look),
            Span::styled(
                bar(column.number, room),
                look.remove_modifier(Modifier::BOLD),
            ),
        ])
    };
    let mut lines: Vec<Line<'static>> = columns.iter().take(shown).map(line).collect();
    if hidden > 0 {
        let text = format!(" and {} further ones", hidden + 1);
        lines.push(Line::styled(text, theme.dim()));
    } else if lines.len() < rows {
        lines.push(Line::styled(
            format!(" {}", note(view, &columns)),
            theme.dim(),
        ));
    }
    lines
}

fn ordinal(number: u32) -> String {
    let end = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_as_people_do() {
        let names = [1, 2, 3, 4, 11, 12, 21, 113].map(ordinal);
        assert_eq!(
            names,
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "113th"]
        );
    }
}
