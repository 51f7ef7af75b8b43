//! What the screen shows. [`update`](super::update) changes it, [`draw`](super::draw) draws it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::keymap::Scope;
use super::prompt::Prompt;
use super::rates::Rates;
use super::theme::Theme;
use crate::control::{
    Filter, Group, LogRing, Notice, Query, QueryResult, QueueView, READ_EVERY, Snapshot, Stage,
};
use crate::message::{MessageId, QueueName, Record, State as MessageState};

mod parts;
mod question;

pub use parts::{Modal, Opened, PayloadView, Reasons, Screen};
pub use question::{Question, QuestionTurn};

/// How long a notice is shown.
pub const NOTICE_TIME: Duration = Duration::from_secs(12);

/// So much later than the store should have been read its figures count as old.
const STALE_AFTER: Duration = Duration::from_millis(700);

/// Rows of the tabs, the status, the notice and the keys.
pub const ROWS_OF_STATUS_AND_KEYS: u16 = 4;

/// From so many rows and columns on each screen is in a panel.
pub const ROWS_OF_PANELS: u16 = 20;
/// See above.
pub const COLUMNS_OF_PANELS: u16 = 40;

/// The spans of one column of the graphs.
pub const ZOOMS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// The states that have a list, in their order on the screen.
pub const STATES: [MessageState; 5] = [
    MessageState::Pending,
    MessageState::Ready,
    MessageState::Unack,
    MessageState::Retry,
    MessageState::Dead,
];

/// How the dashboard is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How it looks.
    pub theme: Theme,
    /// Nothing may be changed.
    pub read_only: bool,
}

/// What the screen shows.
pub struct State {
    /// How things stand, or stood when the screen was frozen.
    pub snapshot: Arc<Snapshot>,
    /// True while the screen is held still.
    pub is_frozen: bool,
    /// How it is set up.
    pub settings: Settings,
    /// Columns and rows.
    pub size: (u16, u16),
    /// Which screen.
    pub screen: Screen,
    /// Which queue, once one is known.
    pub queue: Option<QueueName>,
    /// Which list on the messages screen: an index of [`STATES`].
    pub state: usize,
    /// Which messages are shown, on the messages and the dead screen.
    pub filter: Filter,
    /// Which dead letters are open, by reason.
    pub group: Option<Reasons>,
    /// The selected line.
    pub selected: usize,
    /// What the selected line is about, to find it again when lines move.
    pub anchor: Option<String>,
    /// Messages before the page.
    pub offset: usize,
    /// Marked messages.
    pub marks: BTreeSet<MessageId>,
    /// The message that is open.
    pub opened: Option<Opened>,
    /// What is on top.
    pub modal: Option<Modal>,
    /// The last question that came by itself or was closed: keys may still be meant for it.
    pub question_turn: Option<QuestionTurn>,
    /// The prompt, if open.
    pub prompt: Option<Prompt>,
    /// Earlier lines of the prompt.
    pub lines: Vec<String>,
    /// What became of the last command, and when that was said.
    pub notice: Option<(Notice, Instant)>,
    /// What happened lately, by queue.
    pub rates: HashMap<QueueName, Rates>,
    /// The span of a column of the graphs: an index of [`ZOOMS`].
    pub zoom: usize,
    /// The log.
    pub logs: Arc<LogRing>,
    /// Only what handlers printed.
    pub guests_only: bool,
    /// The query that was last asked for.
    pub query: Query,
}

impl State {
    /// A screen on which nothing has happened yet.
    #[must_use]
    pub fn new(settings: Settings, snapshot: Arc<Snapshot>, logs: Arc<LogRing>) -> Self {
        Self {
            snapshot,
            is_frozen: false,
            settings,
            size: (80, 24),
            screen: Screen::Overview,
            queue: None,
            state: 0,
            filter: Filter::default(),
            group: None,
            selected: 0,
            anchor: None,
            offset: 0,
            marks: BTreeSet::new(),
            opened: None,
            modal: None,
            question_turn: None,
            prompt: None,
            lines: Vec::new(),
            notice: None,
            rates: HashMap::new(),
            zoom: 0,
            logs,
            guests_only: false,
            query: Query::Nothing,
        }
    }

    /// Where keys go now.
    #[must_use]
    pub fn scope(&self) -> Scope {
        if self.prompt.is_some() {
            return Scope::Prompt;
        }
        match &self.modal {
            Some(Modal::Help { .. }) => return Scope::Help,
            Some(Modal::Confirm(_)) => return Scope::Confirm,
            Some(Modal::Editor { .. }) => return Scope::Editor,
            None => {}
        }
        if self.opened.is_some() {
            return Scope::Message;
        }
        self.ground()
    }

    /// Where keys go when nothing is open and nothing on top.
    fn ground(&self) -> Scope {
        match self.screen {
            Screen::Overview => Scope::Overview,
            Screen::Messages => Scope::Messages,
            Screen::Dead if self.group.is_some() => Scope::Letters,
            Screen::Dead => Scope::Groups,
            Screen::InFlight => Scope::InFlight,
            Screen::Log => Scope::Log,
        }
    }

    /// The selected queue.
    #[must_use]
    pub fn queue_view(&self) -> Option<&QueueView> {
        let name = self.queue.as_ref()?;
        self.snapshot
            .queues
            .iter()
            .find(|queue| queue.name == *name)
    }

    /// Rows of a list on this screen: what is left by the tabs, the status, the notice, the keys, the
    /// panel and the list's two head lines.
    #[must_use]
    pub fn list_rows(&self) -> usize {
        let (columns, rows) = self.size;
        let others = match rows {
            _ if rows >= ROWS_OF_PANELS && columns >= COLUMNS_OF_PANELS => 8,
            10.. => 6,
            _ => 4,
        };
        usize::from(rows.saturating_sub(others)).max(1)
    }

