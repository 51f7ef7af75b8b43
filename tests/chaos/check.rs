//! Reads a history and says what is wrong with it: each promise of `docs/guarantees.md` as a question to the
//! events.
//!
//! Judged are what producers were told, what handlers were seen to do (by the witness, from outside),
//! what hosts have logged, and what the store holds in the end.

mod limits;
mod tests;
mod times;

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::history::{Event, Limits, Outcome, Process, Verdict, What};

/// A host that was frozen needs so long to find out which of its leases are over.
const FINDS_OUT_US: u64 = 2_000_000;

/// A promise that was not kept.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub words: String,
    /// It shows as well when the machine stands still, whatever is tested: something was too late, or
    /// a lease seemed to be over too early.
    pub is_of_time: bool,
}

impl Violation {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            is_of_time: false,
        }
    }

    fn of_time(words: impl Into<String>) -> Self {
        Self {
            is_of_time: true,
            ..Self::new(words)
        }
    }
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// One run of a handler.
struct Run {
    us: u64,
    attempt: u32,
    by: Process,
    wall_ms: u64,
    verdict: Option<Verdict>,
    /// When it was answered or gone.
    ended_us: u64,
    is_open: bool,
    /// Its process was frozen, or got no processor, at some time while it ran, or just before.
    was_frozen: bool,
    /// Its process was told to stop while it ran, or before: it may be given back.
    was_stopped: bool,
}

/// Who sends a message.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Sender {
    #[default]
    Producer,
    /// Hosts, as the tick of a schedule.
    Schedule,
    /// The same after all was done: it may wait in the end.
    LateSchedule,
}

#[derive(Default)]
struct Message {
    digest: String,
    due_ms: u64,
    retries: u32,
    /// The due time that the store told.
    accepted: Option<u64>,
    payload_removed: bool,
    is_expired: bool,
    sender: Sender,
    key: usize,
    /// From when on it can be delivered, if it was accepted: event time and unix ms.
    available: Option<(u64, u64)>,
    runs: Vec<Run>,
    /// When a delivery was asked for, by whom, and as which attempt.
    reserved: Vec<(Process, u32, u64)>,
    settled: Vec<(u32, Outcome)>,
    /// Failed attempts, and the class of the last.
    dead: Option<(u32, String)>,
    left: Option<String>,
}

impl Message {
    /// False for one whose producer never heard of its acceptance, and that nobody has ever seen.
    fn was_there(&self) -> bool {
        self.accepted.is_some()
            || !self.runs.is_empty()
            || self.dead.is_some()
            || self.left.is_some()
    }

    /// When the process of a run asked for it: the last time before it ran, since what was given back comes
    /// again as the same attempt. None for a host that was killed before it said so.
    fn asked_at_ms(&self, run: &Run) -> Option<u64> {
        let asked = self.reserved.iter();
        asked
            .filter(|(by, attempt, at)| {
                *by == run.by && *attempt == run.attempt && *at <= run.wall_ms
            })
            .map(|(_, _, at)| *at)
            .max()
    }

    fn is_acked(&self) -> bool {
        self.was_there() && self.dead.is_none() && self.left.is_none()
    }
}

#[derive(Default)]
struct Checker<'e> {
    messages: HashMap<&'e str, Message>,
    runs: HashMap<u64, (&'e str, usize)>,
    frozen: HashSet<Process>,
    /// When those that were frozen went on.
    thawed: HashMap<Process, u64>,
    /// When they got no processor, from and to.
    starved: HashMap<Process, Vec<[u64; 2]>>,
    stopping: HashSet<Process>,
    limits: Option<Limits>,
    /// The slots of all hosts, if keys take turns.
    turns: Option<usize>,
    totals: Option<(u64, u64, u64)>,
    wrong: Vec<Violation>,
}

