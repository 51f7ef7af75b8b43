//! Messages by the attempt that is theirs next: how often things fail, and what is close to dead.

use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::overview::bar;
use crate::control::{FailedAt, QueueView};
use crate::dashboard::state::State;
use crate::dashboard::theme::Theme;
use crate::text::short_number;

/// From this many rows on there is a bar for each attempt, of so many attempts.
const ROWS_OF_BARS: u16 = 22;
const BARS_MAX: usize = 6;

/// One column of the histogram.
struct Attempts {
    name: String,
    count: String,
    number: u64,
    /// Those for which it is the last.
    last: u64,
}

pub(super) fn draw(state: &State, view: &QueueView, area: Rect) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let columns = histogram(view);
    let note = if view.overview.failed.partial {
        "of some that failed"
    } else if columns.iter().any(|column| column.last > 0) {
        "! it is the last one"
    } else {
        ""
    };
    if area.height < ROWS_OF_BARS {
        return vec![one_line(theme, &columns, note, usize::from(area.width))];
    }
    bars(theme, &columns, note, usize::from(area.width))
}

/// What has never failed, and what has, by how often.
fn histogram(view: &QueueView) -> Vec<Attempts> {
    let sample = &view.overview.failed;
    let counts = view.overview.counts;
    let alive = counts.alive();
    let failed: u64 = sample.by_failed.iter().map(|at| at.count).sum();
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

fn one_line(theme: Theme, columns: &[Attempts], note: &str, width: usize) -> Line<'static> {
    let mut spans = vec![Span::raw("   attempt ")];
    let mut left = width.saturating_sub(14);
    for column in columns {
        let text = format!("  {} {}", column.name, marked(column));
        let length = text.chars().count();
        if length > left {
            spans.push(Span::raw(" …"));
            break;
        }
        left -= length;
        spans.push(Span::styled(text, style(theme, column)));
    }
    spans.push(Span::styled(format!("  {note}"), theme.dim()));
    Line::from(spans)
}

fn bars(theme: Theme, columns: &[Attempts], note: &str, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(58).clamp(10, 40);
    let hidden = columns.len().saturating_sub(BARS_MAX);
    let line = |(at, column): (usize, &Attempts)| {
        let head = if at == 0 { "attempt" } else { "" };
        let note = match at {
            0 => note.to_owned(),
            at if at + 1 == BARS_MAX && hidden > 0 => format!("and {hidden} further ones"),
            _ => String::new(),
        };
        let look = style(theme, column);
        Line::from(vec![
            Span::styled(format!("   {head:<9}{:<5} ", column.name), look),
            Span::styled(
                format!("{:<room$}", bar(column.number, room)),
                look.remove_modifier(Modifier::BOLD),
            ),
            Span::styled(format!(" {:<14}", marked(column)), look),
            Span::styled(note, theme.dim()),
        ])
    };
    let shown = columns.iter().take(BARS_MAX).enumerate();
    shown.map(line).collect()
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
