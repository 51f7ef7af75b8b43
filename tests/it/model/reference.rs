//! The contract as plain data in memory: what every store must do, without one.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dqhost::message::expiry::EXPIRES_AT;
use dqhost::message::{Claim, MessageId, NewMessage, State};
use dqhost::store::{
    Advanced, Cancelled, Counts, FailedAt, FailedSample, First, Redrive, Settled, Totals,
};

/// From and to: a store's clock is read once within a call, and the caller does not see when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub from: u64,
    pub to: u64,
}

impl Span {
    /// So much later, rounded up by a store to at most a millisecond more.
    pub(crate) fn plus(self, by: Duration) -> Self {
        let ms = u64::try_from(by.as_millis()).unwrap();
        Self {
            from: self.from + ms,
            to: self.to + ms + 1,
        }
    }

    fn is_over(self, now: Self) -> bool {
        assert!(
            self.to <= now.from || self.from > now.to,
            "{self:?} may or may not be over at {now:?}"
        );
        self.to <= now.from
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub state: State,
    /// Due, end of the lease, or death.
    pub at: Option<Span>,
    /// When it became due, until it is delivered.
    pub due: Option<Span>,
    pub failed: u32,
    pub released: u32,
    pub retries_left: u32,
    pub payload: Vec<u8>,
    pub headers: Vec<(String, String)>,
    /// Classes, oldest first.
    pub history: Vec<String>,
    pub redrives: u32,
}

/// A claim as a store gave it out, with what it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub claim: Claim,
    pub delivery: (u32, u32),
}

#[derive(Debug, Clone)]
pub(crate) enum Settle {
    /// What is sent with it is another call.
    Ack,
    Nack(Option<Duration>),
    Reject,
}

/// When a failed message runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Now,
    In(Duration),
    Never,
}

#[derive(Debug, Default)]
pub(crate) struct Reference {
    pub messages: BTreeMap<MessageId, Message>,
    ready: VecDeque<MessageId>,
    retry: VecDeque<MessageId>,
    pub totals: Totals,
    pub paused: bool,
    pub hosts: BTreeMap<String, Span>,
    pub bucket: Bucket,
    /// Until when an id counts as sent, also if its message is gone.
    sent_until: BTreeMap<MessageId, Span>,
    /// The ids of ticks by their numbers.
    pub ticks: BTreeMap<usize, MessageId>,
}

/// What a rate of two an hour in bursts of two has left: a bucket that holds two tokens and gets one each
/// half an hour.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// How full it is: the ms in which so much comes.
    level: u64,
    at_ms: u64,
}

const TOKEN: u64 = 30 * 60 * 1000;

impl Default for Bucket {
    fn default() -> Self {
        Self {
            level: 2 * TOKEN,
            at_ms: 0,
        }
    }
}

impl Bucket {
    fn level(&self, at_ms: u64) -> u64 {
        (self.level + at_ms.saturating_sub(self.at_ms)).min(2 * TOKEN)
    }

    pub(crate) fn tokens(&self, at_ms: u64) -> usize {
        usize::try_from(self.level(at_ms) / TOKEN).unwrap()
    }

    pub(crate) fn take(&mut self, number: usize, at_ms: u64) {
        let taken = u64::try_from(number).unwrap() * TOKEN;
        self.level = self.level(at_ms).saturating_sub(taken);
        self.at_ms = at_ms;
    }
}

