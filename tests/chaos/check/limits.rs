//! Limits over all hosts, and keys that take turns.

use std::collections::{BTreeMap, HashMap};

use super::{Message, Violation};
use crate::history::{Event, Limits, Per, Verdict, What};
use crate::plan::LEASE;

/// A message that its key does not hold back waits at most so long for others.
const WAITS_MAX_US: u64 = 4_000_000;

/// So long after its lease, what a killed host had is in line again.
const FOUND_US: u64 = 500_000;

/// The times in a history are whole milliseconds.
const ROUNDING_MS: u64 = 2;

pub(super) fn hold(
    limits: &Limits,
    messages: &HashMap<&str, Message>,
    events: &[Event],
    wrong: &mut Vec<Violation>,
) {
    let end_us = events.last().map_or(0, |event| event.us);
    let gone = events
        .iter()
        .filter(|event| matches!(event.what, What::Ended { .. }));
    let gone_us: Vec<u64> = gone.map(|event| event.us).collect();
    let mut keys: BTreeMap<usize, Vec<(&str, &Message)>> = BTreeMap::new();
    for (id, message) in messages {
        let key = match limits.per {
            Per::Queue => 0,
            Per::Key => message.key,
        };
        keys.entry(key).or_default().push((id, message));
    }
    for (key, messages) in &keys {
        keeps_to_the_rate(limits, *key, messages, wrong);
        runs_no_more(limits, *key, messages, wrong);
        if limits.per == Per::Key {
            waits_for_no_other(limits, *key, messages, (end_us, &gone_us), wrong);
        }
    }
}

/// A delivery is somewhere between the request of its host and the begin of its run. In no time there are more
/// that can only be within it than the rate and the burst allow.
fn keeps_to_the_rate(
    limits: &Limits,
    key: usize,
    messages: &[(&str, &Message)],
    wrong: &mut Vec<Violation>,
) {
    let mut spans: Vec<(u64, u64)> = messages
        .iter()
        .flat_map(|(_, message)| message.runs.iter().map(move |run| (message, run)))
        .filter_map(|(message, run)| Some((message.asked_at_ms(run)?, run.wall_ms)))
        .collect();
    spans.sort_unstable_by_key(|(_, to)| *to);
    for (from, _) in &spans {
        let mut number = 0;
        for (_, to) in spans.iter().filter(|(asked, _)| asked >= from) {
            number += 1;
            let ms = to - from + ROUNDING_MS;
            let most = limits.burst + limits.rate * ms / 1000;
            if number > most {
                let words =
                    format!("{number} of key {key} began in {ms} ms, by the rate {most} at most");
                return wrong.push(Violation::new(words));
            }
        }
    }
}

fn lease_us() -> u64 {
    u64::try_from(LEASE.as_micros()).unwrap()
}

/// When how many more run, or fewer, by event time. What a killed host had counts for `more_us` longer.
fn changes(messages: &[(&str, &Message)], more_us: u64, end_us: u64) -> Vec<(u64, i64)> {
    let runs = messages.iter().flat_map(|(_, message)| &message.runs);
    let mut changes: Vec<(u64, i64)> = runs
        .filter(|run| !run.was_frozen)
        .flat_map(|run| {
            let ended_us = match run.verdict {
                _ if run.is_open => end_us,
                Some(_) => run.ended_us,
                None => run.ended_us + more_us,
            };
            [(run.us, 1), (ended_us, -1)]
        })
        .collect();
    // Ends come before begins of the same moment.
    changes.sort_unstable();
    changes
}

fn runs_no_more(
    limits: &Limits,
    key: usize,
    messages: &[(&str, &Message)],
    wrong: &mut Vec<Violation>,
) {
    let mut running = 0;
    for (us, change) in changes(messages, 0, u64::MAX) {
        running += change;
        let most = limits.running;
        if running > i64::try_from(most).unwrap() {
            let ms = us / 1000;
            return wrong.push(Violation::of_time(format!(
                "at {ms} ms {running} of key {key} run at once, and {most} may"
            )));
        }
    }
}

