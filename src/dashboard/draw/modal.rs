//! What lies on top: the help, questions, the editor, the prompt.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Widget, Wrap};
use ratatui_textarea::TextArea;

use crate::dashboard::keymap::{Action, Binding, Keys, Scope};
use crate::dashboard::prompt::{Kind, Prompt};
use crate::dashboard::screens;
use crate::dashboard::state::{Modal, Question, State};
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::{columns, pop_up, put, row, safe};
use crate::message::MessageId;

/// The most rows of the prompt.
const PROMPT_ROWS_MAX: u16 = 6;

/// The keys of one place, as the help and `dqhost keys` list them.
#[must_use]
pub fn key_lines(keys: &Keys, scope: Scope) -> Vec<(String, &'static str)> {
    screens::in_scope(scope)
        .map(|binding| {
            let names: Vec<String> = keys.of(binding).iter().map(|key| key.name()).collect();
            (names.join(" "), binding.help)
        })
        .collect()
}

pub(super) fn help(state: &mut State, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let Some(Modal::Help { of, scroll }) = &mut state.modal else {
        return;
    };
    let keys = &state.settings.keys;
    let title = if keys.are_of_the_table() {
        "keys here; a capital letter does what cannot be undone"
    } else {
        "keys here; dqhost.toml has some of them"
    };
    let inner = pop_up(theme, title, area, buffer);
    let mut lines: Vec<Line<'static>> = key_lines(keys, *of)
        .into_iter()
        .map(|(keys, help)| {
            Line::from(vec![
                Span::styled(format!("{keys:<16} "), theme.accent()),
                Span::raw(help),
            ])
        })
        .collect();
    lines.push(Line::default());
    for line in [
        "Commands, after `:` - send, get, cancel, reschedule, redrive, delete, pause,",
        "resume, try, stop, filter, queue, help, quit; `dqhost send --help` explains.",
        "Filters - words that must all be found; !word must not; id: payload: reason:",
        "class: header: look in one place only.",
        "The bars of the overview grow with the logarithm of the number.",
    ] {
        lines.push(Line::styled(line, theme.dim()));
    }
    let hidden = lines.len().saturating_sub(usize::from(inner.height));
    *scroll = (*scroll).min(hidden);
    put(lines.split_off(*scroll), inner, buffer);
}

/// The answers: the one that Enter takes is in brackets.
fn answers(theme: Theme, question: &Question) -> Line<'static> {
    let answer = |key, word, is_marked: bool| {
        let (before, after) = if is_marked { ("[", "]") } else { (" ", " ") };
        [
            Span::raw(before),
            Span::styled(key, theme.accent()),
            Span::raw(word),
            Span::raw(after),
        ]
    };
    let no = answer("n", " no", !question.is_on_yes);
    let yes = answer("y", " yes", question.is_on_yes);
    Line::from([&no[..], &[Span::raw("  ")], &yes[..]].concat())
}

pub(super) fn confirm(theme: Theme, question: &Question, area: Rect, buffer: &mut Buffer) {
    let width = area.width.min(64);
    let answers = match question.number() {
        Some(number) => Line::from(vec![
            Span::raw(format!("type {number} and press Enter: ")),
            Span::styled(format!("{}_", question.typed), theme.accent()),
        ]),
        None => answers(theme, question),
    };
    let lines = vec![
        Line::raw(safe(&question.text, 400)),
        Line::default(),
        answers,
    ];
    let text = Paragraph::new(lines).wrap(Wrap { trim: true });
    let columns = usize::from(width.saturating_sub(2)).max(1);
    let rows = u16::try_from(question.text.chars().count() / columns).unwrap_or(0) + 6;
    let rows = rows.min(area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - rows) / 2,
        width,
        height: rows,
    };
    let inner = pop_up(theme, "sure?", place, buffer);
    text.render(inner, buffer);
}

pub(super) fn editor(
    state: &State,
    (id, text): (&MessageId, &TextArea<'static>),
    area: Rect,
    buffer: &mut Buffer,
) {
    let title = format!(
        "{}: {} sends it, the dead letter is kept",
        safe(id.as_str(), 40),
        state.key_of(Action::Save)
    );
    let inner = pop_up(state.settings.theme, &title, area, buffer);
    text.render(inner, buffer);
}

/// The actions that the prompt lists, above it.
pub(super) fn palette(state: &State, body: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let actions = screens::palette(state);
    let chosen = state.prompt.as_ref().and_then(|prompt| prompt.chosen);
    if actions.is_empty() || body.height < 4 {
        return;
    }
    let rows = usize::from((body.height / 2).max(2)).min(actions.len());
    let first = chosen.map_or(0, |chosen| (chosen + 1).saturating_sub(rows));
    let height = u16::try_from(rows + 2)
        .unwrap_or(body.height)
        .min(body.height);
    let place = Rect {
        y: body.y + body.height - height,
        height,
        ..body
    };
    let title = format!("Actions ({}): ↓ chooses, Enter does it", actions.len());
    let inner = pop_up(theme, &title, place, buffer);
    let line = |(at, binding): (usize, &&'static Binding)| {
        let key = state.settings.keys.shown(binding);
        row(
            theme,
            Some(at) == chosen,
            &format!("{key:<9} {}", binding.help),
            Style::new(),
        )
    };
    let lines = actions.iter().enumerate().skip(first).take(rows).map(line);
    put(lines.collect(), inner, buffer);
}

/// The prompt grows upwards from the line of the notice; what is wrong or possible is under it.
pub(super) fn prompt(theme: Theme, prompt: &Prompt, body: Rect, notice: Rect, buffer: &mut Buffer) {
    let lines = u16::try_from(prompt.area.lines().len()).unwrap_or(u16::MAX);
    let below = match (&prompt.error, prompt.candidates.as_slice()) {
        (Some(error), _) => Some((safe(error, usize::from(body.width) * 2), theme.bad())),
        (None, []) if prompt.kind == Kind::Handler => {
            let hint = "a handler's file; Tab completes, Enter tries it, and nothing is changed";
            Some((hint.to_owned(), theme.dim()))
        }
        (None, []) => None,
        (None, words) => Some((
            safe(&words.join("  "), usize::from(body.width) * 2),
            theme.dim(),
        )),
    };
    let hint = below.map(|(text, style)| {
        (
            Paragraph::new(text).style(style).wrap(Wrap { trim: true }),
            2,
        )
    });
    let hint_rows = hint.as_ref().map_or(0, |(_, rows)| *rows);
    let rows = lines.min(PROMPT_ROWS_MAX).min(notice.y + 1 - hint_rows);
    let place = Rect {
        y: notice.y.saturating_sub(rows + hint_rows - 1),
        height: rows + hint_rows,
        ..notice
    };
    Clear.render(place, buffer);
    let sign = match prompt.kind {
        Kind::Command => ":",
        Kind::Filter | Kind::Queue => "/",
        Kind::Handler => "try: ",
    };
    let columns = u16::try_from(columns(sign)).unwrap_or(1).min(place.width);
    let head = Rect {
        width: columns,
        height: 1,
        ..place
    };
    Line::styled(sign, theme.accent().add_modifier(Modifier::BOLD)).render(head, buffer);
    let input = Rect {
        x: place.x + columns,
        width: place.width - columns,
        height: rows,
        ..place
    };
    prompt.area.render(input, buffer);
    if let Some((hint, rows)) = hint {
        let under = Rect {
            y: place.y + place.height - rows,
            height: rows,
            ..place
        };
        hint.render(under, buffer);
    }
}
