//! The screen that people keep open.
//!
//! State, update and draw are apart: [`state`] is what is shown, [`update`] takes events in and says
//! what is to be done, [`draw`] draws. It gets snapshots and sends commands
//! ([`control`](crate::control)), and knows neither stores nor hosts.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossterm::event::{Event as TerminalEvent, KeyEventKind};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::control::{Channels, Snapshot};

mod bound;
mod draw;
mod history;
mod input;
pub mod keymap;
mod print;
mod prompt;
mod rates;
pub mod screens;
pub mod state;
mod terminal;
mod theme;
mod thread;
pub mod update;
mod widgets;

pub use bound::{NamedAction, actions, bind};
pub use draw::{draw, key_lines};
pub use keymap::{Key, Keys};
pub use print::{Picture, picture};
pub use prompt::{CommandParser, Named};
pub use rates::Per;
pub use state::{Fact, Settings, State};
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
    pub parser: Box<dyn CommandParser>,
    /// Where typed lines are kept from run to run; none to forget them.
    pub lines: Option<PathBuf>,
}

/// Runs the dashboard on the terminal until an operator leaves it, `end` comes or the terminal is gone,
/// which is an error. The terminal is given back as it was, also when this panics.
///
/// It blocks its thread while nobody reads the terminal: see [`DashboardThread`].
pub async fn run(
    setup: Setup,
    channels: Channels,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    run_until(setup, channels, end, Arc::default()).await
}

/// [`run`], with what may be done about output that is not read.
async fn run_until(
    setup: Setup,
    mut channels: Channels,
    end: impl Future<Output = ()>,
    unread: Arc<Unread>,
) -> io::Result<()> {
    let Setup {
        settings,
        parser,
        lines,
    } = setup;
    let first = Arc::clone(&channels.snapshots.borrow_and_update());
    let mut state = State::new(
        screens::TABS[0],
        settings,
        first,
        Arc::clone(&channels.logs),
    );
    state.lines = history::load(lines.as_deref());
    let mut suspensions = signal(SignalKind::from_raw(SIGTSTP))?;
    tokio::pin!(end);
    loop {
        let (mut screen, mut keys) = tokio::select! {
            biased;
            () = &mut end => return Ok(()),
            screen = terminal::Screen::take(Arc::clone(&unread), state.settings.mouse) => (screen?, input::Input::open()?),
        };
        state.size = terminal::size()?;
        let shown = Shown {
            screen: &mut screen,
            keys: &mut keys,
            suspensions: &mut suspensions,
        };
        let next = shown.until(
            &mut state,
            &mut channels,
            &mut end,
            (&*parser, lines.as_deref()),
        );
        let next = next.await?;
        drop((screen, keys));
        match next {
            Next::Leave => return Ok(()),
            Next::Stop => tokio::select! {
                biased;
                () = &mut end => return Ok(()),
                stopped = terminal::stop() => stopped?,
            },
        }
    }
}

/// What comes after the dashboard was shown.
enum Next {
    Leave,
    /// The process is stopped until the shell lets it go on.
    Stop,
}

/// The dashboard while the terminal is taken.
struct Shown<'a> {
    screen: &'a mut terminal::Screen,
    keys: &'a mut input::Input,
    suspensions: &'a mut Signal,
}

impl Shown<'_> {
    async fn until(
        self,
        state: &mut State,
        channels: &mut Channels,
        end: &mut (impl Future<Output = ()> + Unpin),
        (parser, lines): (&dyn CommandParser, Option<&Path>),
    ) -> io::Result<Next> {
        let mut resizes = signal(SignalKind::window_change())?;
        let mut clock = tokio::time::interval(TICK);
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut frame = Frames::default();
        frame.wanted();
        loop {
            let event = tokio::select! {
                // The end first, so that it is noticed after each frame. Then the frame, which comes
                // ten times a second at most, so that a flood of keys keeps none from being drawn.
                biased;
                () = &mut *end => return Ok(Next::Leave),
                _ = self.suspensions.recv() => return Ok(Next::Stop),
                () = frame.due() => {
                    self.screen.set_mouse(state.settings.mouse)?;
                    self.screen.draw(|frame| draw(frame, state, Instant::now()))?;
                    frame.drawn(state);
                    continue;
                }
                key = self.keys.next() => terminal_event(key?),
                _ = resizes.recv() => {
                    let (columns, rows) = terminal::size()?;
                    Some(Event::Resize(columns, rows))
                }
                changed = channels.snapshots.changed() => match changed {
                    Ok(()) => Some(Event::Snapshot(Arc::clone(&channels.snapshots.borrow_and_update()))),
                    Err(_) => return Ok(Next::Leave),
                },
                Some(notice) = channels.notices.recv() => Some(Event::Notice(notice)),
                _ = clock.tick() => frame.is_old(state, Instant::now()).then_some(Event::Tick),
            };
            let Some(event) = event else { continue };
            frame.wanted();
            for effect in state.update(event, parser, Instant::now()) {
                match effect {
                    Effect::Command(command) => {
                        // Its receiver ends with the process only.
                        let _ = channels.commands.send(command);
                    }
                    Effect::Copy(text) => terminal::Screen::copy(&text)?,
                    Effect::Remember(line) => history::add(lines, &line),
                    Effect::Suspend => return Ok(Next::Stop),
                    Effect::Redraw => self.screen.draw_all()?,
                    Effect::Leave => return Ok(Next::Leave),
                }
            }
        }
    }
}

/// What the terminal tells, as far as it matters here.
fn terminal_event(event: TerminalEvent) -> Option<Event> {
    match event {
        TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => Some(Event::Key(key)),
        TerminalEvent::Paste(text) => Some(Event::Paste(text)),
        TerminalEvent::Mouse(event) => Some(Event::Mouse(event)),
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
        state.is_stale(now) != self.was_stale
            || (age >= TIMED_FRAME && state.is_timed(now))
            || (state.screen.shows_log() && state.logs.added() != self.log_lines)
    }
}

/// The dashboard as it is opened on a snapshot. Its query is what it wants to see of the store.
#[must_use]
pub fn opened_on(settings: Settings, snapshot: Snapshot, size: (u16, u16)) -> State {
    let snapshot = Arc::new(snapshot);
    let mut state = State::new(screens::TABS[0], settings, snapshot, Arc::default());
    state.size = size;
    state.query = state.wanted_query();
    state
}