/// What is wrong with a trial of which these are all events, in words; nothing when it kept every
/// promise.
pub(crate) fn violations(events: &[Event]) -> Vec<Violation> {
    let mut checker = Checker::default();
    // Noticed when it is over, it counts from where it began.
    for event in events {
        if let What::Starved { by, for_us } = event.what {
            let times = [event.us.saturating_sub(for_us), event.us];
            checker.starved.entry(by).or_default().push(times);
        }
    }
    for event in events {
        checker.take(event);
    }
    checker.ticks_until_quiet(events);
    for (id, message) in &checker.messages {
        judge(id, message, &mut checker.wrong);
    }
    checker.conservation();
    checker.limits(events);
    times::drains_without_a_pause(events, &mut checker.wrong);
    times::works_again(events, &mut checker.wrong);
    checker.wrong.sort();
    checker.wrong
}

impl<'e> Checker<'e> {
    fn say(&mut self, event: &Event, mut violation: Violation) {
        let (seconds, us) = (event.us / 1_000_000, event.us % 1_000_000);
        violation
            .words
            .insert_str(0, &format!("at {seconds}.{us:06}: "));
        self.wrong.push(violation);
    }

    fn take(&mut self, event: &'e Event) {
        match &event.what {
            What::Sending {
                id,
                digest,
                due_ms,
                retries,
            } => {
                let message = self.messages.entry(id).or_default();
                message.digest.clone_from(digest);
                (message.due_ms, message.retries) = (*due_ms, *retries);
            }
            What::Accepted { id, due_ms } => {
                let message = self.messages.entry(id).or_default();
                message.accepted = Some(*due_ms);
                let left_ms = due_ms.saturating_sub(event.wall_ms);
                let at = (event.us + left_ms * 1000, event.wall_ms + left_ms);
                message.available = Some(at);
            }
            What::Run { .. } => self.begins(event),
            What::Answered { run, verdict } => self.ends(*run, event.us, Some(*verdict)),
            What::Gone { run } => self.ends(*run, event.us, None),
            What::Reserved {
                by,
                id,
                attempt,
                asked_at_ms,
            } => {
                let message = self.messages.entry(id).or_default();
                message.reserved.push((*by, *attempt, *asked_at_ms));
            }
            What::Settled {
                id,
                attempt,
                outcome,
                ..
            } => {
                if let Some(message) = self.messages.get_mut(&**id) {
                    message.settled.push((*attempt, *outcome));
                }
            }
            What::Frozen { by } => {
                self.frozen.insert(*by);
                self.open_runs(*by, |run| run.was_frozen = true);
            }
            What::Starved { by, .. } => self.open_runs(*by, |run| run.was_frozen = true),
            What::Thawed { by } => {
                self.frozen.remove(by);
                self.thawed.insert(*by, event.us);
            }
            What::Stopping { by } => {
                self.stopping.insert(*by);
                self.open_runs(*by, |run| run.was_stopped = true);
            }
            What::Died { by, status } => {
                let words = format!("{by:?} ended by itself: {status}");
                self.say(event, Violation::new(words));
            }
            _ => self.take_rest(event),
        }
    }

    /// What is known of messages and of the queue beforehand.
    fn take_rest(&mut self, event: &'e Event) {
        match &event.what {
            What::Expiring { id } => self.messages.entry(id).or_default().is_expired = true,
            What::Removed { id } => self.messages.entry(id).or_default().payload_removed = true,
            What::Keyed { id, key } => self.messages.entry(id).or_default().key = *key,
            What::Limits { limits } => self.limits = Some(*limits),
            What::Turns { slots } => self.turns = Some(*slots),
            What::Tick { id, digest, at_ms } => {
                let message = self.messages.entry(id).or_default();
                message.digest.clone_from(digest);
                (message.due_ms, message.retries) = (*at_ms, 1000);
                message.sender = Sender::Schedule;
            }
            _ => self.take_stock(event),
        }
    }

