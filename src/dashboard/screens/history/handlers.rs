//! What each handler did: side by side, so that a new one can be compared with the one before.

use std::fmt::Write as _;
use std::time::Duration;

use ratatui::text::{Line, Span};

use crate::control::{HandlerHistory, History};
use crate::dashboard::screens::list::TIME;
use crate::dashboard::state::{COLUMNS_OF_PANELS, State};
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::{columns, safe, until, wait};
use crate::text::short_number;

/// From so many rows on the table stands above the list, with so many handlers at most.
const ROWS_OF_TABLE: u16 = 34;
const HANDLERS_MAX: usize = 4;

/// From so many columns on there is room for times, and for why messages died.
const COLUMNS_OF_TIMES: usize = 50;
const COLUMNS_OF_FAILURE: usize = 70;

/// Where the table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere.
    Hidden,
    /// Above the list, in so many rows.
    Above(u16),
    /// In place of the list.
    Instead,
}

pub(super) fn place(state: &State) -> Place {
    let (columns, rows) = state.size;
    let has_room = rows >= ROWS_OF_TABLE && columns >= COLUMNS_OF_PANELS;
    match (has_room, state.is_by_handler) {
        (true, false) => {
            let past = state.history().and_then(Result::ok);
            let count = past.map_or(0, |past| past.handlers.len().min(HANDLERS_MAX));
            let rows = u16::try_from(count).unwrap_or(0);
            // With its head and the box around it.
            if rows == 0 {
                Place::Hidden
            } else {
                Place::Above(rows + 3)
            }
        }
        (false, true) => Place::Instead,
        (true, true) | (false, false) => Place::Hidden,
    }
}

pub(super) fn table(theme: Theme, past: &History, now_ms: u64, width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width);
    let head = cells(width, ["HANDLER", "ENDED", "ACKED", "p50", "p99", "LATEST"]);
    let failure = if width >= COLUMNS_OF_FAILURE {
        "  MOST DIED OF"
    } else {
        ""
    };
    let mut lines = vec![Line::styled(head + failure, theme.dim())];
    lines.extend(
        past.handlers
            .iter()
            .map(|one| line(theme, one, now_ms, width)),
    );
    lines
}

fn cells(width: usize, [handler, count, acked, p50, p99, latest]: [&str; 6]) -> String {
    let mut text = format!(" {handler:<9} {count:>6} {acked:>6}");
    if width >= COLUMNS_OF_TIMES {
        let _ = write!(text, " {p50:>9} {p99:>9}");
    }
    if width >= COLUMNS_OF_FAILURE {
        let _ = write!(text, "  {latest:<TIME$}");
    }
    text
}

fn line(theme: Theme, one: &HandlerHistory, now_ms: u64, width: usize) -> Line<'static> {
    let mut text = cells(
        width,
        [
            &safe(&one.digest, 9),
            &short_number(one.count),
            &percent(one.acked, one.count),
            &took(one.p50),
            &took(one.p99),
            &until(one.latest_ms, now_ms),
        ],
    );
    let Some((reason, count)) = &one.failure else {
        return Line::raw(text);
    };
    if width < COLUMNS_OF_FAILURE {
        return Line::raw(text);
    }
    text.push_str("  ");
    let room = width.saturating_sub(columns(&text));
    let why = safe(&format!("{} {reason}", short_number(*count)), room);
    Line::from(vec![Span::raw(text), Span::styled(why, theme.warn())])
}

/// A share with one digit after the point; all and none are only said of all and none.
pub(super) fn percent(part: u64, of: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(of.max(1));
    match tenths {
        1000 => "100%".to_owned(),
        0 if part == 0 => "0%".to_owned(),
        0 => "0.1%".to_owned(),
        tenths => format!("{}.{}%", tenths / 10, tenths % 10),
    }
}

/// How long a handler ran: hosts tell it in whole milliseconds.
pub(super) fn took(duration: Duration) -> String {
    if duration.is_zero() {
        return "<1ms".to_owned();
    }
    wait(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_all_or_nothing_only_if_it_is() {
        for (part, of, expected) in [
            (0, 0, "0%"),
            (0, 5, "0%"),
            (1, 100_000, "0.1%"),
            (1, 3, "33.3%"),
            (99_999, 100_000, "99.9%"),
            (7, 7, "100%"),
            (u64::MAX, u64::MAX, "100%"),
        ] {
            assert_eq!(percent(part, of), expected, "{part} of {of}");
        }
    }
}
