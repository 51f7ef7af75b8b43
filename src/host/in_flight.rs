//! What this host has in flight: every delivery from its reservation to the moment at which its
//! settlement is known or its lease is given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::monitor::InFlightDelivery;
use crate::message::{Claim, Delivery, MessageId, QueueName};

/// Names one delivery within this process.
pub(super) type InFlightId = u64;

/// One delivery in flight.
#[derive(Debug)]
struct Entry {
    /// Which of the host's queues.
    served: usize,
    claim: Claim,
    attempt: u32,
    attempts_max: u32,
    /// When it was asked for.
    since: Instant,
    /// When the lease expires at the earliest, by this host's monotonic clock: counted from before
    /// the request that set it was sent.
    lease_end: Instant,
    /// When to renew it next.
    renew_at: Instant,
    /// Stops the handler; none before it has started.
    abort: Option<AbortHandle>,
    /// Notified when an operator wants the handler to stop.
    stop: Arc<Notify>,
    /// True once the handler has ended and the settlement is on its way.
    finished: bool,
}

impl Entry {
    /// Stops its handler; true if one ran.
    fn stop(self) -> bool {
        if let Some(abort) = &self.abort
            && !self.finished
        {
            abort.abort();
        }
        !self.finished
    }
}

/// The deliveries in flight. A std mutex: nothing is awaited while it is held.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// The latest number given.
    latest: InFlightId,
    in_flight: HashMap<InFlightId, Entry>,
    /// Of each queue, how many of them run and how many have ended; the queues that none was of yet
    /// may be missing at the end.
    counts: Vec<(usize, usize)>,
}

impl Table {
    fn count(&mut self, served: usize) -> &mut (usize, usize) {
        if self.counts.len() <= served {
            self.counts.resize(served + 1, (0, 0));
        }
        &mut self.counts[served]
    }

    /// One that is not in the table any more.
    fn taken(&mut self, entry: &Entry) {
        let (running, ended) = self.count(entry.served);
        *(if entry.finished { ended } else { running }) -= 1;
    }
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a delivery whose lease was asked for at `asked_at`. Returns its name, and what tells
    /// the handler that an operator wants it to stop.
    pub(super) fn add(
        &self,
        served: usize,
        delivery: &Delivery,
        asked_at: Instant,
        lease: Duration,
    ) -> (InFlightId, Arc<Notify>) {
        let mut table = self.lock();
        table.latest += 1;
        let id = table.latest;
        table.count(served).0 += 1;
        let stop = Arc::new(Notify::new());
        let entry = Entry {
            served,
            claim: delivery.claim.clone(),
            attempt: delivery.attempt,
            attempts_max: delivery.attempts_max,
            since: asked_at,
            lease_end: asked_at + lease,
            renew_at: asked_at + lease / 3,
            abort: None,
            stop: Arc::clone(&stop),
            finished: false,
        };
        table.in_flight.insert(id, entry);
        (id, stop)
    }

    /// Notes what stops the handler.
    pub(super) fn started(&self, id: InFlightId, abort: AbortHandle) {
        match self.lock().in_flight.get_mut(&id) {
            Some(entry) => entry.abort = Some(abort),
            // It is settled or given up already.
            None => abort.abort(),
        }
    }

