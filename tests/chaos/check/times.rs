//! What has to begin, or to end, within some time, and not before it.

use std::collections::HashSet;

use super::{Message, Violation};
use crate::history::{Event, Verdict, What};
use crate::plan::{BACKOFF, BACKOFF_MAX, LEASE};

/// After the last fault nothing stands still for longer than two leases, the longest back-off, and this.
const STILL_US: u64 = 5_000_000;

/// A host works again so long after the store can be reached again.
const WORKS_WITHIN_US: u64 = 5_000_000;

/// Unless its connections are cut so often meanwhile: each time it tries again a little later.
const CUTS_EXCUSE: usize = 3;

/// Of a host that was killed before it logged when it asked for a delivery: the witness sees a run at most so
/// long after its lease began.
const SEEN_WITHIN_US: u64 = 1_000_000;

/// What follows a run begins after its lease, or after the delay of a nack.
pub(super) fn wait_for_their_time(id: &str, message: &Message, wrong: &mut Vec<Violation>) {
    let lease_us = u64::try_from(LEASE.as_micros()).unwrap();
    for pair in message.runs.windows(2) {
        let [before, after] = pair else { continue };
        // Given back, it comes again as the same attempt. What a frozen host begins is late.
        if before.attempt == after.attempt || before.was_frozen || after.was_frozen {
            continue;
        }
        let failed = matches!(before.verdict, Some(Verdict::Nack));
        let (early, what) = if failed {
            // A fifth less than the delay that the host is told, in which the jitter is.
            let doubled = BACKOFF.saturating_mul(1 << (before.attempt - 1).min(16));
            let delay = doubled.min(BACKOFF_MAX).mul_f64(0.8);
            let delay = u64::try_from(delay.as_micros()).unwrap();
            (after.us < before.ended_us + delay, "delay")
        } else if let Some(asked_at_ms) = message.asked_at_ms(before) {
            (after.wall_ms < asked_at_ms + lease_us / 1000, "lease")
        } else {
            (after.us < before.us + lease_us - SEEN_WITHIN_US, "lease")
        };
        if early {
            let from = if failed { before.ended_us } else { before.us };
            wrong.push(Violation::of_time(format!(
                "{id} ran as attempt {}, and {} ms later as {}, before its {what} can have ended",
                before.attempt,
                after.us.saturating_sub(from) / 1000,
                after.attempt
            )));
        }
    }
}

fn tick(event: &Event) -> Option<&str> {
    match &event.what {
        What::Tick { id, .. } => Some(id),
        _ => None,
    }
}

/// What is left after the last fault is done without a pause. How long that takes in all is the
/// machine's speed; one message that is stuck shows as a pause at the end.
pub(super) fn drains_without_a_pause(events: &[Event], wrong: &mut Vec<Violation>) {
    let at = |what: &What| events.iter().position(|e| e.what == *what);
    let limit = u64::try_from((LEASE * 2 + BACKOFF_MAX).as_micros()).unwrap() + STILL_US;
    let (Some(quiet), Some(drained)) = (at(&What::Quiet), at(&What::Drained)) else {
        return wrong.push(Violation::new("not everything ended"));
    };
    let ticks: HashSet<&str> = events.iter().filter_map(tick).collect();
    let is_work = |event: &&Event| match &event.what {
        What::Run { id, .. } | What::Settled { id, .. } => !ticks.contains(&**id),
        _ => false,
    };
    let ends = [&events[quiet], &events[drained]];
    let work = events[quiet..drained].iter().filter(is_work);
    let mut moments: Vec<u64> = work.chain(ends).map(|event| event.us).collect();
    moments.sort_unstable();
    let pauses = moments.windows(2).map(|pair| pair[1] - pair[0]);
    if let Some(longest) = pauses.max().filter(|longest| *longest > limit) {
        wrong.push(Violation::of_time(format!(
            "after the last fault nothing ended for {} ms while something was left, not {} at most",
            longest / 1000,
            limit / 1000
        )));
    }
}

/// Whoever can reach the store again works within seconds, unless something else keeps it from that.
pub(super) fn works_again(events: &[Event], wrong: &mut Vec<Violation>) {
    for (index, event) in events.iter().enumerate() {
        let What::Back { processes } = &event.what else {
            continue;
        };
        let window = || {
            events[index + 1..]
                .iter()
                .take_while(|e| e.us <= event.us + WORKS_WITHIN_US)
        };
        let is_whole = events[index..]
            .last()
            .is_some_and(|e| e.us > event.us + WORKS_WITHIN_US);
        for process in processes {
            let is_settled = |e: &Event| match &e.what {
                What::Works { by }
                | What::Ended { by }
                | What::Stopping { by }
                | What::Frozen { by } => by == process,
                What::Away { host } => host.is_none_or(|host| host == process.host),
                _ => false,
            };
            let is_cut = |e: &&Event| e.what == What::Cut { host: process.host };
            let is_excused = window().filter(is_cut).count() >= CUTS_EXCUSE;
            if is_whole && !is_excused && !window().any(is_settled) {
                wrong.push(Violation::of_time(format!(
                    "{process:?} does not work 5 s after the store came back at {} ms",
                    event.us / 1000
                )));
            }
        }
    }
}