    /// Hosts have sent each tick until nothing went wrong any more, and may have sent those after it.
    fn ticks_until_quiet(&mut self, events: &[Event]) {
        let quiet = events.iter().find(|event| event.what == What::Quiet);
        let quiet_ms = quiet.map_or(0, |event| event.wall_ms);
        let messages = self.messages.values_mut();
        for tick in messages.filter(|message| message.sender == Sender::Schedule) {
            if tick.due_ms <= quiet_ms {
                tick.accepted = Some(tick.due_ms);
            } else {
                tick.sender = Sender::LateSchedule;
            }
        }
    }

    fn limits(&mut self, events: &[Event]) {
        let end_us = events.last().map_or(0, |event| event.us);
        if let Some(limits) = &self.limits {
            limits::hold(limits, &self.messages, events, &mut self.wrong);
        }
        if let Some(slots) = self.turns {
            limits::take_turns(slots, &self.messages, end_us, &mut self.wrong);
        }
    }

    /// What the store holds in the end.
    fn take_stock(&mut self, event: &'e Event) {
        match &event.what {
            What::Dead {
                id,
                attempts,
                class,
            } => {
                let message = self.messages.entry(id).or_default();
                message.dead = Some((*attempts, class.clone()));
            }
            What::Left { id, state } => {
                self.messages.entry(id).or_default().left = Some(state.clone());
            }
            What::Totals { sent, acked, dead } => self.totals = Some((*sent, *acked, *dead)),
            _ => {}
        }
    }

    fn open_runs(&mut self, by: Process, change: impl Fn(&mut Run)) {
        let runs = self.messages.values_mut().flat_map(|m| &mut m.runs);
        for run in runs.filter(|run| run.is_open && run.by == by) {
            change(run);
        }
    }

    fn begins(&mut self, event: &'e Event) {
        let What::Run {
            run,
            id,
            attempt,
            by,
            digest,
        } = &event.what
        else {
            return;
        };
        let mut wrong = Vec::new();
        let finds_out = |us: &u64| event.us < *us + FINDS_OUT_US;
        let (frozen, thawed) = (&self.frozen, &self.thawed);
        let is_starved = |times: &Vec<[u64; 2]>| {
            let is_one = |[from, to]: &[u64; 2]| event.us >= *from && finds_out(to);
            times.iter().any(is_one)
        };
        let is_frozen = |by| {
            frozen.contains(by)
                || thawed.get(by).is_some_and(finds_out)
                || self.starved.get(by).is_some_and(is_starved)
        };
        let was_frozen = is_frozen(by);
        let Some(message) = self.messages.get_mut(&**id) else {
            let words = format!("{id} runs, and nobody has sent it");
            return self.say(event, Violation::new(words));
        };
        if message.digest != *digest {
            let words = format!("{id} has another payload than was sent");
            wrong.push(Violation::new(words));
        }
        if *attempt > message.retries + 1 {
            let most = message.retries + 1;
            let words = format!("{id} runs as attempt {attempt} of {most}");
            wrong.push(Violation::new(words));
        }
        for other in &message.runs {
            // Of one that was frozen only the results count, which must change nothing.
            if other.is_open && !was_frozen && !is_frozen(&other.by) {
                wrong.push(Violation::of_time(format!(
                    "{id} runs twice at once: attempt {attempt} by {by:?}, {} by {:?}",
                    other.attempt, other.by
                )));
            }
            if other.attempt > *attempt && !was_frozen {
                let before = other.attempt;
                let words = format!("{id} runs as attempt {attempt} after {before}");
                wrong.push(Violation::of_time(words));
            }
            // Given back by a host that stops, it comes again as the same attempt.
            if other.attempt == *attempt && !other.was_stopped {
                let words = format!("{id} runs twice as attempt {attempt}");
                wrong.push(Violation::new(words));
            }
        }
        self.runs.insert(*run, (id, message.runs.len()));
        message.runs.push(Run {
            us: event.us,
            attempt: *attempt,
            by: *by,
            wall_ms: event.wall_ms,
            verdict: None,
            ended_us: event.us,
            is_open: true,
            was_frozen,
            was_stopped: self.stopping.contains(by),
        });
        for violation in wrong {
            self.say(event, violation);
        }
    }

