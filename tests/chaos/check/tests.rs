//! The checker against small histories that break one promise each.

use std::time::Duration;

use super::violations;
use crate::history::{Event, Limits, Outcome, Per, Process, Verdict, What};

const A: Process = Process { host: 0, life: 0 };
const B: Process = Process { host: 1, life: 0 };

fn sending(id: &str, retries: u32) -> What {
    What::Sending {
        id: id.to_owned(),
        digest: "d".to_owned(),
        due_ms: 0,
        retries,
    }
}

fn accepted(id: &str) -> What {
    What::Accepted {
        id: id.to_owned(),
        due_ms: 0,
    }
}

fn run(run: u64, id: &str, attempt: u32, by: Process) -> What {
    What::Run {
        run,
        id: id.to_owned(),
        attempt,
        by,
        digest: "d".to_owned(),
    }
}

fn answered(run: u64, verdict: Verdict) -> What {
    What::Answered { run, verdict }
}

fn settled(id: &str, attempt: u32, outcome: Outcome) -> What {
    What::Settled {
        by: A,
        id: id.to_owned(),
        attempt,
        outcome,
    }
}

fn dead(id: &str, attempts: u32, class: &str) -> What {
    What::Dead {
        id: id.to_owned(),
        attempts,
        class: class.to_owned(),
    }
}

fn totals(sent: u64, acked: u64, dead: u64) -> What {
    What::Totals { sent, acked, dead }
}

/// The events, a second of the clock and a millisecond of the day apart; then everything is quiet and
/// drained.
fn judged(events: Vec<What>) -> Vec<String> {
    judged_apart(events, 1_000_000)
}

fn judged_apart(events: Vec<What>, us: u64) -> Vec<String> {
    words(&apart(events, us))
}

fn apart(events: Vec<What>, us: u64) -> Vec<Event> {
    let end = [What::Quiet, What::Drained];
    let all = events.into_iter().chain(end).zip(1..);
    all.map(|(what, ms)| Event {
        us: ms * us,
        wall_ms: ms,
        what,
    })
    .collect()
}

fn words(events: &[Event]) -> Vec<String> {
    let violations = violations(events).into_iter();
    violations.map(|violation| violation.words).collect()
}

/// This is wrong with it.
fn finds(words: &str, events: Vec<What>) {
    let wrong = judged(events);
    assert!(
        wrong.iter().any(|violation| violation.contains(words)),
        "{words:?} is not among {wrong:#?}"
    );
}

/// A message that runs once and is acked.
fn good() -> Vec<What> {
    vec![
        sending("m", 1),
        accepted("m"),
        run(0, "m", 1, A),
        answered(0, Verdict::Ack),
        settled("m", 1, Outcome::Acked),
        totals(1, 1, 0),
    ]
}

fn good_but(index: usize, what: What) -> Vec<What> {
    let mut events = good();
    events[index] = what;
    events
}

fn good_and(index: usize, more: impl IntoIterator<Item = What>) -> Vec<What> {
    let mut events = good();
    events.splice(index..index, more);
    events
}

#[test]
fn nothing_is_wrong_with_what_is_promised() {
    assert_eq!(judged(good()), Vec::<String>::new());
    // An answer that was lost: another attempt.
    let again = [
        sending("m", 1),
        run(0, "m", 1, A),
        answered(0, Verdict::Ack),
        accepted("m"),
        run(1, "m", 2, B),
        settled("m", 1, Outcome::Refused),
        answered(1, Verdict::Nack),
        settled("m", 2, Outcome::Dead),
        dead("m", 2, "nack"),
        totals(1, 0, 1),
    ];
    assert_eq!(judged(again.to_vec()), Vec::<String>::new());
    // Given back by a host that stops.
    let back = [
        What::Stopping { by: A },
        What::Gone { run: 0 },
        run(1, "m", 1, B),
        answered(1, Verdict::Ack),
    ];
    let mut events = good_and(3, back);
    events.remove(7);
    assert_eq!(judged(events), Vec::<String>::new());
    // One whose producer never knew, and that never came.
    assert_eq!(
        judged(good_and(0, [sending("other", 1)])),
        Vec::<String>::new()
    );
}

