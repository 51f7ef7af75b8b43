//! What this host has in hand: every delivery from its reservation to the moment at which its
//! settlement is known or its lease is given up.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use crate::message::Claim;

/// Names one delivery within this process.
pub(super) type FlightId = u64;

/// One delivery in hand.
#[derive(Debug)]
struct Flight {
    /// Which of the host's queues.
    lane: usize,
    claim: Claim,
    /// When the lease ends at the earliest, by this host's monotonic clock: counted from before
    /// the request that set it was sent.
    lease_end: Instant,
    /// When to renew it next.
    renew_at: Instant,
    /// Stops the handler; none before it has started.
    abort: Option<AbortHandle>,
    /// True once the handler has ended and the settlement is on its way.
    finished: bool,
}

/// The deliveries in hand. A std mutex: nothing is awaited while it is held.
#[derive(Debug, Default)]
pub(super) struct Flights {
    table: Mutex<(FlightId, HashMap<FlightId, Flight>)>,
}

impl Flights {
    fn lock(&self) -> MutexGuard<'_, (FlightId, HashMap<FlightId, Flight>)> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a delivery whose lease was asked for at `asked_at`.
    pub(super) fn add(
        &self,
        lane: usize,
        claim: Claim,
        asked_at: Instant,
        lease: Duration,
    ) -> FlightId {
        let mut table = self.lock();
        table.0 += 1;
        let id = table.0;
        let flight = Flight {
            lane,
            claim,
            lease_end: asked_at + lease,
            renew_at: asked_at + lease / 3,
            abort: None,
            finished: false,
        };
        table.1.insert(id, flight);
        id
    }

    /// Notes what stops the handler.
    pub(super) fn started(&self, id: FlightId, abort: AbortHandle) {
        match self.lock().1.get_mut(&id) {
            Some(flight) => flight.abort = Some(abort),
            // It is settled or given up already.
            None => abort.abort(),
        }
    }

    /// Notes that the handler has ended. False when the delivery was given up meanwhile.
    pub(super) fn finished(&self, id: FlightId) -> bool {
        match self.lock().1.get_mut(&id) {
            Some(flight) => {
                flight.finished = true;
                true
            }
            None => false,
        }
    }

    /// True until the delivery is settled or given up.
    pub(super) fn holds(&self, id: FlightId) -> bool {
        self.lock().1.contains_key(&id)
    }

    /// Forgets a delivery: settled, or its lease is lost. A handler that still runs is stopped.
    pub(super) fn remove(&self, id: FlightId) {
        if let Some(Flight {
            abort: Some(abort),
            finished: false,
            ..
        }) = self.lock().1.remove(&id)
        {
            abort.abort();
        }
    }

    /// How many are in hand, of one queue or of all.
    pub(super) fn count(&self, lane: Option<usize>) -> usize {
        let table = self.lock();
        match lane {
            None => table.1.len(),
            Some(lane) => table
                .1
                .values()
                .filter(|flight| flight.lane == lane)
                .count(),
        }
    }

    /// How many handlers of one queue run, and how many of its results wait for the store.
    pub(super) fn running_and_unsettled(&self, lane: usize) -> (usize, usize) {
        let table = self.lock();
        let (mut running, mut unsettled) = (0, 0);
        for flight in table.1.values().filter(|flight| flight.lane == lane) {
            *(if flight.finished {
                &mut unsettled
            } else {
                &mut running
            }) += 1;
        }
        (running, unsettled)
    }

    /// The deliveries of one queue whose lease is to be renewed.
    pub(super) fn to_renew(&self, lane: usize) -> Vec<(FlightId, Claim)> {
        let now = Instant::now();
        let table = self.lock();
        let due = table
            .1
            .iter()
            .filter(|(_, f)| f.lane == lane && f.renew_at <= now);
        due.map(|(id, flight)| (*id, flight.claim.clone()))
            .collect()
    }

    /// Notes a renewal that was asked for at `asked_at`.
    pub(super) fn renewed(&self, id: FlightId, asked_at: Instant, lease: Duration) {
        if let Some(flight) = self.lock().1.get_mut(&id) {
            flight.lease_end = asked_at + lease;
            flight.renew_at = asked_at + lease / 3;
        }
    }

    /// Gives up every delivery whose lease ends within `margin`: its handler is stopped, so that
    /// the next delivery cannot overlap it.
    pub(super) fn give_up_ending(&self, margin: Duration) -> Vec<(usize, Claim)> {
        let limit = Instant::now() + margin;
        self.take(|flight| flight.lease_end <= limit)
    }

    /// Gives up every delivery whose handler still runs, for a host that stops.
    pub(super) fn give_up_running(&self) -> Vec<(usize, Claim)> {
        self.take(|flight| !flight.finished)
    }

    fn take(&self, which: impl Fn(&Flight) -> bool) -> Vec<(usize, Claim)> {
        let taken = self
            .lock()
            .1
            .extract_if(|_, flight| which(flight))
            .collect::<Vec<_>>();
        let stop = |(_, flight): (FlightId, Flight)| {
            if let Some(abort) = flight.abort {
                abort.abort();
            }
            (flight.lane, flight.claim)
        };
        taken.into_iter().map(stop).collect()
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

    #[test]
    fn a_renewal_keeps_a_delivery_from_being_given_up() {
        let flights = Flights::default();
        let lease = Duration::from_secs(9);
        let past = Instant::now().checked_sub(Duration::from_secs(8)).unwrap();
        let (kept, lost) = (
            flights.add(0, claim("kept"), past, lease),
            flights.add(0, claim("lost"), past, lease),
        );
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
        let lease = Duration::from_secs(9);
        let running = flights.add(1, claim("running"), Instant::now(), lease);
        let finished = flights.add(1, claim("finished"), Instant::now(), lease);
        flights.finished(finished);
        assert_eq!(flights.give_up_running(), vec![(1, claim("running"))]);
        assert_eq!(flights.count(Some(1)), 1);
        flights.remove(running);
        flights.remove(finished);
        assert_eq!(flights.count(None), 0);
    }
}
