//! The screen that people keep open.
//!
//! State, update and draw are apart: [`state`] is what is shown, [`update`] takes events in and says
//! what is to be done, [`draw`] draws. It gets snapshots and sends commands
//! ([`control`](crate::control)), and knows neither stores nor hosts.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossterm::event::{Event as TerminalEvent, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};

use crate::control::{Snapshot, Wires};

mod draw;
mod input;
pub mod keymap;
mod memory;
mod print;
mod prompt;
mod rates;
pub mod state;
mod terminal;
mod theme;
mod thread;
pub mod update;

pub use draw::{draw, key_lines};
pub use print::{Picture, picture};
pub use prompt::Grammar;
pub use state::{Settings, State};
use terminal::Unread;
pub use theme::Theme;
pub use thread::{DashboardEnd, DashboardThread};
use update::{Effect, Event};

/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(100);

/// How often what changes with time alone is drawn, and how often that is looked at.
const TIMED_FRAME: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(200);

/// The signal of Ctrl-Z when it comes from outside.
const SIGTSTP: i32 = rustix::process::Signal::TSTP.as_raw();

/// How a dashboard is run.
pub struct Setup {
    /// How it looks and what it may do.
    pub settings: Settings,
    /// What understands typed lines.
    pub grammar: Box<dyn Grammar>,
    /// Where typed lines are kept from run to run; none to forget them.
    pub lines: Option<PathBuf>,
}

/// Runs the dashboard on the terminal until an operator leaves it, `end` comes or the terminal is gone,
/// which is an error. The terminal is given back as it was, also when this panics.
///
/// It blocks its thread while nobody reads the terminal: see [`DashboardThread`].
pub async fn run(setup: Setup, wires: Wires, end: impl Future<Output = ()>) -> io::Result<()> {
    run_until(setup, wires, end, Arc::default()).await
}

/// [`run`], with what may be done about output that is not read.
async fn run_until(
    setup: Setup,
    mut wires: Wires,
    end: impl Future<Output = ()>,
    unread: Arc<Unread>,
) -> io::Result<()> {
    let Setup {
        settings,
        grammar,
        lines,
    } = setup;
    let first = Arc::clone(&wires.snapshots.borrow_and_update());
    let mut state = State::new(settings, first, Arc::clone(&wires.logs));
    state.lines = memory::load(lines.as_deref());
    let mut screen = terminal::Screen::take(unread)?;
    let mut keys = input::Input::open()?;
    let mut suspensions = signal(SignalKind::from_raw(SIGTSTP))?;
    let mut resizes = signal(SignalKind::window_change())?;
    state.size = terminal::size()?;
    let mut clock = tokio::time::interval(TICK);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut frame = Frames::default();
    frame.wanted();
    tokio::pin!(end);
    loop {
        let event = tokio::select! {
            // The end first: after each frame, however many are wanted, it is noticed.
            biased;
            () = &mut end => return Ok(()),
            key = keys.next() => terminal_event(key?),
            _ = resizes.recv() => Some(resized(terminal::size()?)),
            changed = wires.snapshots.changed() => match changed {
                Ok(()) => Some(Event::Snapshot(Arc::clone(&wires.snapshots.borrow_and_update()))),
                Err(_) => return Ok(()),
            },
            Some(notice) = wires.notices.recv() => Some(Event::Notice(notice)),
            _ = suspensions.recv() => {
                screen.suspend().await?;
                frame.wanted();
                Some(resized(terminal::size()?))
            }
            () = frame.due() => {
                screen.draw(|frame| draw(frame, &mut state, Instant::now()))?;
                frame.drawn(&state);
                continue;
            }
            _ = clock.tick() => {
                frame.is_old(&state, Instant::now()).then_some(Event::Tick)
            }
        };
        let Some(event) = event else { continue };
        frame.wanted();
        for effect in state.update(event, &*grammar, Instant::now()) {
            match effect {
                Effect::Command(command) => {
                    // Its receiver ends with the process only.
                    let _ = wires.commands.send(command);
                }
                Effect::Copy(text) => terminal::Screen::copy(&text)?,
                Effect::Remember(line) => memory::add(lines.as_deref(), &line),
                Effect::Suspend => screen.suspend().await?,
                Effect::Redraw => screen.draw_all()?,
                Effect::Leave => return Ok(()),
            }
        }
    }
}

fn resized((columns, rows): (u16, u16)) -> Event {
    Event::Resize(columns, rows)
}

/// What the terminal tells, as far as it matters here.
fn terminal_event(event: TerminalEvent) -> Option<Event> {
    match event {
        TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => Some(Event::Key(key)),
        TerminalEvent::Paste(text) => Some(Event::Paste(text)),
        _ => None,
    }
}

/// When the next frame is drawn: soon after something happened, at most ten times a second.
#[derive(Debug, Default)]
struct Frames {
    is_wanted: bool,
    last: Option<Instant>,
    log_lines: u64,
    was_stale: bool,
}

impl Frames {
    fn wanted(&mut self) {
        self.is_wanted = true;
    }

    /// Returns when a frame is to be drawn; never when none is wanted.
    async fn due(&self) {
        if !self.is_wanted {
            return std::future::pending().await;
        }
        if let Some(last) = self.last {
            tokio::time::sleep_until((last + FRAME).into()).await;
        }
    }

    fn drawn(&mut self, state: &State) {
        let now = Instant::now();
        self.is_wanted = false;
        self.last = Some(now);
        self.log_lines = state.logs.added();
        self.was_stale = state.is_stale(now);
    }

    /// True when the last frame no longer says how things stand, though nothing has happened.
    fn is_old(&self, state: &State, now: Instant) -> bool {
        let age = self
            .last
            .map_or(Duration::MAX, |last| now.saturating_duration_since(last));
        let shows_log = matches!(state.screen, state::Screen::Log | state::Screen::Overview);
        state.is_stale(now) != self.was_stale
            || (age >= TIMED_FRAME && state.is_timed(now))
            || (shows_log && state.logs.added() != self.log_lines)
    }
}

/// One frame of a snapshot, without a terminal.
#[must_use]
pub fn frame_of(settings: Settings, snapshot: Snapshot, size: (u16, u16)) -> Picture {
    let snapshot = Arc::new(snapshot);
    let mut state = State::new(settings, Arc::clone(&snapshot), Arc::default());
    state.size = size;
    state.queue = snapshot.queues.first().map(|queue| queue.name.clone());
    picture(&mut state, Instant::now())
}
