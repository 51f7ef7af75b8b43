//! What another handler answers for dead letters, which stay as they are.

use std::fmt::Write as _;
use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::control::{Answer, Bulk, Command, TRIED_MAX, Trial, TrialEnd, TriedLetter, reason_of};
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::screens::list::id_width;
use crate::dashboard::screens::message::listed;
use crate::dashboard::state::{Effect, Modal, Question, State};
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::{
    columns, frame, padded, put, row, safe, short, short_id, split, wrapped,
};

pub(in crate::dashboard::screens) const SCOPE: Scope = Scope::Screen(
    "Trial of a handler",
    &[Action::Open, Action::Redrive, Action::Try, Action::CopyId],
);

/// Columns of an answer's class.
const CLASS: usize = 13;

pub(super) fn act(state: &mut State, action: Action) -> Option<Vec<Effect>> {
    match action {
        Action::Redrive => redrive(state),
        Action::Try => {
            let shown = state.trial();
            let shown = shown.map(|trial| (trial.queue.clone(), trial.letters.clone()));
            let asked = state.tried.clone();
            let asked = asked.filter(|last| Some(last.number) == state.open_trial);
            let asked = asked.map(|last| (last.queue, last.letters));
            if let Some((queue, letters)) = shown.or(asked) {
                state.ask_for_handler(queue, letters);
            }
        }
        _ => return None,
    }
    Some(Vec::new())
}

/// Asks whether to put back what the handler acks.
fn redrive(state: &mut State) {
    let Some(trial) = state.trial().filter(|trial| trial.end.is_some()) else {
        return;
    };
    let ids = trial.acked();
    if ids.is_empty() {
        return;
    }
    let letters = if ids.len() == 1 {
        "dead letter"
    } else {
        "dead letters"
    };
    let mut question = format!(
        "Put {} {letters} that {} acks back into {}, as new messages?",
        ids.len(),
        name(trial),
        trial.queue
    );
    if !is_in_use(state, trial) {
        let _ = write!(question, " No host of {} runs this handler.", trial.queue);
    }
    let then = Command::Bulk(trial.queue.clone(), ids, Bulk::REDRIVE);
    state.modal = Some(Modal::Confirm(Question::new(question, then)));
}

/// True if a host of the queue runs this very handler.
fn is_in_use(state: &State, trial: &Trial) -> bool {
    let mut queues = state.snapshot.queues.iter();
    let Some(view) = queues.find(|view| view.name == trial.queue) else {
        return false;
    };
    let here = view.report.iter().map(|report| report.handler.as_str());
    let elsewhere = view.hosts.iter().map(|host| host.info.handler.as_str());
    let digest = trial.digest.as_deref().unwrap_or_default();
    // Others may tell the beginning of it.
    here.chain(elsewhere)
        .any(|handler| handler.len() >= 8 && digest.starts_with(handler))
}

/// The handler's file without its folder.
fn name(trial: &Trial) -> String {
    let name = trial.file.rsplit('/').next().unwrap_or(&trial.file);
    safe(name, 40)
}

pub(super) fn draw(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let trial = state.trial();
    let selected = trial.and_then(|trial| trial.tried.get(state.selected));
    let (area, beside) = split(area);
    if let Some(beside) = beside {
        let area = frame(theme, "Answer", beside, buffer);
        let now_ms = state.snapshot.now_ms(now);
        let lines = selected.map(|one| answer(theme, one, now_ms, area.width.into()));
        put(lines.unwrap_or_default(), area, buffer);
    }
    let area = frame(theme, "Trial: nothing is changed", area, buffer);
    let width = usize::from(area.width);
    let Some(trial) = trial else {
        let lines = match state.why_no_trial() {
            None => vec![Line::styled("beginning…", theme.dim())],
            Some(why) => styled(wrapped(&why, width, false), theme.warn()),
        };
        return put(lines, area, buffer);
    };
    if let Some(TrialEnd::Failed(error)) = &trial.end {
        let lines = styled(wrapped(error, width, false), theme.bad());
        return put(lines, area, buffer);
    }
    // The selected line stays in sight.
    let first = state.selected.saturating_sub(state.list_rows() - 1);
    state.note_rows(area, 2, first);
    let id = id_width(width);
    let head = format!(" {:<CLASS$} {:<id$} WHY, AND BEFORE", "ANSWER", "ID");
    let mut lines = vec![summary(theme, trial), Line::styled(head, theme.dim())];
    let rows = trial.tried.iter().enumerate().skip(first);
    lines.extend(rows.map(|(at, one)| line(theme, one, at == state.selected, width)));
    put(lines, area, buffer);
}

fn styled(mut lines: Vec<Line<'static>>, style: Style) -> Vec<Line<'static>> {
    for line in &mut lines {
        line.style = style;
    }
    lines
}

/// How many the handler acks, and what became of the others.
fn summary(theme: Theme, trial: &Trial) -> Line<'static> {
    let file = name(trial);
    let is_over = trial.end.is_some();
    if trial.digest.is_none() && !is_over {
        let what = match trial.meant {
            None => "counting dead letters…".to_owned(),
            Some(_) => format!("compiling {file}…"),
        };
        return Line::styled(what, theme.warn());
    }
    let (acked, others) = trial.by_class();
    let tried = short(trial.tried.len());
    // What is left out is told first.
    let mut text = match trial.meant {
        Some(meant) if meant > TRIED_MAX => format!(" of the first {tried} of {}", short(meant)),
        _ => format!(" of {tried}"),
    };
    for (class, count) in others {
        let _ = write!(text, ", {} {class}", short(count));
    }
    if trial.end == Some(TrialEnd::Stopped) {
        text.push_str("; stopped");
    }
    if is_over && acked > 0 {
        text.push_str("; r redrives those");
    }
    Line::from(vec![
        Span::raw(format!("{file} acks ")),
        Span::styled(short(acked), theme.good()),
        Span::raw(text),
    ])
}

fn line(theme: Theme, one: &TriedLetter, is_selected: bool, width: usize) -> Line<'static> {
    let id = id_width(width);
    let mut text = format!(
        "{:<CLASS$} {} ",
        one.answer.class(),
        padded(&short_id(one.id.as_str(), id), id)
    );
    let mut why = one.answer.reason().to_owned();
    if let Some(record) = &one.record {
        let between = if why.is_empty() { "" } else { "; " };
        let _ = write!(why, "{between}before: {}", reason_of(record));
    }
    let room = width.saturating_sub(columns(&text) + 1);
    text.push_str(&safe(&why, room));
    let style = match one.answer {
        Answer::Acked => theme.good(),
        _ => Style::new(),
    };
    row(theme, is_selected, &text, style)
}

/// What one answer was, in full.
fn answer(theme: Theme, one: &TriedLetter, now_ms: u64, width: usize) -> Vec<Line<'static>> {
    let style = match one.answer {
        Answer::Acked => theme.good(),
        _ => theme.warn(),
    };
    let mut lines = vec![Line::styled(one.answer.class(), style)];
    if !one.answer.reason().is_empty() {
        lines.extend(wrapped(one.answer.reason(), width, false));
    }
    if !one.log.trim().is_empty() {
        lines.push(Line::styled("it printed", theme.dim()));
        lines.extend(wrapped(one.log.trim_end(), width, false));
    }
    lines.push(Line::default());
    if let Some(record) = &one.record {
        lines.push(Line::styled("the dead letter, as it stays", theme.dim()));
        lines.extend(listed(theme, record, now_ms, width));
    }
    lines
}