#[test]
fn each_broken_promise_is_found() {
    finds("is lost", good_but(3, answered(0, Verdict::Nack)));
    finds(
        "is lost",
        vec![sending("m", 1), accepted("m"), totals(1, 1, 0)],
    );
    finds("there were", good_but(5, totals(1, 0, 0)));
    finds("there were", good_but(5, totals(2, 1, 0)));
    finds("nobody has sent it", good_but(2, run(0, "other", 1, A)));
    finds("attempt 3 of 2", good_but(2, run(0, "m", 3, A)));
    let left = What::Left {
        id: "m".to_owned(),
        state: "retry".to_owned(),
    };
    finds("is still retry", good_and(5, [left]));
    let other = What::Run {
        run: 0,
        id: "m".to_owned(),
        attempt: 1,
        by: A,
        digest: "other".to_owned(),
    };
    finds("another payload", good_but(2, other));
    let due_ms = 1000;
    let id = "m".to_owned();
    finds(
        "ran 997 ms early",
        good_but(1, What::Accepted { id, due_ms }),
    );
    let status = "signal: 6".to_owned();
    finds(
        "ended by itself",
        good_and(5, [What::Died { by: A, status }]),
    );
}

#[test]
fn runs_that_overlap_are_found_unless_one_was_frozen() {
    let beside = [run(1, "m", 2, B), answered(1, Verdict::Ack)];
    finds("runs twice at once", good_and(3, beside.clone()));
    let frozen = [What::Frozen { by: A }, What::Thawed { by: A }];
    let events = [good()[..3].to_vec(), frozen.to_vec(), beside.to_vec()].concat();
    let end = [
        answered(0, Verdict::Ack),
        settled("m", 2, Outcome::Acked),
        settled("m", 1, Outcome::Refused),
        totals(1, 1, 0),
    ];
    let events = [events, end.to_vec()].concat();
    assert_eq!(judged_apart(events.clone(), 100_000), Vec::<String>::new());
    // It had the time to find out that its lease was over.
    let wrong = judged_apart(events.clone(), 2_000_000);
    assert!(wrong[0].contains("runs twice at once"), "{wrong:?}");
    // The late result took effect.
    let mut stale = events;
    stale[9] = settled("m", 1, Outcome::Acked);
    finds("and went on as Some(2)", stale);
}

#[test]
fn what_a_host_without_a_processor_begins_is_late() {
    let late = |by| {
        let mut events = good_and(4, [run(1, "m", 1, by), answered(1, Verdict::Ack)]);
        events[2] = run(0, "m", 2, B);
        events[6] = settled("m", 2, Outcome::Acked);
        events.insert(7, settled("m", 1, Outcome::Refused));
        events
    };
    let after = |times: [u64; 2]| {
        let [noticed, for_us] = times;
        let mut events = apart(late(A), 3_000_000);
        let at = events.partition_point(|event| event.us <= noticed);
        let what = What::Starved { by: A, for_us };
        let (us, wall_ms) = (noticed, 0);
        events.insert(at, Event { us, wall_ms, what });
        let words = violations(&events).into_iter().map(|one| one.words);
        words.collect::<Vec<_>>()
    };
    finds("runs as attempt 1 after 2", late(A));
    // The late run begins at 15 s: in that time, a moment after it, before it and long after it.
    let is_excused = |times| !after(times).iter().any(|w| w.contains("attempt 1 after 2"));
    assert!(is_excused([15_500_000, 1_000_000]));
    assert!(is_excused([14_900_000, 1_000_000]));
    assert!(!is_excused([17_000_000, 1_000_000]));
    assert!(!is_excused([12_900_000, 1_000_000]));
}

