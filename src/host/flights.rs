//! What this host has in hand: every delivery from its reservation to the moment at which its
//! settlement is known or its lease is given up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::monitor::InHand;
use crate::message::{Claim, Delivery, MessageId, QueueName};

/// Names one delivery within this process.
pub(super) type FlightId = u64;

/// One delivery in hand.
#[derive(Debug)]
struct Flight {
    /// Which of the host's queues.
    lane: usize,
    claim: Claim,
    attempt: u32,
    attempts_max: u32,
    /// When it was asked for.
    since: Instant,
    /// When the lease ends at the earliest, by this host's monotonic clock: counted from before
    /// the request that set it was sent.
    lease_end: Instant,
    /// When to renew it next.
    renew_at: Instant,
    /// Stops the handler; none before it has started.
    abort: Option<AbortHandle>,
    /// Notified when a person wants the handler to stop.
    stop: Arc<Notify>,
    /// True once the handler has ended and the settlement is on its way.
    finished: bool,
}

impl Flight {
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

/// The deliveries in hand. A std mutex: nothing is awaited while it is held.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// The latest number given.
    latest: FlightId,
    flights: HashMap<FlightId, Flight>,
    /// Of each queue, how many of them run and how many have ended; the queues that none was of yet
    /// may be missing at the end.
    counts: Vec<(usize, usize)>,
}

impl Table {
    fn count(&mut self, lane: usize) -> &mut (usize, usize) {
        if self.counts.len() <= lane {
            self.counts.resize(lane + 1, (0, 0));
        }
        &mut self.counts[lane]
    }

    /// One that is not in the table any more.
    fn taken(&mut self, flight: &Flight) {
        let (running, ended) = self.count(flight.lane);
        *(if flight.finished { ended } else { running }) -= 1;
    }
}