/// The times in which as many run as may.
fn full(limits: &Limits, messages: &[(&str, &Message)], end_us: u64) -> Vec<(u64, u64)> {
    let most = i64::try_from(limits.running).unwrap();
    let (mut running, mut since, mut full) = (0, None, Vec::new());
    for (us, change) in changes(messages, lease_us() + FOUND_US, end_us) {
        running += change;
        match since {
            None if running >= most => since = Some(us),
            Some(from) if running < most => {
                full.push((from, us));
                since = None;
            }
            _ => {}
        }
    }
    full.extend(since.map(|from| (from, u64::MAX)));
    full
}

/// The messages of a key wait while as many of them run as may, and for nothing else. Those that a killed host
/// had do not wait.
fn waits_for_no_other(
    limits: &Limits,
    key: usize,
    messages: &[(&str, &Message)],
    (end_us, gone_us): (u64, &[u64]),
    wrong: &mut Vec<Violation>,
) {
    let full = full(limits, messages, end_us);
    for (id, message) in messages.iter().filter(|(_, m)| !m.is_expired) {
        let Some((from, _)) = message.available else {
            continue;
        };
        let to = message.runs.first().map_or(end_us, |run| run.us).max(from);
        let held = full.iter().map(|(begin, end)| {
            let (begin, end) = (*begin.max(&from), *end.min(&to));
            end.saturating_sub(begin)
        });
        // A host may be killed between its reservation and the begin of the run.
        let unseen = message.runs.first().map_or(0, |run| run.attempt - 1);
        let killed = gone_us.iter().filter(|us| (from..to).contains(us)).count() as u64;
        let leased = killed.min(u64::from(unseen)) * (lease_us() + FOUND_US);
        let waited = (to - from).saturating_sub(held.sum::<u64>() + leased);
        if waited > WAITS_MAX_US {
            wrong.push(Violation::of_time(format!(
                "{id} of key {key} waited for {} ms while fewer of its key ran than may: it waits for another key",
                waited / 1000
            )));
        }
    }
}

/// Key 0 has most of the messages. While one of another key waits, no more of it are begun than there are turns
/// of those ahead, and as many as had slots before.
pub(super) fn take_turns(
    slots: usize,
    messages: &HashMap<&str, Message>,
    end_us: u64,
    wrong: &mut Vec<Violation>,
) {
    let began_us = |message: &Message| message.runs.first().map_or(end_us, |run| run.us);
    // A rejected or failed one comes back by itself, and is not counted.
    let large: Vec<(u64, u64)> = messages
        .values()
        .filter(|message| message.key == 0)
        .filter_map(|message| {
            let first = message.runs.first()?;
            let is_once = first.verdict == Some(Verdict::Ack);
            Some((message.asked_at_ms(first)?, first.us)).filter(|_| is_once)
        })
        .collect();
    for (id, message) in messages.iter().filter(|(_, m)| m.key > 0 && !m.is_expired) {
        let Some((since_us, from_ms)) = message.available else {
            continue;
        };
        let to_us = began_us(message);
        let is_ahead = |other: &&Message| {
            let available = other.available.is_some_and(|(us, _)| us <= since_us);
            other.key == message.key && available && began_us(other) >= since_us
        };
        // With itself.
        let turns = messages.values().filter(is_ahead).count();
        let before = large
            .iter()
            .filter(|(asked_ms, began_us)| *asked_ms > from_ms && *began_us < to_us)
            .count();
        let most = 2 * turns + 4 * slots;
        if before > most {
            // What is due later is in line when a host has looked.
            wrong.push(Violation::of_time(format!(
                "{id} of key {} had to let {before} of another key go first, {most} at most",
                message.key
            )));
        }
    }
}
