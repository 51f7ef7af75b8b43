//! What an operator would want to be told.

use std::time::{Duration, Instant};

use ratatui::style::Style;
use ratatui::text::Line;

use crate::control::{Filter, QueueView};
use crate::dashboard::keymap::Action;
use crate::dashboard::rates::{Flow, Rates};
use crate::dashboard::screens::{Dead, InFlight, Log, Messages, in_flight};
use crate::dashboard::state::{STATES, State};
use crate::dashboard::widgets::{oldest, rate_text, wait};
use crate::message::State as MessageState;
use crate::text::{printable, short_number};

/// A message that is ready for longer waits for a slot.
const WAITS_LONG: Duration = Duration::from_secs(30);

/// A message that is due for longer should have been moved by a host.
const OVERDUE: Duration = Duration::from_secs(5);

/// What a warning is about: where more of it is to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The messages that wait.
    Waiting,
    /// Dead letters by reason.
    Dead,
    /// What has run for longest.
    Longest,
    Log,
}

struct Warning {
    text: String,
    style: Style,
    cause: Cause,
}

/// The worst first.
pub(super) fn lines(state: &State, view: &QueueView, now: Instant) -> Vec<Line<'static>> {
    let found = all(state, view, now).into_iter();
    let line = |warning: Warning| Line::styled(format!(" ! {}", warning.text), warning.style);
    found.map(line).collect()
}

impl State {
    /// Goes to what the first warning is about; without one to the most frequent reason of dead letters.
    pub(in crate::dashboard) fn show_cause(&mut self, now: Instant) {
        let Some(view) = self.queue_view() else {
            return;
        };
        let counts = &view.overview.counts;
        let has_dead = counts.dead > 0;
        // Where those stand that wait for a host: due already, or not yet moved by one.
        let lists = [
            (MessageState::Ready, counts.ready),
            (MessageState::Retry, counts.retry),
        ];
        let found = lists.into_iter().find(|(_, count)| *count > 0);
        let waiting = found.map_or(MessageState::Pending, |(list, _)| list);
        let waiting = STATES
            .iter()
            .position(|state| *state == waiting)
            .unwrap_or(0);
        let first = all(self, view, now).first().map(|warning| warning.cause);
        match first.or(has_dead.then_some(Cause::Dead)) {
            None => self.say(
                "there is no warning, and there are no dead letters",
                false,
                now,
            ),
            Some(Cause::Waiting) => {
                self.state = waiting;
                self.show(&Messages);
            }
            Some(Cause::Dead) => {
                self.filter = Filter::default();
                self.show(&Dead);
                // The first line stands for all reasons.
                self.selected = 1;
            }
            Some(Cause::Longest) => {
                let longest = in_flight::longest(self);
                let longest = longest.map(|one| (one.queue.clone(), one.id.clone()));
                self.show(&InFlight);
                if let Some((queue, id)) = longest {
                    self.select_key(id.as_str());
                    self.open(queue, id);
                }
            }
            Some(Cause::Log) => self.show(&Log),
        }
    }
}

fn all(state: &State, view: &QueueView, now: Instant) -> Vec<Warning> {
    let theme = state.settings.theme;
    let warning = |style| move |(text, cause)| Warning { text, style, cause };
    let (bad, warn) = (warning(theme.bad()), warning(theme.warn()));
    let unserved = unserved(state, view, now).map(|text| bad((text, Cause::Waiting)));
    let mut found: Vec<Warning> = unserved.into_iter().collect();
    let report = view.report.as_ref();
    if let Some(reason) = report.and_then(|report| report.refusal.as_ref()) {
        let text = format!("the old handler goes on: {}", printable(reason));
        found.push(bad((text, Cause::Log)));
    }
    let rates = state.rates.get(&view.name);
    let dying = rates.and_then(|rates: &Rates| rates.now(Flow::Dead));
    if let Some(rate) = dying.filter(|rate| *rate > 0.0) {
        let text = format!(
            "{} messages a minute become dead letters: {} shows why",
            rate_text(rate * 60.0),
            state.key_of(Action::Cause)
        );
        found.push(bad((text, Cause::Dead)));
    }
    found.extend(others(state, view, now).into_iter().map(warn));
    found
}

