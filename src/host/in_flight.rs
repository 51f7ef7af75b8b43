//! What this host has in flight of one queue: every delivery from its reservation to the moment at which its
//! settlement is known or its lease is given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::message::{Claim, Delivery, MessageId, QueueName};
use crate::runtime::Handler;

/// A message that this host has in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlightDelivery {
    /// Its queue.
    pub queue: QueueName,
    /// The message.
    pub id: MessageId,
    /// 1 on the first delivery.
    pub attempt: u32,
    /// The number of its last attempt.
    pub attempts_max: u32,
    /// When it was reserved.
    pub since: Instant,
    /// When the lease expires at the earliest.
    pub lease_end: Instant,
    /// True once the handler has ended and the result is on its way to the store.
    pub finished: bool,
}

/// Names one delivery of the queue within this process.
pub(super) type InFlightId = u64;

/// One delivery in flight.
struct Entry {
    claim: Claim,
    attempt: u32,
    attempts_max: u32,
    /// When this attempt became due, if it waited for a time.
    due_at_ms: Option<u64>,
    /// When it was asked for.
    since: Instant,
    /// When the lease expires at the earliest, by this host's monotonic clock: counted from before
    /// the request that set it was sent.
    lease_end: Instant,
    /// When to renew it next.
    renew_at: Instant,
    /// Stops the handler, which is the other one; none before it has started.
    running: Option<(AbortHandle, Arc<Handler>)>,
    /// Notified when an operator wants the handler to stop.
    stop: Arc<Notify>,
    /// True once the handler has ended and the settlement is on its way.
    finished: bool,
}

impl Entry {
    /// Stops its handler; true if one ran.
    fn stop(&self) -> bool {
        if let Some((abort, _)) = &self.running
            && !self.finished
        {
            abort.abort();
        }
        !self.finished
    }
}

/// A delivery whose handler was stopped because the message is another's, or gone.
pub(super) struct Lost {
    pub id: MessageId,
    pub attempt: u32,
    pub due_at_ms: Option<u64>,
    pub since: Instant,
    /// None if it had not started.
    pub handler: Option<Arc<Handler>>,
}

