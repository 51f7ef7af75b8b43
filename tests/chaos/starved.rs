//! Sees which hosts get no processor: their threads could run, and others are in front of them. Such a host
//! is late as one that was frozen is. Linux may do it for seconds to a process that has a session of its own,
//! as those with a terminal have, while the machine is busy: it shares processors between sessions first.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::history::{History, Process, What};
use crate::hosts::Crew;

/// Shorter waits are as usual: a host counts a lease of two seconds as over 400 ms before its end.
const STARVED_MIN: Duration = Duration::from_millis(250);

/// How often it is looked for.
const TICK: Duration = Duration::from_millis(100);

/// Notes it until the crew is gone.
pub(crate) fn watch(crew: &Arc<Crew>, history: &Arc<History>) {
    let (crew, history) = (Arc::downgrade(crew), Arc::clone(history));
    std::thread::spawn(move || look(&crew, &history));
}

fn look(crew: &Weak<Crew>, history: &History) {
    let mut before: HashMap<(u32, u32), Duration> = HashMap::new();
    let mut looked_at = Instant::now();
    loop {
        std::thread::sleep(TICK);
        let Some(processes) = crew.upgrade().map(|crew| crew.processes()) else {
            return;
        };
        let passed = looked_at.elapsed();
        looked_at = Instant::now();
        let mut now = HashMap::new();
        for (by, pid) in processes {
            let waits = waits(pid);
            let longest = waits.iter().filter_map(|(thread, total)| {
                let before = before.get(&(pid, *thread))?;
                longer_than(*before, *total, passed)
            });
            if let Some(longest) = longest.max() {
                note(history, by, longest + passed);
            }
            now.extend(waits.into_iter().map(|(tid, total)| ((pid, tid), total)));
        }
        before = now;
    }
}

/// How long a thread had waited already when it was looked at before, if that is long. The system adds a wait
/// when it is over, and in the time that has passed since no thread can have waited for longer.
fn longer_than(before: Duration, now: Duration, passed: Duration) -> Option<Duration> {
    let waited = now.saturating_sub(before).saturating_sub(passed);
    (waited >= STARVED_MIN).then_some(waited)
}

fn note(history: &History, by: Process, waited: Duration) {
    let us = u64::try_from(waited.as_micros()).unwrap();
    history.note(What::Starved { by, for_us: us });
}

/// How long each thread of a process has waited for a processor since it began. Long handlers are none of
/// them: they are let run by what else the host does. Nothing on a system that does not tell.
fn waits(pid: u32) -> Vec<(u32, Duration)> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let wait = |thread: fs::DirEntry| {
        let name = fs::read_to_string(thread.path().join("comm")).ok()?;
        let counts = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let total = counts.split(' ').nth(1)?.parse().ok()?;
        let tid = thread.file_name().to_str()?.parse().ok()?;
        let is_long = name.starts_with("long handler");
        (!is_long).then_some((tid, Duration::from_nanos(total)))
    };
    threads.flatten().filter_map(wait).collect()
}

#[test]
fn a_wait_is_what_had_begun_before_it_was_looked_at() {
    let ms = Duration::from_millis;
    assert_eq!(longer_than(ms(50), ms(3150), ms(100)), Some(ms(3000)));
    assert_eq!(longer_than(ms(50), ms(400), ms(100)), Some(ms(250)));
    // It may have begun since.
    assert_eq!(longer_than(ms(50), ms(400), ms(101)), None);
    assert_eq!(longer_than(ms(50), ms(50), ms(0)), None);
}

#[test]
fn a_process_tells_how_long_its_threads_have_waited() {
    assert!(!cfg!(target_os = "linux") || !waits(std::process::id()).is_empty());
}
