//! What the screen shows. [`update`](super::update) changes it, [`draw`](super::draw) draws it.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::layout::Rect;

use super::keymap::{Action, Keys, Scope};
use super::prompt::Prompt;
use super::rates::{Per, Rates};
use super::theme::Theme;
use crate::control::{
    Filter, LogRing, Notice, Query, QueueView, READ_EVERY, Snapshot, Stage, TrialRequest,
};
use crate::message::{MessageId, QueueName, State as MessageState};

mod answers;
mod parts;
mod places;
mod question;
mod screen;
mod trial;

pub use parts::{Choice, Effect, Fact, Modal, Opened, PayloadView, Reasons};
pub use places::Places;
pub use question::{Question, QuestionTurn};
pub use screen::Screen;

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
    /// The mouse selects and opens, instead of selecting text in the terminal.
    pub mouse: bool,
    /// What rates are told per.
    pub per: Per,
    /// Which keys do what.
    pub keys: Keys,
    /// What the program runs with.
    pub facts: Arc<[Fact]>,
}

impl Settings {
    /// The usual ones, with this look.
    #[must_use]
    pub fn of(theme: Theme) -> Self {
        Self {
            theme,
            read_only: false,
            mouse: true,
            per: Per::default(),
            keys: Keys::default(),
            facts: Arc::default(),
        }
    }
}

/// What the screen shows.
pub struct State {
    /// How things stand, or stood when the screen was frozen.
    pub snapshot: Arc<Snapshot>,
    /// True while the screen is held still.
    pub is_frozen: bool,
    /// How it is set up.
    pub settings: Settings,
    /// What of it was changed here.
    pub changed: BTreeSet<Choice>,
    /// Columns and rows.
    pub size: (u16, u16),
    /// Which screen.
    pub screen: &'static dyn Screen,
    /// Which queue, once one is known.
    pub queue: Option<QueueName>,
    /// Which list on the messages screen: an index of [`STATES`].
    pub state: usize,
    /// Which messages are shown, on the messages and the dead screen.
    pub filter: Filter,
    /// Which dead letters are open, by reason.
    pub group: Option<Reasons>,
    /// The number of the trial of a handler that is shown on the dead screen, if one is.
    pub open_trial: Option<u64>,
    /// The trial that was asked for last.
    pub tried: Option<TrialRequest>,
    /// The places where the operator was.
    pub places: Places,
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
    /// By which column the queues are sorted; the first is no column.
    pub sort: usize,
    /// How far ahead due times are shown: the next minute, hour, day or week.
    pub reach: usize,
    /// True if the table of handlers is not as it is at first: there, or not there.
    pub is_by_handler: bool,
    /// The log.
    pub logs: Arc<LogRing>,
    /// Only what handlers printed.
    pub guests_only: bool,
    /// Where the tabs were drawn in the first row: their columns.
    pub tabs: Vec<Range<u16>>,
    /// Where lines that can be selected were drawn, and which is the first of them.
    pub rows: Cell<Option<(Rect, usize)>>,
    /// The query that was last asked for.
    pub query: Query,
}

impl State {
    /// A dashboard that shows this screen, and on which nothing has happened yet.
    #[must_use]
    pub fn new(
        screen: &'static dyn Screen,
        settings: Settings,
        snapshot: Arc<Snapshot>,
        logs: Arc<LogRing>,
    ) -> Self {
        // The store may have been read already, and the first queue is drawn as the selected one.
        let first = snapshot.queues.first();
        Self {
            queue: first.map(|view| view.name.clone()),
            snapshot,
            is_frozen: false,
            settings,
            changed: BTreeSet::new(),
            size: (80, 24),
            screen,
            state: 0,
            filter: Filter::default(),
            group: None,
            open_trial: None,
            tried: None,
            places: Places::default(),
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
            sort: 0,
            reach: 1,
            is_by_handler: false,
            logs,
            guests_only: false,
            tabs: Vec::new(),
            rows: Cell::new(None),
            query: Query::Nothing,
        }
    }