    fn ends(&mut self, run: u64, us: u64, verdict: Option<Verdict>) {
        if let Some((id, index)) = self.runs.get(&run)
            && let Some(message) = self.messages.get_mut(id)
        {
            message.runs[*index].is_open = false;
            message.runs[*index].verdict = verdict;
            message.runs[*index].ended_us = us;
        }
    }

    /// Every message that was ever there is counted as sent, and as acked or dead, once.
    fn conservation(&mut self) {
        let Some((sent, acked, dead)) = self.totals else {
            return self.wrong.push(Violation::new("the totals are not known"));
        };
        let count = |which: fn(&Message) -> bool| {
            self.messages.values().filter(|m| which(m)).count() as u64
        };
        let seen = (
            count(Message::was_there),
            count(Message::is_acked),
            count(|m| m.dead.is_some()),
        );
        if (sent, acked, dead) != seen {
            self.wrong.push(Violation::new(format!(
                "the store counts {sent} sent, {acked} acked, {dead} dead; there were {seen:?}"
            )));
        }
    }
}

/// What must be true of one message in the end.
fn judge(id: &str, message: &Message, wrong: &mut Vec<Violation>) {
    times::wait_for_their_time(id, message, wrong);
    let mut say = |words: String| wrong.push(Violation::new(format!("{id} {words}")));
    if let Some(state) = message
        .left
        .as_ref()
        .filter(|_| message.sender != Sender::LateSchedule)
    {
        say(format!("is still {state}"));
    }
    if message.is_expired && !message.runs.is_empty() {
        say("runs although it has expired".to_owned());
    }
    let was_told = |verdict| message.runs.iter().any(|run| run.verdict == Some(verdict));
    if message.is_acked() && !was_told(Verdict::Ack) {
        say("is lost: it is gone, and no handler has acked it".to_owned());
    }
    if let Some((attempts, class)) = &message.dead {
        match class.as_str() {
            "message-expired" if message.is_expired => {}
            "message-expired" => say("is dead as expired, and had no expiry".to_owned()),
            "payload-missing" if message.payload_removed => {}
            "payload-missing" => say("lost its payload".to_owned()),
            "rejected" if was_told(Verdict::Reject) => {}
            "rejected" => say("is dead as rejected, and no handler has rejected it".to_owned()),
            "" => say("is dead without a reason".to_owned()),
            class if *attempts != message.retries + 1 => say(format!(
                "is dead ({class}) after {attempts} attempts of {}",
                message.retries + 1
            )),
            _ => {}
        }
    }
    let due_ms = message.accepted.unwrap_or(0).max(message.due_ms);
    for run in message.runs.iter().filter(|run| run.wall_ms < due_ms) {
        let early = due_ms - run.wall_ms;
        say(format!("ran {early} ms early, as attempt {}", run.attempt));
    }
    let took_effect = |(_, outcome): &&(u32, Outcome)| *outcome != Outcome::Refused;
    let mut settled: Vec<_> = message.settled.iter().filter(took_effect).collect();
    settled.sort_by_key(|(attempt, _)| *attempt);
    for (n, (attempt, outcome)) in settled.iter().enumerate() {
        if settled[..n].iter().any(|(before, _)| before == attempt) {
            say(format!("was settled twice as attempt {attempt}"));
        }
        if *outcome == Outcome::ToBeRetried {
            continue;
        }
        let later = message.runs.iter().map(|run| run.attempt).max();
        if later > Some(*attempt) || n + 1 < settled.len() {
            say(format!(
                "was {outcome:?} as attempt {attempt}, and went on as {later:?}"
            ));
        }
        if (*outcome == Outcome::Acked) != message.is_acked() {
            say(format!("was {outcome:?}, and is not so in the end"));
        }
    }
}