impl Flights {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a delivery whose lease was asked for at `asked_at`. Returns its name, and what tells
    /// the handler that a person wants it to stop.
    pub(super) fn add(
        &self,
        lane: usize,
        delivery: &Delivery,
        asked_at: Instant,
        lease: Duration,
    ) -> (FlightId, Arc<Notify>) {
        let mut table = self.lock();
        table.latest += 1;
        let id = table.latest;
        table.count(lane).0 += 1;
        let stop = Arc::new(Notify::new());
        let flight = Flight {
            lane,
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
        table.flights.insert(id, flight);
        (id, stop)
    }

    /// Notes what stops the handler.
    pub(super) fn started(&self, id: FlightId, abort: AbortHandle) {
        match self.lock().flights.get_mut(&id) {
            Some(flight) => flight.abort = Some(abort),
            // It is settled or given up already.
            None => abort.abort(),
        }
    }

    /// Notes that the handler has ended. False when the delivery was given up meanwhile.
    pub(super) fn finished(&self, id: FlightId) -> bool {
        let mut table = self.lock();
        let Some(flight) = table.flights.get_mut(&id) else {
            return false;
        };
        if !std::mem::replace(&mut flight.finished, true) {
            let lane = flight.lane;
            let (running, ended) = table.count(lane);
            *running -= 1;
            *ended += 1;
        }
        true
    }

    /// True until the delivery is settled or given up.
    pub(super) fn holds(&self, id: FlightId) -> bool {
        self.lock().flights.contains_key(&id)
    }

    /// Forgets a delivery: settled, or its lease is lost. A handler that still runs is stopped; true
    /// if there was one.
    pub(super) fn remove(&self, id: FlightId) -> bool {
        let mut table = self.lock();
        let Some(flight) = table.flights.remove(&id) else {
            return false;
        };
        table.taken(&flight);
        flight.stop()
    }

    /// How many are in hand, of one queue or of all.
    pub(super) fn count(&self, lane: Option<usize>) -> usize {
        let table = self.lock();
        let count = |(running, ended): &(usize, usize)| running + ended;
        match lane {
            None => table.flights.len(),
            Some(lane) => table.counts.get(lane).map_or(0, count),
        }
    }

    /// What runs and what waits for the store, by queue.
    pub(super) fn running(&self) -> Running {
        Running(self.lock().counts.clone())
    }

    /// Up to `max` deliveries, those first that have been there longest.
    pub(super) fn longest(&self, max: usize, queue: impl Fn(usize) -> QueueName) -> Vec<InHand> {
        let table = self.lock();
        // Numbers are given in turn.
        let mut ids: Vec<FlightId> = table.flights.keys().copied().collect();
        ids.sort_unstable();
        ids.truncate(max);
        let view = |id: &FlightId| {
            let flight = table.flights.get(id)?;
            Some(InHand {
                queue: queue(flight.lane),
                id: flight.claim.id.clone(),
                attempt: flight.attempt,
                attempts_max: flight.attempts_max,
                since: flight.since,
                lease_end: flight.lease_end,
                finished: flight.finished,
            })
        };
        ids.iter().filter_map(view).collect()
    }

    /// Tells the handler of a message to stop. False when none runs.
    pub(super) fn stop(&self, lane: usize, id: &MessageId) -> bool {
        let table = self.lock();
        let mut running = table
            .flights
            .values()
            .filter(|flight| flight.lane == lane && flight.claim.id == *id && !flight.finished);
        running
            .next()
            .inspect(|flight| flight.stop.notify_one())
            .is_some()
    }

    /// The deliveries of one queue whose lease is to be renewed.
    pub(super) fn to_renew(&self, lane: usize) -> Vec<(FlightId, Claim)> {
        let now = Instant::now();
        let table = self.lock();
        let due = table
            .flights
            .iter()
            .filter(|(_, f)| f.lane == lane && f.renew_at <= now);
        due.map(|(id, flight)| (*id, flight.claim.clone()))
            .collect()
    }

    /// Notes a renewal that was asked for at `asked_at`.
    pub(super) fn renewed(&self, id: FlightId, asked_at: Instant, lease: Duration) {
        if let Some(flight) = self.lock().flights.get_mut(&id) {
            flight.lease_end = asked_at + lease;
            flight.renew_at = asked_at + lease / 3;
        }
    }

    /// Gives up every delivery whose lease ends within `margin`: its handler is stopped, so that
    /// the next delivery cannot overlap it. Returns those whose handlers ran.
    pub(super) fn give_up_ending(&self, margin: Duration) -> Vec<(usize, Claim)> {
        let limit = Instant::now() + margin;
        self.take(|flight| flight.lease_end <= limit)
    }

    /// Gives up every delivery whose handler still runs, for a host that stops.
    pub(super) fn give_up_running(&self) -> Vec<(usize, Claim)> {
        self.take(|flight| !flight.finished)
    }

    fn take(&self, which: impl Fn(&Flight) -> bool) -> Vec<(usize, Claim)> {
        let mut table = self.lock();
        let extracted = table.flights.extract_if(|_, flight| which(flight));
        let taken: Vec<_> = extracted.collect();
        for (_, flight) in &taken {
            table.taken(flight);
        }
        let stop = |(_, flight): (FlightId, Flight)| {
            let place = (flight.lane, flight.claim.clone());
            flight.stop().then_some(place)
        };
        taken.into_iter().filter_map(stop).collect()
    }
}

/// How many handlers of each queue run, and how many of its results wait for the store.
pub(super) struct Running(Vec<(usize, usize)>);

impl Running {
    pub(super) fn of(&self, lane: usize) -> (usize, usize) {
        self.0.get(lane).copied().unwrap_or_default()
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

    fn add(flights: &Flights, id: &str, since: Instant) -> FlightId {
        let delivery = Delivery {
            claim: claim(id),
            payload: None,
            headers: Vec::new(),
            attempt: 1,
            attempts_max: 4,
            due_at_ms: None,
        };
        flights.add(0, &delivery, since, Duration::from_secs(9)).0
    }

    #[test]
    fn a_renewal_keeps_a_delivery_from_being_given_up() {
        let flights = Flights::default();
        let lease = Duration::from_secs(9);
        let past = Instant::now().checked_sub(Duration::from_secs(8)).unwrap();
        let (kept, lost) = (add(&flights, "kept", past), add(&flights, "lost", past));
        assert_eq!(flights.to_renew(0).len(), 2);
        flights.renewed(kept, Instant::now(), lease);
        assert_eq!(flights.to_renew(0), vec![(lost, claim("lost"))]);
        assert_eq!(
            flights.give_up_ending(Duration::from_secs(2)),
            vec![(0, claim("lost"))]
        );
        assert_eq!(flights.count(None), 1);
        assert!(!flights.finished(lost) && flights.finished(kept));
    }

    #[test]
    fn a_host_that_stops_gives_up_only_what_still_runs() {
        let flights = Flights::default();
        let running = add(&flights, "running", Instant::now());
        let finished = add(&flights, "finished", Instant::now());
        flights.finished(finished);
        assert_eq!(flights.give_up_running(), vec![(0, claim("running"))]);
        assert_eq!(flights.count(Some(0)), 1);
        flights.remove(running);
        flights.remove(finished);
        assert_eq!(flights.count(None), 0);
    }

    #[test]
    fn only_a_handler_that_runs_can_be_stopped() {
        let flights = Flights::default();
        add(&flights, "runs", Instant::now());
        let ended = add(&flights, "ended", Instant::now());
        flights.finished(ended);
        assert!(flights.stop(0, &"runs".into()));
        assert!(!flights.stop(0, &"ended".into()) && !flights.stop(1, &"runs".into()));
        let shown = flights.longest(1, |_| "q".parse().unwrap());
        assert_eq!((shown.len(), shown[0].id.as_str()), (1, "runs"));
    }
}