    /// The state whose messages are listed.
    #[must_use]
    pub fn listed_state(&self) -> MessageState {
        match self.screen {
            Screen::Dead => MessageState::Dead,
            _ => STATES[self.state],
        }
    }

    /// The page of messages, if it is there and the one that is wanted.
    #[must_use]
    pub fn records(&self) -> Option<(&[Record], bool, bool)> {
        match &self.snapshot.result {
            QueryResult::Messages {
                query,
                records,
                more,
                cut,
            } if *query == self.query => Some((records, *more, *cut)),
            _ => None,
        }
    }

    /// The dead letters by reason, if they are there.
    #[must_use]
    pub fn groups(&self) -> Option<(&[Group], bool)> {
        match &self.snapshot.result {
            QueryResult::Groups { query, groups, cut } if *query == self.query => {
                Some((groups, *cut))
            }
            _ => None,
        }
    }

    /// How many lines can be selected; none while they are not known.
    #[must_use]
    pub fn line_count(&self) -> Option<usize> {
        match self.ground() {
            Scope::Overview => Some(self.snapshot.queues.len()),
            Scope::Messages | Scope::Letters => self.records().map(|(records, ..)| records.len()),
            // The first line stands for all.
            Scope::Groups => self.groups().map(|(groups, _)| groups.len() + 1),
            Scope::InFlight => Some(self.snapshot.in_flight.len()),
            _ => None,
        }
    }

    /// The selected message of a list.
    #[must_use]
    pub fn selected_record(&self) -> Option<&Record> {
        self.records()?.0.get(self.selected)
    }

    /// The line of the selected queue on the overview.
    #[must_use]
    pub fn selected_queue(&self) -> usize {
        let mut queues = self.snapshot.queues.iter();
        let is_selected = |queue: &QueueView| Some(&queue.name) == self.queue.as_ref();
        queues.position(is_selected).unwrap_or(0)
    }

    /// What the selected line is about, to find it again after a change.
    #[must_use]
    pub fn selected_key(&self) -> Option<String> {
        match self.ground() {
            Scope::Messages | Scope::Letters => {
                Some(self.selected_record()?.id.as_str().to_owned())
            }
            Scope::Groups => {
                let line = self.selected.checked_sub(1)?;
                Some(self.groups()?.0.get(line)?.reason.clone())
            }
            Scope::InFlight => {
                let in_flight = self.snapshot.in_flight.get(self.selected)?;
                Some(in_flight.id.as_str().to_owned())
            }
            _ => None,
        }
    }

    /// Selects the line that is about this, if there is one.
    pub fn select_key(&mut self, key: &str) {
        let line = match self.ground() {
            Scope::Messages | Scope::Letters => self.records().and_then(|(records, ..)| {
                records.iter().position(|record| record.id.as_str() == key)
            }),
            Scope::Groups => self.groups().and_then(|(groups, _)| {
                let at = groups.iter().position(|group| group.reason == key)?;
                Some(at + 1)
            }),
            Scope::InFlight => {
                let mut in_flight = self.snapshot.in_flight.iter();
                in_flight.position(|in_flight| in_flight.id.as_str() == key)
            }
            _ => None,
        };
        self.selected = line.unwrap_or(self.selected);
    }

    /// The message that an action is about: the open one or the selected one.
    #[must_use]
    pub fn current(&self) -> Option<(QueueName, MessageId)> {
        if let Some(opened) = &self.opened {
            return Some((opened.queue.clone(), opened.id.clone()));
        }
        if self.screen == Screen::InFlight {
            let in_flight = self.snapshot.in_flight.get(self.selected)?;
            return Some((in_flight.queue.clone(), in_flight.id.clone()));
        }
        Some((self.queue.clone()?, self.selected_record()?.id.clone()))
    }

    /// What the screen wants to see of the store.
    #[must_use]
    pub fn wanted_query(&self) -> Query {
        if let Some(opened) = &self.opened {
            return Query::Message {
                queue: opened.queue.clone(),
                id: opened.id.clone(),
            };
        }
        let Some(queue) = self.queue.clone() else {
            return Query::Nothing;
        };
        let filter = self.filter.clone();
        let page = |filter| Query::Messages {
            queue: queue.clone(),
            state: self.listed_state(),
            offset: self.offset,
            limit: self.list_rows(),
            filter,
        };
        match (self.screen, &self.group) {
            (Screen::Messages, _) => page(filter),
            (Screen::Dead, Some(reasons)) => page(reasons.filter(&filter)),
            (Screen::Dead, None) => Query::Groups { queue, filter },
            (Screen::Overview | Screen::InFlight | Screen::Log, _) => Query::Nothing,
        }
    }

    /// True when the store has not answered for so long that its figures are old.
    #[must_use]
    pub fn is_stale(&self, now: Instant) -> bool {
        let limit = READ_EVERY + STALE_AFTER;
        let read_at = self.snapshot.read_at.filter(|_| !self.is_frozen);
        read_at.is_some_and(|at| now.saturating_duration_since(at) > limit)
    }

    /// True when what is drawn changes with time alone.
    #[must_use]
    pub fn is_timed(&self, now: Instant) -> bool {
        let snapshot = &self.snapshot;
        !self.is_frozen
            && (self.is_stale(now)
                || snapshot.outage.is_some()
                || !snapshot.in_flight.is_empty()
                || self.notice.is_some()
                || snapshot
                    .host
                    .as_ref()
                    .is_some_and(|host| host.stage > Stage::Run)
                || snapshot.queues.iter().any(|queue| {
                    queue.overview.next_due_ms.is_some() || queue.overview.oldest_ready_ms.is_some()
                }))
    }
}
