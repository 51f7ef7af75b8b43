//! The way of a message: the stages with their depths, what flows between them, and where failures
//! lead.
//!
//! ```text
//!    PENDING               READY              IN FLIGHT             ACKED
//!    1.2M ▲    ────────▶    12    ──180/s─▶    3 of 16  ──179/s─▶   88412
//!  next in 1.2s         oldest 340ms          ▓▓░░░░░░
//!                         RETRY 5 ◀──1.3/s failed──┴──▶ DEAD 412 +3/min
//! ```

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::control::{Counts, QueueView};
use crate::dashboard::rates::{Flow, Per, Rates};
use crate::dashboard::state::State;
use crate::dashboard::widgets::{columns, depth, gauge, oldest, rate_text, rate_with_unit, wait};
use crate::text::short_number;

/// Columns of an arrow at least and at most.
const ARROW_MIN: usize = 3;
const ARROW_MAX: usize = 16;

/// Columns of a stage that show any depth and any note.
const STAGE: usize = 13;

/// How wide the parts are.
#[derive(Debug, Clone, Copy)]
struct Widths {
    stage: usize,
    arrow: usize,
}

/// A stage: what it is called, its depth, how that looks, and notes of which the first that fits is
/// shown.
struct Stage {
    name: &'static str,
    depth: String,
    style: Style,
    notes: Vec<(String, Style)>,
}

/// The whole of it in five lines.
pub(super) fn lines(
    state: &State,
    view: &QueueView,
    now: Instant,
    width: usize,
) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let arrow = (width.saturating_sub(4 * STAGE) / 3).clamp(ARROW_MIN, ARROW_MAX);
    let column = width.saturating_sub(3 * arrow) / 4;
    let widths = Widths {
        stage: column,
        arrow,
    };
    let stages = stages(state, view, now);
    let rates = state.rates.get(&view.name);
    let between = [
        None,
        rates.and_then(Rates::started),
        rates.and_then(|rates| rates.now(Flow::Acked)),
    ];
    let blank = || Span::raw(" ".repeat(widths.arrow));
    let mut names = Vec::new();
    let mut depths = Vec::new();
    let mut notes = Vec::new();
    for (at, of) in stages.into_iter().enumerate() {
        if at > 0 {
            names.push(blank());
            depths.push(way(state.settings.per, between[at - 1], widths.arrow));
            notes.push(blank());
        }
        names.push(Span::styled(centered(of.name, column), theme.dim()));
        depths.push(Span::styled(centered(&of.depth, column), of.style));
        let note = of
            .notes
            .into_iter()
            .find(|(note, _)| columns(note) <= column);
        let (note, style) = note.unwrap_or_default();
        notes.push(Span::styled(centered(&note, column), style));
    }
    let mut lines = vec![Line::from(names), Line::from(depths), Line::from(notes)];
    lines.extend(failures(state, view, widths, width));
    lines
}

fn stages(state: &State, view: &QueueView, now: Instant) -> [Stage; 4] {
    let theme = state.settings.theme;
    let now_ms = state.snapshot.now_ms(now);
    let overview = &view.overview;
    let counts = overview.counts;
    let rates = state.rates.get(&view.name);
    let dim = theme.dim();
    let strong = |number: u64| match number {
        0 => depth(0),
        _ => Style::new().add_modifier(Modifier::BOLD),
    };
    let next = overview.next_due_ms.map(|at| match at.checked_sub(now_ms) {
        None | Some(0) => "now".to_owned(),
        Some(ms) => format!("in {}", wait(Duration::from_millis(ms))),
    });
    let next = next.map_or(Vec::new(), |next| {
        vec![(format!("next {next}"), dim), (next, dim)]
    });
    let ready = if overview.paused {
        vec![
            ("paused: nothing leaves".to_owned(), theme.warn()),
            ("paused".to_owned(), theme.warn()),
        ]
    } else if overview.limited > 0 {
        let limited = format!("{} wait for a limit", short_number(overview.limited));
        vec![
            (limited, theme.warn()),
            ("limited".to_owned(), theme.warn()),
        ]
    } else {
        oldest(overview, now_ms).map_or(Vec::new(), |age| {
            vec![(format!("oldest {}", wait(age)), dim), (wait(age), dim)]
        })
    };
    let of = |name, number: u64, depth_of: fn(&Counts) -> u64, notes| Stage {
        name,
        depth: format!("{}{}", short_number(number), trend(rates, depth_of)),
        style: strong(number),
        notes,
    };
    [
        of("PENDING", counts.pending, |counts| counts.pending, next),
        of("READY", counts.ready, |counts| counts.ready, ready),
        of(
            "IN FLIGHT",
            counts.unack,
            |counts| counts.unack,
            slots(state),
        ),
        Stage {
            name: "ACKED",
            depth: short_number(counts.totals.acked),
            style: if counts.totals.acked > 0 {
                theme.good()
            } else {
                depth(0)
            },
            notes: forecast(rates, counts),
        },
    ]
}