    /// Where keys go while something lies on top.
    pub(super) fn scope_on_top(&self) -> Option<Scope> {
        if self.prompt.is_some() {
            return Some(Scope::Prompt);
        }
        let modal = self.modal.as_ref()?;
        Some(match modal {
            Modal::Help { .. } => Scope::Help,
            Modal::Confirm(_) => Scope::Confirm,
            Modal::Editor { .. } => Scope::Editor,
        })
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
        let rows = usize::from(rows.saturating_sub(others));
        rows.saturating_sub(self.screen.rows_above(self)).max(1)
    }

    /// How many lines can be selected; none while they are not known.
    #[must_use]
    pub fn line_count(&self) -> Option<usize> {
        self.screen.line_count(self)
    }

    /// What the selected line is about, to find it again after a change.
    #[must_use]
    pub fn selected_key(&self) -> Option<&str> {
        self.screen.line_key(self, self.selected)
    }

    /// Selects the line that is about this, if there is one.
    pub fn select_key(&mut self, key: &str) {
        let mut lines = 0..self.line_count().unwrap_or(0);
        let is_it = |line: &usize| self.screen.line_key(self, *line) == Some(key);
        self.selected = lines.find(is_it).unwrap_or(self.selected);
    }

    /// Opens one message.
    pub(super) fn open(&mut self, queue: QueueName, id: MessageId) {
        self.modal = None;
        self.opened = Some(Opened {
            queue,
            id,
            record: None,
            is_gone: false,
            end: None,
            ended: None,
            view: PayloadView::Json,
            scroll: 0,
        });
    }

    /// Shows a screen from its start.
    pub(super) fn show(&mut self, screen: &'static dyn Screen) {
        self.opened = None;
        self.group = None;
        self.open_trial = None;
        self.screen = screen;
        self.first_page();
        screen.refresh(self);
    }

    /// Goes to the start of the list.
    pub(super) fn first_page(&mut self) {
        self.selected = 0;
        self.offset = 0;
        self.marks.clear();
    }

    /// Goes through a list of so many lines, and from page to page.
    pub(super) fn navigate_list(&mut self, action: Action, lines: usize) {
        let page = self.list_rows();
        let last = lines.saturating_sub(1);
        let pages = self.records().filter(|_| self.open_trial.is_none());
        let more = pages.is_some_and(|(_, more, _)| more);
        match action {
            Action::Up if self.selected > 0 => self.selected -= 1,
            Action::Up if self.offset > 0 => {
                self.offset = self.offset.saturating_sub(page);
                self.selected = page - 1;
            }
            Action::Down if self.selected < last => self.selected += 1,
            Action::Down | Action::PageDown if more => {
                self.offset += page;
                self.selected = 0;
            }
            Action::PageUp if self.offset > 0 => self.offset = self.offset.saturating_sub(page),
            Action::PageUp => self.selected = self.selected.saturating_sub(page),
            Action::PageDown => self.selected = (self.selected + page).min(last),
            Action::Top => {
                self.selected = 0;
                self.offset = 0;
            }
            Action::Bottom => self.selected = last,
            _ => {}
        }
    }

    /// The line of the selected queue on the overview.
    #[must_use]
    pub fn selected_queue(&self) -> usize {
        let mut queues = self.snapshot.queues.iter();
        let is_selected = |queue: &QueueView| Some(&queue.name) == self.queue.as_ref();
        queues.position(is_selected).unwrap_or(0)
    }

    /// Notes where lines that can be selected are drawn: below so many rows of this place, from this line
    /// on.
    pub(super) fn note_rows(&self, area: Rect, head: u16, first: usize) {
        let head = head.min(area.height);
        let rows = Rect {
            y: area.y + head,
            height: area.height - head,
            ..area
        };
        self.rows.set(Some((rows, first)));
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

/// Where a text is scrolled to that was scrolled past so many lines; how many it has is not known here.
#[must_use]
pub(super) fn scrolled(scroll: usize, action: Action, page: usize) -> usize {
    match action {
        Action::Up => scroll.saturating_sub(1),
        Action::Down => scroll + 1,
        Action::PageUp => scroll.saturating_sub(page),
        Action::PageDown => scroll + page,
        Action::Top => 0,
        _ => usize::MAX / 2,
    }
}
