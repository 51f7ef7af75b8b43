//! Many hosts whose packets vanish: nobody is told, and when packets arrive again the old connections
//! stay dead.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::history::{Event, History, Process, What};
use crate::hosts::Crew;
use crate::place::Place;
use crate::plan::Shape;
use crate::support::{eventually, guest};

const HOSTS: usize = 50;

/// Longer than any time limit and any pause of a host.
const LASTS: Duration = Duration::from_secs(8);

/// Hosts work again within this.
const WORKS_WITHIN: Duration = Duration::from_secs(5);

/// Notes when each process is answered next.
fn watch(place: &Place, history: &Arc<History>) {
    for (host, door) in place.doors()[..HOSTS].iter().enumerate() {
        let (history, by) = (Arc::clone(history), Process { host, life: 0 });
        door.when_a_script_is_answered(move || history.note(What::Works { by }));
    }
}

/// Waits until so many have been answered in all; returns when each was the last time.
fn answered(history: &History, number: usize) -> Vec<u64> {
    eventually("all hosts work", || {
        let is_answer = |event: &Event| matches!(event.what, What::Works { .. });
        let events = history.events();
        let times: Vec<u64> = events
            .iter()
            .filter(|e| is_answer(e))
            .map(|e| e.us)
            .collect();
        (times.len() == number).then(|| times[number - HOSTS..].to_vec())
    })
}

#[test]
fn after_a_black_hole_all_hosts_work_soon_and_not_in_step() {
    let _machine = crate::alone();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chaos-hole.jsonl");
    let history = Arc::new(History::new(&path));
    let place = Arc::new(Place::redis(HOSTS));
    let at = Arc::clone(&place);
    let make = move |by: Process| {
        let handler = guest("noop");
        let args = [
            "--handler",
            handler.to_str().unwrap(),
            "--slots",
            "1",
            "--log-format",
            "json",
        ];
        at.command(by, &args.map(str::to_owned))
    };
    let shape = Shape {
        hosts: HOSTS,
        ..Shape::default()
    };
    let crew = Arc::new(Crew::new(Arc::clone(&history), &shape, Box::new(make)));
    let _end = (crew.end_with_this(), place.end_with_this());
    watch(&place, &history);
    crew.start_all();
    answered(&history, HOSTS);

    for door in place.doors() {
        door.begin_hole();
    }
    std::thread::sleep(LASTS);
    watch(&place, &history);
    let end = Instant::now();
    history.note(What::Back {
        processes: crew.awake(),
    });
    for door in place.doors() {
        door.end_hole();
    }
    let answered = answered(&history, 2 * HOSTS);
    let back = history.events().iter().rev().find_map(|event| {
        let is_back = matches!(event.what, What::Back { .. });
        is_back.then_some(event.us)
    });
    let longest = answered.iter().max().unwrap() - back.unwrap();
    // An idle host has two connections: one for its work, one that listens.
    let arrivals = eventually("all connections are there", || {
        let doors = place.doors()[..HOSTS].iter();
        let arrivals: Vec<_> = doors.map(|door| door.arrivals_since(end)).collect();
        arrivals.iter().all(|of| of.len() >= 2).then_some(arrivals)
    });
    let mut bins: BTreeMap<u128, usize> = BTreeMap::new();
    for at in arrivals.iter().flatten() {
        *bins.entry(at.as_millis() / 100).or_default() += 1;
    }
    let all: usize = bins.values().sum();
    println!(
        "the last worked after {} ms; connections in bins of 100 ms: {bins:?}",
        longest / 1000
    );
    assert!(u128::from(longest) <= WORKS_WITHIN.as_micros());
    assert!(bins.values().all(|number| number * 5 <= all), "{bins:?}");
}