/// Messages that nobody will handle.
fn unserved(state: &State, view: &QueueView, now: Instant) -> Option<String> {
    // A host in this process is seen by the store a moment after it began.
    if !view.hosts.is_empty() || view.report.is_some() {
        return None;
    }
    let overview = &view.overview;
    let counts = overview.counts;
    let now_ms = state.snapshot.now_ms(now);
    let overdue = overview.next_due_ms.and_then(|at| now_ms.checked_sub(at));
    let overdue = overdue
        .map(Duration::from_millis)
        .filter(|late| *late >= OVERDUE);
    let age = oldest(overview, now_ms).into_iter().chain(overdue).max();
    let waiting = counts.ready.saturating_add(counts.retry);
    let since = age.map_or(String::new(), |age| format!(" since {}", wait(age)));
    match (waiting, overdue) {
        (0, None) => None,
        (0, Some(_)) => Some(format!(
            "no host serves this queue: messages are overdue{since}"
        )),
        (waiting, _) => Some(format!(
            "no host serves this queue: {} messages wait{since}",
            short_number(waiting)
        )),
    }
}

fn others(state: &State, view: &QueueView, now: Instant) -> Vec<(String, Cause)> {
    let overview = &view.overview;
    let mut found = Vec::new();
    if overview.paused {
        let key = state.key_of(Action::Pause);
        let text = format!("the queue is paused: {key} lets it go on");
        found.push((text, Cause::Waiting));
    }
    if overview.counts.moving > 0 {
        let text = format!(
            "{} messages are on their way to or from another store: end it with `dqhost move`",
            short_number(overview.counts.moving)
        );
        found.push((text, Cause::Log));
    }
    let has_hosts = !view.hosts.is_empty() || view.report.is_some();
    let is_held = overview.paused || overview.limited > 0;
    let age = oldest(overview, state.snapshot.now_ms(now));
    if let Some(age) = age.filter(|age| *age > WAITS_LONG && !is_held && has_hosts) {
        found.push(waiting(state, view, &wait(age), now));
    }
    if let Some(late) = view.report.as_ref().map(|report| report.late)
        && late.count > 0
        && late.p50 > Duration::from_secs(5)
        && overview.counts.ready == 0
    {
        let text = "messages come late though none wait: is this host's clock right?";
        found.push((text.to_owned(), Cause::Log));
    }
    let host = state.snapshot.host.as_ref();
    if let Some(refused) = host.map(|host| host.summary.refused).filter(|n| *n > 0) {
        let text = format!(
            "{} calls of handlers were refused here: the log says which",
            short_number(refused)
        );
        found.push((text, Cause::Log));
    }
    found
}

/// Why messages wait for so long that are ready.
fn waiting(state: &State, view: &QueueView, age: &str, now: Instant) -> (String, Cause) {
    let free = free_slots(state, view);
    if free > 0 {
        let text = format!(
            "messages wait {age} while {} slots are free: the log says what hinders the host",
            short_number(free)
        );
        return (text, Cause::Log);
    }
    let (key, longest) = (state.key_of(Action::Cause), in_flight::longest(state));
    let found = view.report.as_ref().and_then(|report| report.slots);
    let text = match (longest, found) {
        (Some(one), None) => format!(
            "messages wait {age} for a slot: more slots, or {key} for what has run {}",
            in_flight::runs(one, now)
        ),
        (None, None) => {
            format!("messages wait {age} for a slot: more slots, hosts or a faster handler")
        }
        (Some(one), Some((_, reason))) => format!(
            "messages wait {age} for a slot ({}): more hosts, or {key} for what has run {}",
            reason.words(),
            in_flight::runs(one, now)
        ),
        (None, Some((_, reason))) => format!(
            "messages wait {age} for a slot ({}): more hosts, or a faster handler",
            reason.words()
        ),
    };
    (text, Cause::Longest)
}

/// Slots that no handler uses, of the hosts that serve the queue.
fn free_slots(state: &State, view: &QueueView) -> u64 {
    let own = state
        .snapshot
        .host
        .as_ref()
        .filter(|_| view.report.is_some());
    let own_id = own.map(|host| host.id.as_str());
    let own_free = own.map_or(0, |host| host.slots.saturating_sub(host.busy));
    // Those of other queues are none for this one.
    let found = view
        .report
        .as_ref()
        .and_then(|report| Some((report.slots?.0, report.running)));
    let own_free = found.map_or(own_free, |(slots, running)| slots.saturating_sub(running));
    let others = view.hosts.iter().map(|host| &host.info);
    let others = others.filter(|info| own_id != Some(info.id.as_str()));
    let free = others.map(|info| info.slots.saturating_sub(info.in_flight));
    free.fold(own_free, usize::saturating_add) as u64
}