/// The deliveries in flight. A std mutex: nothing is awaited while it is held.
#[derive(Default)]
pub(super) struct InFlight(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// The latest number given.
    latest: InFlightId,
    entries: HashMap<InFlightId, Entry>,
    /// How many of them have ended.
    ended: usize,
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a delivery whose lease was asked for at `asked_at`. Returns its name, and what tells
    /// the handler that an operator wants it to stop.
    pub(super) fn add(
        &self,
        delivery: &Delivery,
        asked_at: Instant,
        lease: Duration,
    ) -> (InFlightId, Arc<Notify>) {
        let mut table = self.lock();
        table.latest += 1;
        let id = table.latest;
        let stop = Arc::new(Notify::new());
        let entry = Entry {
            claim: delivery.claim.clone(),
            attempt: delivery.attempt,
            attempts_max: delivery.attempts_max,
            due_at_ms: delivery.due_at_ms,
            since: asked_at,
            lease_end: asked_at + lease,
            renew_at: asked_at + lease / 3,
            running: None,
            stop: Arc::clone(&stop),
            finished: false,
        };
        table.entries.insert(id, entry);
        (id, stop)
    }

    /// Notes the handler, and what stops it.
    pub(super) fn started(&self, id: InFlightId, abort: AbortHandle, handler: Arc<Handler>) {
        match self.lock().entries.get_mut(&id) {
            Some(entry) => entry.running = Some((abort, handler)),
            // It is settled or given up already.
            None => abort.abort(),
        }
    }

    /// Notes that the handler has ended. False when the delivery was given up meanwhile.
    pub(super) fn finished(&self, id: InFlightId) -> bool {
        let table = &mut *self.lock();
        let Some(entry) = table.entries.get_mut(&id) else {
            return false;
        };
        table.ended += usize::from(!std::mem::replace(&mut entry.finished, true));
        true
    }

    /// True until the delivery is settled or given up.
    pub(super) fn holds(&self, id: InFlightId) -> bool {
        self.lock().entries.contains_key(&id)
    }

    /// True while its lease ends later than this from now: a handler may begin.
    pub(super) fn has_time(&self, id: InFlightId, margin: Duration) -> bool {
        let limit = Instant::now() + margin;
        let table = self.lock();
        let entry = table.entries.get(&id);
        entry.is_some_and(|entry| entry.lease_end > limit)
    }

    /// Forgets a delivery that is settled.
    pub(super) fn remove(&self, id: InFlightId) {
        let mut table = self.lock();
        if let Some(entry) = table.entries.remove(&id) {
            table.ended -= usize::from(entry.finished);
            entry.stop();
        }
    }

    /// Forgets a delivery whose lease is lost, and stops its handler; none if none ran.
    pub(super) fn lose(&self, id: InFlightId) -> Option<Lost> {
        let mut table = self.lock();
        let entry = table.entries.remove(&id)?;
        table.ended -= usize::from(entry.finished);
        entry.stop().then(|| Lost {
            id: entry.claim.id,
            attempt: entry.attempt,
            due_at_ms: entry.due_at_ms,
            since: entry.since,
            handler: entry.running.map(|(_, handler)| handler),
        })
    }

    /// How many are in flight.
    pub(super) fn count(&self) -> usize {
        self.lock().entries.len()
    }

    /// How many handlers run, and how many results wait for the store.
    pub(super) fn running(&self) -> (usize, usize) {
        let table = self.lock();
        (table.entries.len() - table.ended, table.ended)
    }

    /// Up to `max` deliveries, those first that have been there longest.
    pub(super) fn longest(&self, max: usize, queue: &QueueName) -> Vec<InFlightDelivery> {
        let table = self.lock();
        // Numbers are given in turn.
        let mut ids: Vec<InFlightId> = table.entries.keys().copied().collect();
        ids.sort_unstable();
        ids.truncate(max);
        let view = |id: &InFlightId| {
            let entry = table.entries.get(id)?;
            Some(InFlightDelivery {
                queue: queue.clone(),
                id: entry.claim.id.clone(),
                attempt: entry.attempt,
                attempts_max: entry.attempts_max,
                since: entry.since,
                lease_end: entry.lease_end,
                finished: entry.finished,
            })
        };
        ids.iter().filter_map(view).collect()
    }

    /// Tells the handler of a message to stop. False when none runs.
    pub(super) fn stop(&self, id: &MessageId) -> bool {
        let table = self.lock();
        let mut entries = table.entries.values();
        let running = entries.find(|entry| entry.claim.id == *id && !entry.finished);
        running.inspect(|entry| entry.stop.notify_one()).is_some()
    }

    /// The deliveries whose lease is to be renewed: those of which a third is over, or all.
    pub(super) fn to_renew(&self, all: bool) -> Vec<(InFlightId, Claim)> {
        let now = Instant::now();
        let table = self.lock();
        let due = table
            .entries
            .iter()
            .filter(|(_, entry)| all || entry.renew_at <= now);
        due.map(|(id, entry)| (*id, entry.claim.clone())).collect()
    }

    /// Notes a renewal that was asked for at `asked_at`.
    pub(super) fn renewed(&self, id: InFlightId, asked_at: Instant, lease: Duration) {
        if let Some(entry) = self.lock().entries.get_mut(&id) {
            entry.lease_end = asked_at + lease;
            entry.renew_at = asked_at + lease / 3;
        }
    }

    /// Gives up every delivery whose lease expires within `margin`: its handler is
    /// stopped, so that the next delivery cannot overlap it. Returns those whose handlers ran.
    pub(super) fn give_up_ending(&self, margin: Duration) -> Vec<Claim> {
        let limit = Instant::now() + margin;
        self.take(|entry| entry.lease_end <= limit)
    }

    /// When the first of the leases expires.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let table = self.lock();
        table.entries.values().map(|entry| entry.lease_end).min()
    }

    /// Gives up every delivery whose handler still runs, for a host that stops.
    pub(super) fn give_up_running(&self) -> Vec<Claim> {
        self.take(|entry| !entry.finished)
    }

    fn take(&self, which: impl Fn(&Entry) -> bool) -> Vec<Claim> {
        let table = &mut *self.lock();
        let taken = table.entries.extract_if(|_, entry| which(entry));
        let stop = |(_, entry): (InFlightId, Entry)| {
            table.ended -= usize::from(entry.finished);
            entry.stop().then_some(entry.claim)
        };
        taken.filter_map(stop).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Token;

    fn claim(id: &str) -> Claim {
        Claim {
            id: id.into(),
            token: Token("3/".to_owned()),
        }
    }

    fn add(in_flight: &InFlight, id: &str, since: Instant) -> InFlightId {
        let delivery = Delivery {
            claim: claim(id),
            payload: None,
            headers: Vec::new(),
            attempt: 1,
            attempts_max: 4,
            due_at_ms: None,
            expired: false,
        };
        in_flight.add(&delivery, since, Duration::from_secs(9)).0
    }

    #[test]
    fn a_renewal_keeps_a_delivery_from_being_given_up() {
        let in_flight = InFlight::default();
        let lease = Duration::from_secs(9);
        let past = Instant::now().checked_sub(Duration::from_secs(8)).unwrap();
        let (kept, lost) = (add(&in_flight, "kept", past), add(&in_flight, "lost", past));
        assert_eq!(in_flight.to_renew(false).len(), 2);
        let margin = Duration::from_secs(2);
        assert!(!in_flight.has_time(kept, margin));
        in_flight.renewed(kept, Instant::now(), lease);
        assert!(in_flight.has_time(kept, margin) && !in_flight.has_time(lost, margin));
        assert_eq!(in_flight.to_renew(false), vec![(lost, claim("lost"))]);
        assert_eq!(in_flight.to_renew(true).len(), 2);
        assert_eq!(
            in_flight.give_up_ending(Duration::from_secs(2)),
            vec![claim("lost")]
        );
        assert_eq!(in_flight.count(), 1);
        assert!(!in_flight.finished(lost) && in_flight.finished(kept));
    }

    #[test]
    fn a_host_that_stops_gives_up_only_what_still_runs() {
        let in_flight = InFlight::default();
        let running = add(&in_flight, "running", Instant::now());
        let finished = add(&in_flight, "finished", Instant::now());
        in_flight.finished(finished);
        assert_eq!(in_flight.give_up_running(), vec![claim("running")]);
        assert_eq!((in_flight.count(), in_flight.running()), (1, (0, 1)));
        in_flight.remove(running);
        in_flight.remove(finished);
        assert_eq!(in_flight.count(), 0);
    }

    #[test]
    fn what_is_lost_is_told_once_and_only_if_it_ran() {
        let in_flight = InFlight::default();
        let running = add(&in_flight, "running", Instant::now());
        let finished = add(&in_flight, "finished", Instant::now());
        in_flight.finished(finished);
        let lost = in_flight.lose(running).unwrap();
        assert_eq!((lost.id.as_str(), lost.attempt), ("running", 1));
        assert!(in_flight.lose(running).is_none() && in_flight.lose(finished).is_none());
        assert_eq!((in_flight.count(), in_flight.running()), (0, (0, 0)));
    }

    #[test]
    fn only_a_handler_that_runs_can_be_stopped() {
        let in_flight = InFlight::default();
        add(&in_flight, "runs", Instant::now());
        let ended = add(&in_flight, "ended", Instant::now());
        in_flight.finished(ended);
        assert!(in_flight.stop(&"runs".into()));
        assert!(!in_flight.stop(&"ended".into()));
        let shown = in_flight.longest(1, &"q".parse().unwrap());
        assert_eq!((shown.len(), shown[0].id.as_str()), (1, "runs"));
    }
}