impl Reference {
    fn depth(&self, state: State) -> u64 {
        self.messages
            .values()
            .filter(|message| message.state == state)
            .count() as u64
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            pending: self.depth(State::Pending),
            ready: self.depth(State::Ready),
            unack: self.depth(State::Unack),
            retry: self.depth(State::Retry),
            dead: self.depth(State::Garbage) + self.depth(State::Dead),
            moving: 0,
            totals: self.totals,
        }
    }

    /// When the next pending message is due.
    pub(crate) fn next_due(&self) -> Option<Span> {
        let pending = self.messages.values();
        pending
            .filter(|message| message.state == State::Pending)
            .filter_map(|message| message.at)
            .min()
    }

    /// What has failed before; none while something is in garbage, which may be counted or not.
    pub(crate) fn failed(&self) -> Option<FailedSample> {
        if self.depth(State::Garbage) > 0 {
            return None;
        }
        let mut sample = FailedSample::default();
        let mut by_failed = BTreeMap::new();
        for message in self.messages.values() {
            if message.failed == 0 || message.state == State::Dead {
                continue;
            }
            sample.backing_off += u64::from(message.state == State::Pending);
            let at = by_failed.entry(message.failed).or_insert(FailedAt {
                failed: message.failed,
                count: 0,
                last: 0,
            });
            at.count += 1;
            at.last += u64::from(message.retries_left == 0);
        }
        sample.by_failed = by_failed.into_values().collect();
        Some(sample)
    }

    /// The ids of a state in the order in which they leave it; that of garbage is not promised.
    pub(crate) fn in_order(&self, state: State) -> Vec<MessageId> {
        match state {
            State::Ready => self.ready.iter().cloned().collect(),
            State::Retry => self.retry.iter().cloned().collect(),
            _ => {
                let mut found: Vec<(Option<Span>, MessageId)> = self
                    .messages
                    .iter()
                    .filter(|(_, message)| message.state == state)
                    .map(|(id, message)| (message.at, id.clone()))
                    .collect();
                found.sort();
                if state == State::Dead {
                    found.reverse();
                }
                found.into_iter().map(|(_, id)| id).collect()
            }
        }
    }

    /// Whether a send with a window finds this id.
    pub(crate) fn counts_as_sent(&self, id: &MessageId, now: Span) -> bool {
        let until = self.sent_until.get(id);
        self.messages.contains_key(id) || until.is_some_and(|until| !until.is_over(now))
    }

    /// Whether the message was accepted.
    pub(crate) fn send(&mut self, message: &NewMessage, delay: Duration, now: Span) -> bool {
        if self.messages.contains_key(&message.id) {
            return false;
        }
        let waits = !delay.is_zero();
        if !message.dedup_window.is_zero() {
            if self.counts_as_sent(&message.id, now) {
                return false;
            }
            let due = if waits { now.plus(delay) } else { now };
            let until = due.plus(message.dedup_window);
            self.sent_until.insert(message.id.clone(), until);
        }
        let state = if waits { State::Pending } else { State::Ready };
        self.messages.insert(
            message.id.clone(),
            Message {
                state,
                at: waits.then(|| now.plus(delay)),
                due: None,
                failed: 0,
                released: 0,
                retries_left: message.retries,
                payload: message.payload.clone(),
                headers: message.headers.clone(),
                history: Vec::new(),
                redrives: 0,
            },
        );
        if !waits {
            self.ready.push_back(message.id.clone());
        }
        self.totals.sent += 1;
        true
    }

    /// Those of a state whose time is over, in order.
    fn over(&self, state: State, now: Span) -> Vec<MessageId> {
        let mut ids = self.in_order(state);
        ids.retain(|id| self.messages[id].at.unwrap().is_over(now));
        ids
    }

    pub(crate) fn advance(&mut self, now: Span) -> Advanced {
        let promoted = self.promote(now);
        self.after_promotion(promoted, now)
    }

    pub(crate) fn promote(&mut self, now: Span) -> usize {
        let due = self.over(State::Pending, now);
        for id in &due {
            let message = self.messages.get_mut(id).unwrap();
            message.due = message.at.take();
            if message.failed > 0 {
                message.state = State::Retry;
                self.retry.push_back(id.clone());
            } else {
                message.state = State::Ready;
                self.ready.push_back(id.clone());
            }
        }
        due.len()
    }

    pub(crate) fn after_promotion(&mut self, promoted: usize, now: Span) -> Advanced {
        let ended = self.over(State::Unack, now);
        for id in &ended {
            self.fail(id, "lease-ended", Next::Now, now);
            self.totals.expired += 1;
        }
        let garbage = self.in_order(State::Garbage);
        for id in &garbage {
            let message = self.messages.get_mut(id).unwrap();
            message.state = State::Dead;
            message.at = Some(now);
            self.totals.dead += 1;
        }
        Advanced {
            promoted,
            adopted: 0,
            expired: ended.len(),
            dead_lettered: garbage.len(),
            more: false,
            waiting: !(self.ready.is_empty() && self.retry.is_empty()),
            next_in: None,
        }
    }

    /// When the next message is due or the next lease expires.
    pub(crate) fn next(&self) -> Option<Span> {
        self.next_but_for(&[])
    }

    /// The same, as if these were not there.
    pub(crate) fn next_but_for(&self, ids: &[MessageId]) -> Option<Span> {
        self.messages
            .iter()
            .filter(|(id, _)| !ids.contains(id))
            .map(|(_, message)| message)
            .filter(|message| matches!(message.state, State::Pending | State::Unack))
            .filter_map(|message| message.at)
            .min()
    }

    /// How many messages a reservation would find.
    pub(crate) fn waiting(&self) -> usize {
        if self.paused {
            0
        } else {
            self.ready.len() + self.retry.len()
        }
    }

    /// The messages that a reservation is to bring, in order.
    pub(crate) fn reserve(
        &mut self,
        max: usize,
        lease: Duration,
        first: First,
        now: Span,
    ) -> Vec<MessageId> {
        if self.paused {
            return Vec::new();
        }
        let (one, other) = match first {
            First::Ready => (&mut self.ready, &mut self.retry),
            First::Retry => (&mut self.retry, &mut self.ready),
        };
        let mut ids: Vec<MessageId> = one.drain(..max.min(one.len())).collect();
        ids.extend(other.drain(..(max - ids.len()).min(other.len())));
        for id in &ids {
            let message = self.messages.get_mut(id).unwrap();
            message.state = State::Unack;
            message.at = Some(now.plus(lease));
        }
        ids
    }

    /// What a delivery of a message is told by, among those of the same message.
    pub(crate) fn delivery(&self, id: &MessageId) -> (u32, u32) {
        let message = &self.messages[id];
        (message.failed, message.released)
    }

    fn is_held(&self, given: &Given) -> bool {
        self.messages.get(&given.claim.id).is_some_and(|message| {
            message.state == State::Unack && (message.failed, message.released) == given.delivery
        })
    }

    fn fail(&mut self, id: &MessageId, class: &str, next: Next, now: Span) {
        let message = self.messages.get_mut(id).unwrap();
        message.failed += 1;
        message.history.push(class.to_owned());
        message.due = None;
        message.at = None;
        if next == Next::Never || message.retries_left == 0 {
            message.state = State::Garbage;
            return;
        }
        message.retries_left -= 1;
        if let Next::In(delay) = next {
            message.state = State::Pending;
            message.at = Some(now.plus(delay));
        } else {
            message.state = State::Retry;
            self.retry.push_back(id.clone());
        }
    }

    pub(crate) fn settle(&mut self, given: &Given, how: &Settle, now: Span) -> Settled {
        if !self.is_held(given) {
            return Settled::LeaseLost;
        }
        let id = &given.claim.id;
        match how {
            Settle::Ack => {
                self.messages.remove(id);
                self.totals.acked += 1;
            }
            Settle::Nack(delay) => {
                self.fail(id, "nacked", delay.map_or(Next::Now, Next::In), now);
                self.totals.nacked += 1;
            }
            Settle::Reject => {
                self.fail(id, "nacked", Next::Never, now);
                self.totals.rejected += 1;
            }
        }
        Settled::Done
    }

    pub(crate) fn extend(&mut self, given: &Given, lease: Duration, now: Span) -> Settled {
        if !self.is_held(given) {
            return Settled::LeaseLost;
        }
        self.messages.get_mut(&given.claim.id).unwrap().at = Some(now.plus(lease));
        Settled::Done
    }

    pub(crate) fn release(&mut self, given: &Given) -> Settled {
        if !self.is_held(given) {
            return Settled::LeaseLost;
        }
        let id = given.claim.id.clone();
        let message = self.messages.get_mut(&id).unwrap();
        message.released += 1;
        message.at = None;
        message.due = None;
        if message.failed > 0 {
            message.state = State::Retry;
            self.retry.push_front(id);
        } else {
            message.state = State::Ready;
            self.ready.push_front(id);
        }
        self.totals.released += 1;
        Settled::Done
    }

    pub(crate) fn cancel(&mut self, id: &MessageId) -> Cancelled {
        match self.messages.get(id).map(|message| message.state) {
            Some(State::Pending | State::Ready | State::Retry) => {
                self.messages.remove(id);
                self.ready.retain(|other| other != id);
                self.retry.retain(|other| other != id);
                self.totals.cancelled += 1;
                Cancelled::Done
            }
            Some(State::Unack) => Cancelled::InFlight,
            _ => Cancelled::Unknown,
        }
    }

    pub(crate) fn kill(&mut self, id: &MessageId) -> Cancelled {
        match self.cancel(id) {
            Cancelled::InFlight => {
                self.messages.remove(id);
                self.totals.cancelled += 1;
                Cancelled::Killed
            }
            other => other,
        }
    }

    /// When the message is due from then on; none when it does not wait.
    pub(crate) fn reschedule(
        &mut self,
        id: &MessageId,
        delay: Duration,
        now: Span,
    ) -> Option<Span> {
        let message = self.messages.get_mut(id)?;
        let from = message.state;
        if !matches!(from, State::Pending | State::Ready | State::Retry) {
            return None;
        }
        if !delay.is_zero() {
            message.state = State::Pending;
            message.at = Some(now.plus(delay));
            message.due = None;
            self.ready.retain(|other| other != id);
            self.retry.retain(|other| other != id);
            return message.at;
        }
        if from == State::Pending {
            message.at = None;
            message.due = Some(now);
            if message.failed > 0 {
                message.state = State::Retry;
                self.retry.push_back(id.clone());
            } else {
                message.state = State::Ready;
                self.ready.push_back(id.clone());
            }
        }
        Some(now)
    }

    fn is_dead(&self, id: &MessageId) -> bool {
        self.messages
            .get(id)
            .is_some_and(|message| message.state == State::Dead)
    }

    /// How often it was redriven, if that is why it is not redriven once more.
    pub(crate) fn refuses_redrive(&self, id: &MessageId, how: Redrive) -> Option<u32> {
        let redrives = self.messages.get(id)?.redrives;
        (self.is_dead(id) && how.refuses(redrives)).then_some(redrives)
    }

    /// Puts the dead letter back under the id that the store chose. False when there is none.
    pub(crate) fn redrive(
        &mut self,
        id: &MessageId,
        new: Option<&MessageId>,
        retries: Option<u32>,
    ) -> bool {
        if !self.is_dead(id) {
            return false;
        }
        let (Some(dead), Some(new)) = (self.messages.remove(id), new) else {
            return true;
        };
        let budget = dead.failed - 1 + dead.retries_left;
        let mut headers = dead.headers.clone();
        // It need not begin by any time.
        headers.retain(|(name, _)| name != EXPIRES_AT);
        self.messages.insert(
            new.clone(),
            Message {
                state: State::Ready,
                at: None,
                due: None,
                failed: 0,
                released: 0,
                retries_left: retries.unwrap_or(budget),
                headers,
                history: vec![format!("redriven from {id}, {}", dead.redrives + 1)],
                redrives: dead.redrives + 1,
                ..dead
            },
        );
        self.ready.push_back(new.clone());
        self.totals.redriven += 1;
        true
    }

    /// Puts those of them that wait in line behind all others, in their order.
    pub(crate) fn send_to_the_end(&mut self, ids: &[MessageId]) {
        for line in [&mut self.ready, &mut self.retry] {
            for id in ids {
                if let Some(place) = line.iter().position(|other| other == id) {
                    line.remove(place);
                    line.push_back(id.clone());
                }
            }
        }
    }

    pub(crate) fn delete(&mut self, id: &MessageId) -> bool {
        let is_dead = self.is_dead(id);
        if is_dead {
            self.messages.remove(id);
            self.totals.deleted += 1;
        }
        is_dead
    }
}
