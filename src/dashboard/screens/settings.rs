//! What this program runs with, and where each value came from. What can be changed while it runs is changed
//! here, and lasts until it ends.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::TABS;
use crate::control::READ_EVERY;
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::rates::Per;
use crate::dashboard::state::{Choice, Effect, Fact, Screen, Settings, State};
use crate::dashboard::widgets::{frame, padded, put, row, safe, wait};
use crate::message::{MessageId, QueueName};

pub(super) const SCOPE: Scope = Scope::Screen("Settings", &[Action::ChangeSetting]);

/// Columns of the names and of the values, where there is room for where they came from.
const NAME: usize = 20;
const VALUE: usize = 40;
const COLUMNS_OF_ORIGINS: usize = 76;

/// The screen.
#[derive(Debug)]
pub struct SettingsScreen;

impl Screen for SettingsScreen {
    fn name(&self) -> &'static str {
        "Settings"
    }

    fn is_of_one_queue(&self) -> bool {
        false
    }

    fn scope(&self, _: &State) -> Scope {
        SCOPE
    }

    fn line_count(&self, state: &State) -> Option<usize> {
        Some(rows(state).len())
    }

    fn line_key<'s>(&self, _: &'s State, _: usize) -> Option<&'s str> {
        None
    }

    fn current(&self, _: &State) -> Option<(QueueName, MessageId)> {
        None
    }

    fn open(&self, state: &mut State) {
        change(state);
    }

    fn act(&self, state: &mut State, action: Action) -> Option<Vec<Effect>> {
        match action {
            Action::ChangeSetting => change(state),
            Action::Back | Action::ShowSettings if state.modal.is_none() => {
                if !state.go_to_place(true) {
                    state.show(TABS[0]);
                }
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    fn draw(&self, state: &mut State, _: Instant, area: Rect, buffer: &mut Buffer) {
        draw(state, area, buffer);
    }
}

const CHOICES: [Choice; 4] = [Choice::Theme, Choice::Signs, Choice::Rates, Choice::Mouse];

impl Choice {
    fn name(self) -> &'static str {
        match self {
            Self::Theme => "theme",
            Self::Signs => "signs",
            Self::Rates => "rates",
            Self::Mouse => "mouse",
        }
    }

    /// The setting that it begins with, if there is one.
    fn setting(self) -> &'static str {
        match self {
            Self::Theme => "theme",
            Self::Signs => "ascii",
            Self::Rates => "",
            Self::Mouse => "no-mouse",
        }
    }

    fn value(self, settings: &Settings) -> &'static str {
        match self {
            Self::Theme if settings.theme.light => "light",
            Self::Theme => "dark",
            Self::Signs if settings.theme.ascii => "ASCII only",
            Self::Signs => "all",
            Self::Rates => settings.per.name(),
            Self::Mouse if settings.mouse => "selects and opens here",
            Self::Mouse => "left to the terminal",
        }
    }

    fn change(self, settings: &mut Settings) {
        let theme = &mut settings.theme;
        match self {
            Self::Theme => theme.light = !theme.light,
            Self::Signs => theme.ascii = !theme.ascii,
            Self::Rates => {
                settings.per = match settings.per {
                    Per::Second => Per::Minute,
                    Per::Minute => Per::Second,
                }
            }
            Self::Mouse => settings.mouse = !settings.mouse,
        }
    }
}

/// A line of the screen.
struct Row {
    choice: Option<Choice>,
    name: String,
    value: String,
    origin: String,
}

impl Row {
    fn told(name: &str, value: String, origin: &str) -> Self {
        Self {
            choice: None,
            name: name.to_owned(),
            value,
            origin: origin.to_owned(),
        }
    }
}

fn rows(state: &State) -> Vec<Row> {
    let settings = &state.settings;
    let origin_of = |setting: &str| {
        let mut origins = settings.facts.iter().filter_map(|fact| match fact {
            Fact::Value { name, origin, .. } if name == setting => Some(origin.as_str()),
            _ => None,
        });
        origins.next().unwrap_or("default")
    };
    let choice = |choice: Choice| Row {
        choice: Some(choice),
        name: choice.name().to_owned(),
        value: choice.value(settings).to_owned(),
        origin: if state.changed.contains(&choice) {
            "changed here".to_owned()
        } else {
            origin_of(choice.setting()).to_owned()
        },
    };
    let mut rows: Vec<Row> = CHOICES.into_iter().map(choice).collect();
    let colours = if settings.theme.no_color {
        ("none", "NO_COLOR")
    } else {
        ("those of the terminal", "default")
    };
    rows.push(Row::told("colours", colours.0.to_owned(), colours.1));
    let keys = if settings.keys.are_of_the_table() {
        "default"
    } else {
        "[dashboard.keys]"
    };
    let shows = format!("{} shows them", state.key_of(Action::ShowHelp));
    rows.push(Row::told("keys", shows, keys));
    let refresh = format!("every {}, and what changes at once", wait(READ_EVERY));
    rows.push(Row::told("refresh", refresh, "always"));
    let times = "UTC in the log, else how long ago";
    rows.push(Row::told("times", times.to_owned(), "always"));
    let changes = if settings.read_only {
        "refused"
    } else {
        "allowed"
    };
    let origin = origin_of("read-only");
    rows.push(Row::told("changes", changes.to_owned(), origin));
    rows.extend(settings.facts.iter().map(|fact| match fact {
        Fact::Heading(text) => Row::told(text, String::new(), ""),
        Fact::Value {
            name,
            value,
            origin,
        } => Row::told(name, value.clone(), origin),
    }));
    rows
}

/// Changes what is selected, if it can be.
fn change(state: &mut State) {
    let selected = rows(state).into_iter().nth(state.selected);
    if let Some(choice) = selected.and_then(|row| row.choice) {
        state.changed.insert(choice);
        choice.change(&mut state.settings);
    }
}

fn draw(state: &State, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let area = frame(theme, "Settings", area, buffer);
    let width = usize::from(area.width);
    let change = state.key_of(Action::ChangeSetting);
    let head = format!("{change} changes a line with *, until this program ends");
    let titles = text_of("", "SETTING", "VALUE", "FROM", width);
    let mut lines = vec![
        Line::raw(safe(&head, width)),
        Line::styled(format!(" {titles}"), theme.dim()),
    ];
    let shown = state.list_rows();
    let first = state.selected.saturating_sub(shown - 1);
    state.note_rows(area, 2, first);
    for (at, line) in rows(state).iter().enumerate().skip(first).take(shown) {
        let is_heading = line.origin.is_empty();
        let mark = if line.choice.is_some() { "*" } else { " " };
        let text = text_of(mark, &line.name, &line.value, &line.origin, width);
        let style = if is_heading {
            theme.accent()
        } else if line.origin == "default" && line.choice.is_none() {
            Style::new().add_modifier(Modifier::DIM)
        } else {
            Style::new()
        };
        lines.push(row(theme, at == state.selected, &text, style));
    }
    put(lines, area, buffer);
}

/// A line in so many columns, one of which is left for the mark of the selected line.
fn text_of(mark: &str, name: &str, value: &str, origin: &str, width: usize) -> String {
    let room = width.saturating_sub(1);
    if width < COLUMNS_OF_ORIGINS {
        return safe(&format!("{mark:<2}{name} {value}"), room);
    }
    let value_width = VALUE.max(width.saturating_sub(NAME + 40));
    let (name, value) = (safe(name, NAME), safe(value, value_width));
    let (name, value) = (padded(&name, NAME), padded(&value, value_width));
    safe(&format!("{mark:<2}{name} {value} {origin}"), room)
}
