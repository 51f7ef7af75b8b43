//! How the queues stand: the queues, the way of the messages of one, what flows, who works.
//!
//! On a large screen two columns of panels; on a smaller one the same below each other with a line as
//! a title; on the smallest the table of queues alone.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Widget;

use super::{Messages, in_flight, log};
use crate::control::{Query, QueueView};
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::rates::Flow;
use crate::dashboard::state::{Effect, ROWS_OF_STATUS_AND_KEYS, Screen, State, ZOOMS};
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::{columns, fitted, panel, put, rate, safe, title, wait};

mod attempts;
mod due;
mod graphs;
mod hosts;
mod pipeline;
mod queues;
mod warnings;

/// From this many rows and columns on there is more than the table.
const ROWS_OF_ALL: u16 = 15;
const COLUMNS_OF_ALL: u16 = 60;

/// From this many on there are panels in two columns.
const ROWS_OF_PANELS: u16 = 30;
const COLUMNS_OF_PANELS: u16 = 110;

/// Warnings that are shown at most.
const WARNINGS_MAX: usize = 3;

/// Lines of the pipeline.
const PIPELINE: u16 = 5;

pub(super) const SCOPE: Scope = Scope::Screen(
    "Overview",
    &[
        Action::Open,
        Action::FindQueue,
        Action::Cause,
        Action::StopHandler,
        Action::SortQueues,
        Action::ZoomOut,
        Action::ZoomIn,
        Action::ZoomAhead,
        Action::NextQueue,
    ],
);

/// The screen.
#[derive(Debug)]
pub(super) struct Overview;

impl Screen for Overview {
    fn name(&self) -> &'static str {
        "Overview"
    }

    fn is_of_one_queue(&self) -> bool {
        false
    }

    fn scope(&self, _: &State) -> Scope {
        SCOPE
    }

    fn query(&self, state: &State) -> Query {
        let (columns, rows) = state.size;
        let rows = rows.saturating_sub(ROWS_OF_STATUS_AND_KEYS);
        if is_small(columns, rows) {
            return Query::Nothing;
        }
        due::query(state)
    }

    fn line_count(&self, state: &State) -> Option<usize> {
        Some(state.snapshot.queues.len())
    }

    fn open(&self, state: &mut State) {
        state.show(&Messages);
    }

    fn navigate(&self, state: &mut State, action: Action) {
        state.navigate_list(action, state.snapshot.queues.len());
        let line = state.selected;
        self.select(state, line);
    }

    fn select(&self, state: &mut State, line: usize) {
        state.selected = line;
        if let Some(view) = state.snapshot.queues.get(line) {
            state.queue = Some(view.name.clone());
        }
    }

    fn refresh(&self, state: &mut State) {
        queues::sort(state);
        state.selected = state.selected_queue();
    }

    fn act(&self, state: &mut State, action: Action) -> Option<Vec<Effect>> {
        match action {
            Action::ZoomOut => state.zoom = (state.zoom + 1).min(ZOOMS.len() - 1),
            Action::ZoomIn => state.zoom = state.zoom.saturating_sub(1),
            Action::SortQueues => {
                state.sort = (state.sort + 1) % queues::SORTS.len();
                self.refresh(state);
            }
            // Without one, it is said why.
            Action::StopHandler => return in_flight::ask_to_stop_longest(state).then(Vec::new),
            Action::ZoomAhead => state.reach = (state.reach + 1) % due::REACHES.len(),
            _ => return None,
        }
        Some(Vec::new())
    }

    fn shows_log(&self) -> bool {
        true
    }

    fn draw(&self, state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer) {
        draw(state, now, area, buffer);
    }
}

fn draw(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    if state.snapshot.queues.is_empty() {
        put(first_steps(theme, state), area, buffer);
        return;
    }
    let is_small = is_small(area.width, area.height);
    let Some(view) = state.queue_view().filter(|_| !is_small) else {
        let size = (usize::from(area.width), usize::from(area.height));
        put(queues::table(state, now, size, false), area, buffer);
        queues::note_rows(state, area);
        return;
    };
    let mut warnings = warnings::lines(state, view, now);
    warnings.truncate(WARNINGS_MAX);
    let rows = u16::try_from(warnings.len()).unwrap_or(0);
    let rows = rows.min(area.height - ROWS_OF_ALL);
    let [top, rest] = Layout::vertical([Constraint::Length(rows), Constraint::Fill(1)]).areas(area);
    put(warnings, top, buffer);
    let shown = Shown { state, view, now };
    // Of the whole place, so that a warning that comes or goes moves no panel elsewhere.
    if area.height < ROWS_OF_PANELS || area.width < COLUMNS_OF_PANELS {
        shown.below_each_other(rest, buffer);
    } else {
        shown.in_panels(rest, buffer);
    }
}