#[test]
fn what_a_slow_machine_can_do_is_told_apart() {
    let are_of_time = |events| -> Vec<bool> {
        let violations = violations(&apart(events, 1_000_000));
        violations.iter().map(|one| one.is_of_time).collect()
    };
    let beside = [run(1, "m", 2, B), answered(1, Verdict::Ack)];
    assert!(are_of_time(good_and(3, beside)).contains(&true));
    let lost = good_but(3, answered(0, Verdict::Nack));
    assert_eq!(are_of_time(lost), [false]);
}

#[test]
fn what_comes_again_before_its_lease_can_have_ended_is_found() {
    let again = [run(1, "m", 2, B), answered(1, Verdict::Ack)];
    let mut events = good_and(4, again);
    events[6] = settled("m", 2, Outcome::Acked);
    let words = "2 ms later as 2, before its lease can have ended";
    let wrong = judged_apart(events.clone(), 1000);
    assert!(wrong.len() == 1 && wrong[0].contains(words), "{wrong:?}");
    // After a nack it may, but not before its delay.
    events[3] = answered(0, Verdict::Nack);
    assert_eq!(judged_apart(events.clone(), 10_000), Vec::<String>::new());
    let wrong = judged_apart(events, 1000);
    assert!(
        wrong.len() == 1 && wrong[0].contains("before its delay"),
        "{wrong:?}"
    );
}

#[test]
fn a_lease_counts_from_when_it_was_asked_for_and_not_from_when_its_run_was_seen() {
    let again = [run(1, "m", 2, B), answered(1, Verdict::Ack)];
    let mut all = good_and(4, again);
    all[6] = settled("m", 2, Outcome::Acked);
    // The witness sees the second run at 10,005 ms of the day.
    for (asked_at_ms, is_found) in [(8005, false), (8006, true)] {
        let reserved = What::Reserved {
            by: A,
            id: "m".to_owned(),
            attempt: 1,
            asked_at_ms,
        };
        // It may come late, as the line of a log.
        let events = [all.clone(), vec![reserved]].concat();
        for us in [1000, 2_000_000] {
            let mut events = apart(events.clone(), us);
            for event in &mut events {
                event.wall_ms += 10_000;
            }
            let wrong = words(&events);
            let found = wrong.iter().any(|one| one.contains("before its lease"));
            assert!(
                found == is_found && wrong.len() == usize::from(found),
                "{wrong:?}"
            );
        }
    }
}

#[test]
fn what_ends_ends_once() {
    finds(
        "settled twice",
        good_and(5, [settled("m", 1, Outcome::Acked)]),
    );
    let again = [run(1, "m", 2, B), answered(1, Verdict::Ack)];
    finds("and went on as Some(2)", good_and(5, again));
    let same = [run(1, "m", 1, B), answered(1, Verdict::Ack)];
    finds("runs twice as attempt 1", good_and(4, same));
    finds("is not so in the end", good_and(5, [dead("m", 2, "nack")]));
    finds("as attempt 1 after 2", {
        let mut events = good_but(2, run(0, "m", 2, A));
        events.splice(4..4, [run(1, "m", 1, B), answered(1, Verdict::Ack)]);
        events
    });
}

#[test]
fn a_dead_letter_needs_a_reason() {
    let dies = |attempts, class| {
        let mut events = good_but(3, answered(0, Verdict::Nack));
        events[4] = dead("m", attempts, class);
        events[5] = totals(1, 0, 1);
        events
    };
    finds("after 1 attempts of 2", dies(1, "nack"));
    finds("no handler has rejected", dies(1, "rejected"));
    finds("lost its payload", dies(1, "payload-missing"));
    finds("without a reason", dies(2, ""));
    assert_eq!(judged(dies(2, "lease-ended")), Vec::<String>::new());
}