    /// Notes that the handler has ended. False when the delivery was given up meanwhile.
    pub(super) fn finished(&self, id: InFlightId) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.in_flight.get_mut(&id) else {
            return false;
        };
        if !std::mem::replace(&mut entry.finished, true) {
            let served = entry.served;
            let (running, ended) = table.count(served);
            *running -= 1;
            *ended += 1;
        }
        true
    }

    /// True until the delivery is settled or given up.
    pub(super) fn holds(&self, id: InFlightId) -> bool {
        self.lock().in_flight.contains_key(&id)
    }

    /// Forgets a delivery: settled, or its lease is lost. A handler that still runs is stopped; true
    /// if there was one.
    pub(super) fn remove(&self, id: InFlightId) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.in_flight.remove(&id) else {
            return false;
        };
        table.taken(&entry);
        entry.stop()
    }

    /// How many are in flight, of one queue or of all.
    pub(super) fn count(&self, served: Option<usize>) -> usize {
        let table = self.lock();
        let count = |(running, ended): &(usize, usize)| running + ended;
        match served {
            None => table.in_flight.len(),
            Some(served) => table.counts.get(served).map_or(0, count),
        }
    }

    /// What runs and what waits for the store, by queue.
    pub(super) fn running(&self) -> Running {
        Running(self.lock().counts.clone())
    }

    /// Up to `max` deliveries, those first that have been there longest.
    pub(super) fn longest(
        &self,
        max: usize,
        queue: impl Fn(usize) -> QueueName,
    ) -> Vec<InFlightDelivery> {
        let table = self.lock();
        // Numbers are given in turn.
        let mut ids: Vec<InFlightId> = table.in_flight.keys().copied().collect();
        ids.sort_unstable();
        ids.truncate(max);
        let view = |id: &InFlightId| {
            let entry = table.in_flight.get(id)?;
            Some(InFlightDelivery {
                queue: queue(entry.served),
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
    pub(super) fn stop(&self, served: usize, id: &MessageId) -> bool {
        let table = self.lock();
        let mut running = table
            .in_flight
            .values()
            .filter(|entry| entry.served == served && entry.claim.id == *id && !entry.finished);
        running
            .next()
            .inspect(|entry| entry.stop.notify_one())
            .is_some()
    }

    /// The deliveries of one queue whose lease is to be renewed.
    pub(super) fn to_renew(&self, served: usize) -> Vec<(InFlightId, Claim)> {
        let now = Instant::now();
        let table = self.lock();
        let due = table
            .in_flight
            .iter()
            .filter(|(_, f)| f.served == served && f.renew_at <= now);
        due.map(|(id, entry)| (*id, entry.claim.clone())).collect()
    }

    /// Notes a renewal that was asked for at `asked_at`.
    pub(super) fn renewed(&self, id: InFlightId, asked_at: Instant, lease: Duration) {
        if let Some(entry) = self.lock().in_flight.get_mut(&id) {
            entry.lease_end = asked_at + lease;
            entry.renew_at = asked_at + lease / 3;
        }
    }

    /// Gives up every delivery whose lease expires within `margin`: its handler is stopped, so that
    /// the next delivery cannot overlap it. Returns those whose handlers ran.
    pub(super) fn give_up_ending(&self, margin: Duration) -> Vec<(usize, Claim)> {
        let limit = Instant::now() + margin;
        self.take(|entry| entry.lease_end <= limit)
    }

    /// Gives up every delivery whose handler still runs, for a host that stops.
    pub(super) fn give_up_running(&self) -> Vec<(usize, Claim)> {
        self.take(|entry| !entry.finished)
    }

    fn take(&self, which: impl Fn(&Entry) -> bool) -> Vec<(usize, Claim)> {
        let mut table = self.lock();
        let extracted = table.in_flight.extract_if(|_, entry| which(entry));
        let taken: Vec<_> = extracted.collect();
        for (_, entry) in &taken {
            table.taken(entry);
        }
        let stop = |(_, entry): (InFlightId, Entry)| {
            let place = (entry.served, entry.claim.clone());
            entry.stop().then_some(place)
        };
        taken.into_iter().filter_map(stop).collect()
    }
}

/// How many handlers of each queue run, and how many of its results wait for the store.
pub(super) struct Running(Vec<(usize, usize)>);

impl Running {
    pub(super) fn of(&self, served: usize) -> (usize, usize) {
        self.0.get(served).copied().unwrap_or_default()
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
        };
        in_flight.add(0, &delivery, since, Duration::from_secs(9)).0
    }

    #[test]
    fn a_renewal_keeps_a_delivery_from_being_given_up() {
        let in_flight = InFlight::default();
        let lease = Duration::from_secs(9);
        let past = Instant::now().checked_sub(Duration::from_secs(8)).unwrap();
        let (kept, lost) = (add(&in_flight, "kept", past), add(&in_flight, "lost", past));
        assert_eq!(in_flight.to_renew(0).len(), 2);
        in_flight.renewed(kept, Instant::now(), lease);
        assert_eq!(in_flight.to_renew(0), vec![(lost, claim("lost"))]);
        assert_eq!(
            in_flight.give_up_ending(Duration::from_secs(2)),
            vec![(0, claim("lost"))]
        );
        assert_eq!(in_flight.count(None), 1);
        assert!(!in_flight.finished(lost) && in_flight.finished(kept));
    }

    #[test]
    fn a_host_that_stops_gives_up_only_what_still_runs() {
        let in_flight = InFlight::default();
        let running = add(&in_flight, "running", Instant::now());
        let finished = add(&in_flight, "finished", Instant::now());
        in_flight.finished(finished);
        assert_eq!(in_flight.give_up_running(), vec![(0, claim("running"))]);
        assert_eq!(in_flight.count(Some(0)), 1);
        in_flight.remove(running);
        in_flight.remove(finished);
        assert_eq!(in_flight.count(None), 0);
    }

    #[test]
    fn only_a_handler_that_runs_can_be_stopped() {
        let in_flight = InFlight::default();
        add(&in_flight, "runs", Instant::now());
        let ended = add(&in_flight, "ended", Instant::now());
        in_flight.finished(ended);
        assert!(in_flight.stop(0, &"runs".into()));
        assert!(!in_flight.stop(0, &"ended".into()) && !in_flight.stop(1, &"runs".into()));
        let shown = in_flight.longest(1, |_| "q".parse().unwrap());
        assert_eq!((shown.len(), shown[0].id.as_str()), (1, "runs"));
    }
}