/// True when there is room for the table only.
fn is_small(columns: u16, rows: u16) -> bool {
    rows < ROWS_OF_ALL || columns < COLUMNS_OF_ALL
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

/// A rule with a title, above what is not in a panel.
fn rule(theme: Theme, text: &str, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    Line::styled("─".repeat(width), theme.dim()).render(area, buffer);
    let inner = Rect {
        x: area.x + 2,
        width: area.width.saturating_sub(4),
        ..area
    };
    fitted(title(theme, text), usize::from(inner.width)).render(inner, buffer);
}

/// The selected queue on a screen with room for more than the table.
struct Shown<'a> {
    state: &'a State,
    view: &'a QueueView,
    now: Instant,
}

impl Shown<'_> {
    fn below_each_other(&self, area: Rect, buffer: &mut Buffer) {
        let theme = self.state.settings.theme;
        let count = u16::try_from(self.state.snapshot.queues.len()).unwrap_or(u16::MAX);
        // The pipeline with its title, the flows with theirs, and the two lines at the end.
        let others = PIPELINE + 1 + 1 + 3 + 2;
        let table = (count.saturating_add(2))
            .min(area.height / 3)
            .min(area.height - others);
        let spare = area.height - others - table;
        let due = match spare {
            ..3 => 0,
            _ => (spare / 3).clamp(3, 6),
        };
        let flows = (spare - due + 3).min(10);
        let [queues, pipeline, due, flows, attempts, hosts, log] = Layout::vertical([
            Constraint::Length(table),
            Constraint::Length(PIPELINE + 1),
            Constraint::Length(due),
            Constraint::Length(flows + 1),
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Fill(1),
        ])
        .areas(area);
        let mut below = |text: &str, area: Rect| {
            let [top, rest] =
                Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
            rule(theme, text, top, buffer);
            rest
        };
        let table = below(&self.title_of_queues(queues.height - 1), queues);
        let way = below(&self.title_of_pipeline(), pipeline);
        let bars = if due.height > 0 {
            below(&due::title(self.state, self.view), due)
        } else {
            Rect::ZERO
        };
        let bands = below(&self.title_of_flows(flows.width), flows);
        let log = if log.height > 2 {
            below("Log", log)
        } else {
            Rect::ZERO
        };
        self.queues(table, false, buffer);
        self.pipeline(way, buffer);
        put(due::bars(self.state, bars), bars, buffer);
        put(graphs::bands(self.state, self.view, bands), bands, buffer);
        put(
            vec![attempts::one_line(
                self.state,
                self.view,
                usize::from(attempts.width),
            )],
            attempts,
            buffer,
        );
        self.hosts_in_a_line(hosts, buffer);
        self.log(log, buffer);
    }

    fn in_panels(&self, area: Rect, buffer: &mut Buffer) {
        let side = (area.width / 10 * 3).clamp(42, 78);
        let [left, right] =
            Layout::horizontal([Constraint::Length(side), Constraint::Fill(1)]).areas(area);
        self.left_column(left, buffer);
        let flows = (area.height / 5 * 2).clamp(10, 24);
        let due = (area.height / 5).clamp(6, 12);
        let [pipeline, due, flows, log] = Layout::vertical([
            Constraint::Length(PIPELINE + 4),
            Constraint::Length(due),
            Constraint::Length(flows),
            Constraint::Fill(1),
        ])
        .areas(right);
        let way = self.panel(&self.title_of_pipeline(), pipeline, buffer);
        let [_, way] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(way);
        self.pipeline(way, buffer);
        let bars = self.panel(&due::title(self.state, self.view), due, buffer);
        put(due::bars(self.state, bars), bars, buffer);
        let bands = self.panel(&self.title_of_flows(flows.width - 2), flows, buffer);
        put(graphs::bands(self.state, self.view, bands), bands, buffer);
        let log = self.panel("Log", log, buffer);
        self.log(log, buffer);
    }

    fn left_column(&self, area: Rect, buffer: &mut Buffer) {
        let length = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let queues = length(self.state.snapshot.queues.len()).saturating_add(3);
        let queues = queues.clamp(6, area.height / 3);
        let lines = hosts::lines(self.state, self.view, usize::from(area.width - 2));
        let (hosts_max, attempts_max) = match area.height {
            ..30 => (4, 4),
            30..40 => (4, 6),
            _ => (8, 6),
        };
        let hosts = length(lines.len()).min(hosts_max) + 2;
        let attempts = length(attempts::histogram(self.view).len()).min(attempts_max) + 2;
        let [queues, times, attempts, hosts, in_flight] = Layout::vertical([
            Constraint::Length(queues),
            Constraint::Length(6),
            Constraint::Length(attempts),
            Constraint::Length(hosts),
            Constraint::Fill(1),
        ])
        .areas(area);
        let table = self.panel(&self.title_of_queues(queues.height - 2), queues, buffer);
        self.queues(table, true, buffer);
        let inner = self.panel("Times", times, buffer);
        put(hosts::times(self.state, self.view), inner, buffer);
        let inner = self.panel("Attempts", attempts, buffer);
        put(attempts::bars(self.state, self.view, inner), inner, buffer);
        let inner = self.panel("Hosts", hosts, buffer);
        put(lines, inner, buffer);
        if in_flight.height > 2 {
            let inner = self.panel("In flight here", in_flight, buffer);
            in_flight::few(self.state, self.now, inner, buffer);
        }
    }

    fn panel(&self, text: &str, area: Rect, buffer: &mut Buffer) -> Rect {
        let theme = self.state.settings.theme;
        panel(theme, title(theme, text), area, buffer)
    }

    fn title_of_queues(&self, rows: u16) -> String {
        let mut title = "Queues".to_owned();
        if self.state.sort > 0 {
            title = format!("{title} by {}", queues::SORTS[self.state.sort]);
        }
        match queues::shown(self.state, usize::from(rows)) {
            shown if shown.is_empty() => title,
            shown => format!("{title} {shown}"),
        }
    }

    fn title_of_pipeline(&self) -> String {
        let rates = self.state.rates.get(&self.view.name);
        let name = safe(self.view.name.as_str(), 30);
        let per = self.state.settings.per;
        format!("{name} ── in {}{}", rate(per, rates, Flow::In), per.unit())
    }

    fn title_of_flows(&self, width: u16) -> String {
        let column = wait(ZOOMS[self.state.zoom]);
        let span = graphs::span(self.state, width);
        let per = self.state.settings.per.name();
        let [longer, shorter] =
            [Action::ZoomOut, Action::ZoomIn].map(|zoom| self.state.key_of(zoom));
        format!("Messages {per}, last {span} ── a column {column} ({longer} {shorter})")
    }

    fn queues(&self, area: Rect, is_beside: bool, buffer: &mut Buffer) {
        let size = (usize::from(area.width), usize::from(area.height));
        put(
            queues::table(self.state, self.now, size, is_beside),
            area,
            buffer,
        );
        queues::note_rows(self.state, area);
    }

    fn pipeline(&self, area: Rect, buffer: &mut Buffer) {
        let width = usize::from(area.width);
        put(
            pipeline::lines(self.state, self.view, self.now, width),
            area,
            buffer,
        );
    }

    fn hosts_in_a_line(&self, area: Rect, buffer: &mut Buffer) {
        let theme = self.state.settings.theme;
        let width = usize::from(area.width);
        let mut lines = hosts::lines(self.state, self.view, usize::MAX);
        let more = lines.len() - 1;
        let mut line = lines.swap_remove(0);
        if more > 0 {
            line.push_span(format!("  and {more} more"));
        }
        let times = hosts::times_in_words(self.view);
        if !times.is_empty() && line.width() + columns(&times) + 2 <= width {
            line.push_span(ratatui::text::Span::styled(
                format!("  {times}"),
                theme.dim(),
            ));
        }
        put(vec![line], area, buffer);
    }

    fn log(&self, area: Rect, buffer: &mut Buffer) {
        let (rows, width) = (usize::from(area.height), usize::from(area.width));
        put(log::latest(self.state, rows, width), area, buffer);
    }
}