#[test]
fn what_has_expired_is_dead_and_never_runs() {
    let expiring = || What::Expiring { id: "m".to_owned() };
    finds("runs although it has expired", good_and(1, [expiring()]));
    let dead_of = |class| dead("m", 1, class);
    let kept = |class| {
        vec![
            sending("m", 3),
            expiring(),
            accepted("m"),
            settled("m", 1, Outcome::Dead),
            dead_of(class),
            totals(1, 0, 1),
        ]
    };
    assert_eq!(judged(kept("message-expired")), Vec::<String>::new());
    finds("after 1 attempts of 4", kept("nacked"));
    let mut never = kept("message-expired");
    never.remove(1);
    finds("had no expiry", never);
}

#[test]
fn what_takes_too_long_is_found() {
    let at = |seconds: f64, what| Event {
        us: u64::try_from(Duration::from_secs_f64(seconds).as_micros()).unwrap(),
        wall_ms: 1000,
        what,
    };
    let late = |end: f64, events: Vec<Event>| {
        let start = [at(0.0, totals(0, 0, 0))];
        let end = [at(20.0, What::Quiet), at(end, What::Drained)];
        words(&[&start[..], &events, &end].concat())
    };
    assert_eq!(late(21.0, Vec::new()), Vec::<String>::new());
    assert!(late(35.0, Vec::new())[0].contains("nothing ended for 15000 ms"));
    // A machine that takes its time is no fault, and one message that is stuck is.
    let slow = |until: u32| {
        let works =
            (4..until / 5).map(|n| at(f64::from(n * 5), settled("x", n, Outcome::ToBeRetried)));
        let start = [at(0.0, totals(0, 0, 0)), at(20.0, What::Quiet)];
        let events = start
            .into_iter()
            .chain(works)
            .chain([at(60.0, What::Drained)]);
        words(&events.collect::<Vec<_>>())
    };
    assert_eq!(slow(60), Vec::<String>::new());
    assert!(slow(45)[0].contains("nothing ended for 20000 ms"));
    let back = || at(1.0, What::Back { processes: vec![A] });
    assert!(late(21.0, vec![back()])[0].contains("does not work"));
    assert!(late(21.0, vec![back(), at(6.5, What::Works { by: A })])[0].contains("does not work"));
    for excuse in [
        What::Works { by: A },
        What::Ended { by: A },
        What::Frozen { by: A },
        What::Away { host: None },
        What::Away { host: Some(0) },
    ] {
        let excused = late(21.0, vec![back(), at(5.5, excuse)]);
        assert_eq!(excused, Vec::<String>::new());
    }
    let cuts = |number| (0..number).map(|_| at(5.5, What::Cut { host: 0 }));
    let cut = |number| late(21.0, [back()].into_iter().chain(cuts(number)).collect());
    assert_eq!((cut(2).len(), cut(3).len()), (1, 0));
    let other = at(5.5, What::Away { host: Some(1) });
    assert!(late(21.0, vec![back(), other])[0].contains("does not work"));
}

/// Limits that only one of them holds anything back by.
fn limits(per: Per, rate: u64, running: usize) -> What {
    What::Limits {
        limits: Limits {
            per,
            rate,
            burst: rate,
            running,
        },
    }
}

fn keyed(id: &str, key: usize) -> What {
    What::Keyed {
        id: id.to_owned(),
        key,
    }
}

fn reserved(id: &str, by: Process, asked_at_ms: u64) -> What {
    What::Reserved {
        by,
        id: id.to_owned(),
        attempt: 1,
        asked_at_ms,
    }
}

/// Two messages of these keys that run at once, and this before.
fn two_at_once(keys: [usize; 2], before: What) -> Vec<What> {
    let mut events = vec![before];
    for (id, key) in ["m", "n"].into_iter().zip(keys) {
        events.extend([sending(id, 1), keyed(id, key), accepted(id)]);
    }
    events.extend([
        reserved("m", A, 7),
        run(0, "m", 1, A),
        reserved("n", B, 8),
        run(1, "n", 1, B),
        answered(0, Verdict::Ack),
        answered(1, Verdict::Ack),
        totals(2, 2, 0),
    ]);
    events
}