/// When what is due now is done, if it goes on as in the last seconds.
fn forecast(rates: Option<&Rates>, counts: Counts) -> Vec<(String, Style)> {
    /// Fewer come and go with no meaning.
    const BACKLOG: u64 = 100;
    let due = |counts: &Counts| counts.ready.saturating_add(counts.retry);
    let left = rates.and_then(|rates| rates.empty_in(due));
    let Some(left) = left.filter(|_| due(&counts) >= BACKLOG) else {
        return Vec::new();
    };
    let dim = Style::new().add_modifier(Modifier::DIM);
    let left = wait(left);
    vec![
        (format!("backlog done in {left}"), dim),
        (format!("done in {left}"), dim),
        (format!("{left} left"), dim),
    ]
}

/// The slots of the host in this process, as a gauge and in numbers.
fn slots(state: &State) -> Vec<(String, Style)> {
    let theme = state.settings.theme;
    let Some(host) = &state.snapshot.host else {
        return Vec::new();
    };
    let (busy, slots) = (host.busy as u64, host.slots as u64);
    let text = format!("{}/{} slots", short_number(busy), short_number(slots));
    let gauge = |width: usize| {
        format!(
            "{} {}/{}",
            gauge(busy, slots, width),
            short_number(busy),
            short_number(slots)
        )
    };
    vec![
        (gauge(8), theme.good()),
        (gauge(5), theme.good()),
        (text, theme.good()),
    ]
}

fn trend(rates: Option<&Rates>, of: fn(&Counts) -> u64) -> &'static str {
    match rates.map_or(Ordering::Equal, |rates| rates.trend(of)) {
        Ordering::Greater => " ▲",
        Ordering::Less => " ▼",
        Ordering::Equal => "",
    }
}

/// An arrow, with what flows along it where there is room.
fn way(per: Per, rate: Option<f64>, width: usize) -> Span<'static> {
    let text = rate.map_or(String::new(), |rate| rate_with_unit(per, rate));
    let text = if text.len() + 2 <= width {
        text
    } else {
        String::new()
    };
    let lines = width - 1 - text.len();
    let before = lines.div_ceil(2);
    Span::raw(format!(
        "{}{text}{}▶",
        "─".repeat(before),
        "─".repeat(lines - before)
    ))
}

fn centered(text: &str, width: usize) -> String {
    let blanks = width.saturating_sub(columns(text));
    let before = blanks / 2;
    format!(
        "{}{text}{}",
        " ".repeat(before),
        " ".repeat(blanks - before)
    )
}

/// Where failures lead from the handlers: back, or to the dead letters.
fn failures(state: &State, view: &QueueView, widths: Widths, width: usize) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let counts = view.overview.counts;
    let rates = state.rates.get(&view.name);
    let now = |flow| rates.and_then(|rates| rates.now(flow));
    let at = 2 * (widths.stage + widths.arrow) + widths.stage / 2;
    let retry = format!(
        "RETRY {}{}",
        short_number(counts.retry),
        trend(rates, |counts| counts.retry)
    );
    let failed = now(Flow::Failed).map_or(String::new(), |rate| {
        format!("{} failed", rate_with_unit(state.settings.per, rate))
    });
    let dead = format!(
        "DEAD {}{}",
        short_number(counts.dead),
        trend(rates, |counts| counts.dead)
    );
    let dying = now(Flow::Dead).filter(|rate| *rate > 0.0);
    let dying = dying.map_or(String::new(), |rate| {
        format!(" +{}/min", rate_text(rate * 60.0))
    });
    // The first of each that fits.
    let left = [format!(" ◀──{failed}──"), " ◀──".to_owned()];
    let left = left
        .into_iter()
        .find(|way| columns(&retry) + columns(way) <= at);
    let left = left.unwrap_or_default();
    let room = width.saturating_sub(at + 1 + 4);
    let dying = if columns(&dead) + dying.len() <= room {
        dying
    } else {
        String::new()
    };
    let blanks = at.saturating_sub(columns(&retry) + columns(&left));
    let (dead_style, dying_style) = match counts.dead {
        0 => (depth(0), theme.bad()),
        _ => (theme.bad(), theme.bad()),
    };
    vec![
        Line::from(vec![Span::raw(" ".repeat(at)), Span::raw("│")]),
        Line::from(vec![
            Span::raw(" ".repeat(blanks)),
            Span::styled(retry, depth(counts.retry)),
            Span::raw(left),
            Span::raw("┴──▶ "),
            Span::styled(dead, dead_style),
            Span::styled(dying, dying_style),
        ]),
    ]
}
