//! What an operator does most, and how few keys it takes. `before` is what the same took when the dashboard
//! had no warnings that lead anywhere.

use std::sync::Arc;

use dqhost::dashboard::picture;
use dqhost::message::QueueName;
use dqhost::store::Store;
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

use super::fill;
use super::sample::{NOW_MS, Sample, theme};
use super::tty::Tty;
use crate::support::{eventually, guest, run, stats};

/// Dead letters among which one is found.
const DEAD: usize = 100_000;

/// A terminal on which keys are counted.
struct Counted {
    tty: Tty,
    keys: usize,
}

impl Counted {
    fn on(tty: Tty) -> Self {
        Self { tty, keys: 0 }
    }

    fn press(&mut self, keys: &str) {
        self.keys += keys.chars().count();
        self.tty.keys(keys);
    }

    /// The task is done with so many keys at most, and took so many before.
    fn took_at_most(mut self, keys: usize, before: usize) {
        assert!(self.keys <= keys && keys <= before, "{} keys", self.keys);
        self.tty.keys("\x03");
        self.tty.end(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_found_by_a_word_of_its_payload_among_a_hundred_thousand() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let options = SqliteOptions::file(path.clone());
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&options).await.unwrap());
    let queue: QueueName = "orders".parse().unwrap();
    let payload = |n: usize| match n {
        40_000 => format!("order {n} of the zebra"),
        _ => format!("order {n}"),
    };
    fill::dead(&*store, &queue, (0..DEAD).map(payload).collect()).await;
    assert_eq!(store.counts(&queue).await.unwrap().dead, DEAD as u64);
    drop(store);
    let find = move || {
        let mut task = Counted::on(Tty::start(path.to_str().unwrap(), &["top"], (120, 40)));
        task.tty.wait_for("> orders");
        task.press("3");
        task.tty.wait_for("all of them");
        task.press("/zebra\r");
        task.tty.wait_until("all were looked at", |text| {
            text.contains("/zebra") && text.contains("     1  ") && !text.contains("goes on")
        });
        task.press("\r");
        task.tty.wait_for("attempts, latest first");
        task.tty.wait_for("order 40000 of the zebra");
        task.took_at_most(9, 10);
    };
    tokio::task::spawn_blocking(find).await.unwrap();
}

#[test]
fn all_of_one_reason_are_redriven() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    for (payload, retries) in [("9", "0"), ("9", "0"), ("word", "0")] {
        run(Some(store), &["send", payload, "--retries", retries], 0);
    }
    let handler = guest("flaky");
    let up = ["--handler", handler.to_str().unwrap(), "--exit-when-empty"];
    run(Some(store), &up, 0);
    assert_eq!(stats(store, "default")["dead"], 3);
    let mut task = Counted::on(Tty::start(store, &["top"], (120, 40)));
    task.tty.wait_for("> default");
    task.tty.wait_for("3 Dead 3");
    task.press("!");
    task.tty
        .wait_until("the most frequent reason is selected", |text| {
            text.lines().any(|line| line.contains(">     2 "))
        });
    task.press("r");
    task.tty
        .wait_for("Put 2 dead letters of default with the reason");
    // The question has come by itself: a moment later it takes an answer.
    task.tty.answer("y");
    task.keys += 1;
    task.tty.wait_for("2 redriven");
    assert_eq!(stats(store, "default")["dead"], 1);
    // Before: 3 j r y.
    task.took_at_most(3, 4);
}

#[test]
fn a_rise_of_lateness_leads_to_its_cause() {
    for size in [(200, 60), (120, 40), (80, 24)] {
        let mut sample = Sample::new(theme(), size);
        sample.change(|snapshot| {
            snapshot.queues[0].overview.oldest_ready_ms = Some(NOW_MS - 95_000);
            let host = snapshot.host.as_mut().unwrap();
            host.busy = host.slots;
            for host in &mut snapshot.queues[0].hosts {
                host.info.in_flight = host.info.slots;
            }
        });
        let shown = |sample: &mut Sample| picture(&mut sample.state, sample.now).text();
        // Why is said without a key, and which message it is by one. Before: 4 and Enter.
        let text = shown(&mut sample);
        assert!(
            text.contains("for a slot: more slots, or ! for what has run 9"),
            "{text}"
        );
        let longest = sample.state.snapshot.in_flight[0].id.clone();
        sample.type_in("!");
        assert_eq!(sample.state.opened.as_ref().unwrap().id, longest);
        let text = shown(&mut sample);
        assert!(text.contains(longest.as_str()), "{text}");
        sample.type_in("<");
        assert_eq!(sample.state.screen.name(), "Overview");
    }
}

#[test]
fn the_key_of_a_warning_goes_where_it_says() {
    let goes = |change: &dyn Fn(&mut Sample)| {
        let mut sample = Sample::new(theme(), (120, 40));
        change(&mut sample);
        sample.type_in("!");
        (sample.state.screen.name(), sample.state.selected)
    };
    // Nothing is wrong now: then it is about what died before.
    assert_eq!(goes(&|_| {}), ("Dead", 1));
    let refused = |sample: &mut Sample| {
        sample.change(|snapshot| snapshot.host.as_mut().unwrap().summary.refused = 2);
    };
    assert_eq!(goes(&refused).0, "Log");
    let unserved = |sample: &mut Sample| {
        sample.change(|snapshot| {
            snapshot.queues[0].hosts.clear();
            snapshot.queues[0].report = None;
        });
    };
    assert_eq!(goes(&unserved), ("Messages", 0));
    let nothing = |sample: &mut Sample| {
        sample.change(|snapshot| snapshot.queues[0].overview.counts.dead = 0);
    };
    assert_eq!(goes(&nothing).0, "Overview");
}

#[test]
fn a_message_is_sent_with_a_delay() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    run(Some(store), &["send", "first", "--in", "5h"], 0);
    let mut task = Counted::on(Tty::start(store, &["top"], (120, 40)));
    task.tty.wait_for("> default");
    task.press("s");
    task.tty.wait_for(":send");
    task.press("x +1h\r");
    // A second may have passed since.
    task.tty.wait_until("when it is due", |text| {
        text.contains("due in 1h") || text.contains("due in 59m")
    });
    assert_eq!(stats(store, "default")["pending"], 2);
    // Before: s x --in 1h, with the blanks.
    task.took_at_most(7, 11);
}

#[test]
fn a_handler_is_stopped() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    let handler = guest("spin");
    let handler = handler.to_str().unwrap();
    let args = ["--handler", handler, "--timeout", "1h", "--slots", "2"];
    run(Some(store), &["send", "x", "--retries", "0"], 0);
    let mut task = Counted::on(Tty::start(store, &args, (120, 40)));
    task.tty.wait_for("> default");
    task.tty.wait_for("4 In flight 1/2");
    task.press("K");
    task.tty.wait_for("which has run for longest in default");
    task.press("y");
    task.tty.wait_for("is stopped");
    eventually("it is dead", || {
        (stats(store, "default")["dead"] == 1).then_some(())
    });
    task.tty.wait_for("nothing is in flight");
    // Before: 4 K y.
    task.took_at_most(2, 3);
}