#[test]
fn a_rate_and_what_runs_at_once_are_counted_for_each_key_or_for_all() {
    for (limits, words) in [
        (limits(Per::Queue, 1, 9), "by the rate 1 at most"),
        (
            limits(Per::Queue, 9, 1),
            "2 of key 0 run at once, and 1 may",
        ),
    ] {
        finds(words, two_at_once([0, 1], limits));
    }
    for (limits, words) in [
        (limits(Per::Key, 1, 9), "2 of key 3 began"),
        (limits(Per::Key, 9, 1), "2 of key 3 run at once"),
    ] {
        finds(words, two_at_once([3, 3], limits.clone()));
        let apart = judged_apart(two_at_once([3, 4], limits), 1000);
        assert_eq!(apart, Vec::<String>::new());
    }
}

#[test]
fn a_key_waits_while_it_is_full_and_for_nothing_else() {
    let waits = |key, seconds, attempt, killed: &[What]| {
        let mut events = vec![limits(Per::Key, 9, 1)];
        for (id, key) in [("m", 0), ("n", key)] {
            events.extend([sending(id, 1), keyed(id, key), accepted(id)]);
        }
        events.push(run(0, "m", 1, A));
        events.extend((0..seconds).map(|_| What::Fault {
            name: "a second goes by".to_owned(),
        }));
        events.extend_from_slice(killed);
        events.extend([
            answered(0, Verdict::Ack),
            run(1, "n", attempt, A),
            answered(1, Verdict::Ack),
            totals(2, 2, 0),
        ]);
        events
    };
    finds("of key 1 waited for", waits(1, 5, 1, &[]));
    assert_eq!(judged(waits(0, 5, 1, &[])), Vec::<String>::new());
    // Its first attempt was reserved by a host that was killed before the run began.
    let killed = [What::Ended { by: B }];
    finds("of key 1 waited for", waits(1, 2, 1, &killed));
    finds("of key 1 waited for", waits(1, 3, 2, &[]));
    assert_eq!(judged(waits(1, 2, 2, &killed)), Vec::<String>::new());
}

#[test]
fn a_key_lets_no_more_go_first_than_there_are_turns() {
    let ahead = |larges: usize| {
        let names: Vec<String> = (0..larges).map(|n| format!("large-{n}")).collect();
        let mut events = vec![What::Turns { slots: 0 }, sending("m", 1), keyed("m", 1)];
        events.push(accepted("m"));
        for name in &names {
            events.extend([sending(name, 1), accepted(name)]);
        }
        // Asked for after the small one was accepted.
        let all = names.iter().map(String::as_str).chain(["m"]);
        for (run_id, id) in (0..).zip(all) {
            events.extend([
                reserved(id, A, 5),
                run(run_id, id, 1, A),
                answered(run_id, Verdict::Ack),
            ]);
        }
        let number = larges as u64 + 1;
        events.push(totals(number, number, 0));
        judged_apart(events, 1)
    };
    assert_eq!(ahead(2), Vec::<String>::new());
    let wrong = ahead(3);
    assert!(
        wrong[0].contains("had to let 3 of another key go first, 2 at most"),
        "{wrong:?}"
    );
}

#[test]
fn a_tick_is_sent_unless_it_comes_after_the_end() {
    let tick = |at_ms| What::Tick {
        id: "tick".to_owned(),
        digest: "d".to_owned(),
        at_ms,
    };
    finds("tick is lost", good_and(0, [tick(3)]));
    let left = What::Left {
        id: "tick".to_owned(),
        state: "ready".to_owned(),
    };
    finds("tick is still ready", good_and(0, [tick(3), left.clone()]));
    let mut late = good_and(0, [tick(1000), left]);
    assert_eq!(
        judged(late.clone()),
        ["the store counts 1 sent, 1 acked, 0 dead; there were (2, 1, 0)"]
    );
    late.pop();
    late.push(totals(2, 1, 0));
    assert_eq!(judged(late), Vec::<String>::new());
}
