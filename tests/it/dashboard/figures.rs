//! What the screen once said wrongly: each figure, text and advice that misled somebody.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyModifiers};
use dqhost::control::controller::Controller;
use dqhost::control::{
    Command, DueAhead, DueSpan, End, Ended, Filter, HostInfo, LogLevel, LogRing, Query,
    QueryResult, QueueView, SEARCHED_MAX, Searched, SeenHost, SlotsReason, Snapshot,
};
use dqhost::dashboard::picture;
use dqhost::message::{Due, NewMessage, QueueName, State as In};
use dqhost::store::Store;
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};

use super::sample::{NOW_MS, Sample, theme};

const SIZES: [(u16, u16); 4] = [(200, 60), (120, 40), (80, 24), (60, 20)];

fn text(sample: &mut Sample) -> String {
    let now = sample.now;
    picture(&mut sample.state, now).text()
}

/// The line of the screen with this text.
fn line<'t>(text: &'t str, with: &str) -> &'t str {
    let found = text.lines().find(|line| line.contains(with));
    found.unwrap_or_else(|| panic!("no line with {with:?} in\n{text}"))
}

fn orders(snapshot: &mut Snapshot) -> &mut QueueView {
    &mut snapshot.queues[0]
}

/// Seconds in which so many attempts fail and so many messages are acked, each second.
fn flow(sample: &mut Sample, failed: u64, acked: u64) {
    for _ in 0..6 {
        sample.now += Duration::from_secs(1);
        let now = sample.now;
        sample.change(|snapshot| {
            let view = orders(snapshot);
            view.read_at = now;
            view.overview.counts.totals.nacked += failed;
            view.overview.counts.totals.acked += acked;
        });
    }
}

#[test]
fn a_rate_of_many_a_second_is_whole_at_80_columns() {
    for (failed, shown) in [(123, "123"), (12_345, "12345"), (123_456, "123k")] {
        let mut sample = Sample::new(theme(), (80, 24));
        flow(&mut sample, failed, 99_999);
        let text = text(&mut sample);
        let head = line(&text, "FAIL/s");
        let end = head.find("FAIL/s").unwrap() + "FAIL/s".len();
        let row: String = line(&text, "> orders").chars().take(end).collect();
        assert!(row.ends_with(&format!(" 99999{shown:>7}")), "{head}\n{row}");
    }
}

#[test]
fn a_time_long_past_shifts_no_row() {
    for ago in [587, 5_000, 4_000_000_000] {
        let mut sample = Sample::new(theme(), (120, 24));
        let before = text(&mut sample);
        sample.change(|snapshot| {
            orders(snapshot).overview.next_due_ms = Some(NOW_MS - ago);
        });
        let after = text(&mut sample);
        let end = |text: &str| line(text, "> orders").trim_end().chars().count();
        assert_eq!(end(&before), end(&after), "{after}");
        assert!(line(&after, "> orders").contains("  now  "), "{after}");
    }
}

#[test]
fn more_slots_are_no_advice_while_some_are_free() {
    for size in SIZES {
        let mut sample = Sample::new(theme(), size);
        let wait = |sample: &mut Sample, busy| {
            sample.change(|snapshot| {
                orders(snapshot).overview.oldest_ready_ms = Some(NOW_MS - 95_000);
                snapshot.host.as_mut().unwrap().busy = busy;
            });
        };
        wait(&mut sample, 8);
        let half = text(&mut sample);
        assert!(half.contains("1m 35s while 8 slots are free"), "{half}");
        assert!(!half.contains("more slots"), "{half}");
        wait(&mut sample, 16);
        let full = text(&mut sample);
        assert!(full.contains("1m 35s for a slot: more slots"), "{full}");
    }
}

#[test]
fn slots_that_the_host_has_found_are_shown_with_their_reason() {
    for size in &SIZES[..3] {
        let mut sample = Sample::new(theme(), *size);
        let found = |sample: &mut Sample, running| {
            sample.change(|snapshot| {
                snapshot.host.as_mut().unwrap().busy = 8;
                let orders = orders(snapshot);
                orders.overview.oldest_ready_ms = Some(NOW_MS - 95_000);
                let report = orders.report.as_mut().unwrap();
                report.slots = Some((7, SlotsReason::Cores));
                report.running = running;
            });
        };
        found(&mut sample, 5);
        let some = text(&mut sample);
        assert!(some.contains("1m 35s while 2 slots are free"), "{some}");
        found(&mut sample, 7);
        let full = text(&mut sample);
        assert!(
            full.contains("1m 35s for a slot (handlers wait for a core"),
            "{full}"
        );
        assert!(!full.contains("more slots"), "{full}");
    }
    let mut sample = Sample::new(theme(), (120, 40));
    sample.type_in("4");
    sample.change(|snapshot| {
        orders(snapshot).report.as_mut().unwrap().slots = Some((7, SlotsReason::Cores));
    });
    let shown = text(&mut sample);
    assert!(
        shown.contains("busy in this process; 7 for this queue: handlers wait for a core"),
        "{shown}"
    );
}

#[test]
fn no_host_has_more_messages_in_its_slots_than_slots() {
    for size in SIZES {
        let mut sample = Sample::new(theme(), size);
        sample.change(|snapshot| {
            let info = &mut orders(snapshot).hosts[0].info;
            info.slots = 64;
            info.in_flight = 77;
        });
        let text = text(&mut sample);
        assert!(!text.contains("77"), "{text}");
        assert!(text.contains("64 of 64 slots, 13 more reserved"), "{text}");
    }
}

#[test]
fn an_empty_payload_is_not_called_missing() {
    let mut sample = Sample::new(theme(), (120, 40));
    sample.type_in("2");
    sample.change(|snapshot| {
        let QueryResult::Messages { records, .. } = &mut snapshot.result else {
            panic!("there are messages");
        };
        for record in Arc::make_mut(records) {
            record.payload = Some(Vec::new());
        }
    });
    let list = text(&mut sample);
    assert!(list.contains("(empty payload)"), "{list}");
    assert!(list.contains("payload   empty"), "{list}");
    assert!(!list.contains("missing"), "{list}");
    sample.enter();
    sample.change(|snapshot| {
        let QueryResult::Message { record, .. } = &mut snapshot.result else {
            panic!("there is a message");
        };
        Arc::make_mut(record.as_mut().unwrap()).payload = Some(Vec::new());
    });
    for _ in 0..3 {
        let message = text(&mut sample);
        assert!(message.contains("payload   empty"), "{message}");
        sample.type_in("v");
    }
}

#[test]
fn the_json_of_a_payload_is_shown_as_it_was_sent() {
    let mut sample = Sample::new(theme(), (120, 40));
    sample.type_in("2");
    sample.enter();
    sample.change(|snapshot| {
        let QueryResult::Message { record, .. } = &mut snapshot.result else {
            panic!("there is a message");
        };
        let payload = r#"{"z":1.10,"big":123456789012345678901234567890,"z":2,"a":1}"#;
        Arc::make_mut(record.as_mut().unwrap()).payload = Some(payload.into());
    });
    let text = text(&mut sample);
    let shown: Vec<&str> = text
        .lines()
        .map(|line| line.trim_matches(['│', ' ']))
        .skip_while(|line| *line != "{")
        .take(6)
        .collect();
    let expected = [
        "{",
        "\"z\": 1.10,",
        "\"big\": 123456789012345678901234567890,",
        "\"z\": 2,",
        "\"a\": 1",
        "}",
    ];
    assert_eq!(shown, expected, "{text}");
}

#[test]
fn escape_leaves_no_filter_behind() {
    let mut sample = Sample::new(theme(), (80, 24));
    sample.type_in("3j");
    sample.enter();
    sample.type_in("/503");
    sample.enter();
    let escape = |sample: &mut Sample| sample.press(KeyCode::Esc, KeyModifiers::NONE);
    escape(&mut sample);
    assert_eq!(sample.state.filter, Filter::default());
    assert!(sample.state.group.is_some());
    escape(&mut sample);
    assert!(sample.state.group.is_none() && sample.state.filter.is_empty());
    // A filter that is typed takes the place of the one before; End keeps it.
    for (first, more, expected) in [("one", "two", "two"), ("one", " two", "one two")] {
        sample.type_in(&format!("/{first}"));
        sample.enter();
        sample.type_in("/");
        if more.starts_with(' ') {
            sample.press(KeyCode::End, KeyModifiers::NONE);
        }
        sample.type_in(more);
        sample.enter();
        assert_eq!(sample.state.filter.text(), expected);
        escape(&mut sample);
    }
}

#[test]
fn queues_that_are_not_shown_are_told_of() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut sample = Sample::new(theme(), size);
        sample.change(|snapshot| {
            let one = snapshot.queues[1].clone();
            snapshot.queues = (1..=64)
                .map(|n| QueueView {
                    name: format!("queue{n:02}").parse().unwrap(),
                    ..one.clone()
                })
                .collect();
        });
        let shown = |text: &str| text.matches(" queue").count() - text.matches("  queue ").count();
        let top = text(&mut sample);
        assert!(line(&top, "Queues").contains("Queues 1–"), "{top}");
        assert!(line(&top, "Queues").contains(" of 64"), "{top}");
        assert!(shown(&top) > 1, "{top}");
        sample.type_in("G");
        let bottom = text(&mut sample);
        assert!(line(&bottom, "Queues").contains("–64 of 64"), "{bottom}");
        assert!(bottom.contains("> queue64"), "{bottom}");
    }
}

#[test]
fn an_id_that_is_cut_has_a_mark() {
    let long = "5a6b7c8d-1111-4222-8333-444455556666";
    for size in SIZES {
        for keys in ["", "2", "4", "5", "6", "3\n"] {
            let mut sample = Sample::new(theme(), size);
            for key in keys.chars() {
                match key {
                    '\n' => sample.enter(),
                    key => sample.type_in(&key.to_string()),
                };
            }
            let text = text(&mut sample);
            for start in [&long[..8], "019a2b3c"] {
                for (at, _) in text.match_indices(start) {
                    let after = &text[at + start.len()..];
                    let whole = after.starts_with("-1111-4222-8333-444455556666")
                        || after.starts_with("-0000-7000-8000-0000000000")
                        || after.starts_with("-host");
                    assert!(whole || after.starts_with('…'), "{keys:?} {size:?}\n{text}");
                }
            }
        }
    }
}

#[test]
fn messages_that_no_host_will_handle_are_warned_of() {
    for size in SIZES {
        let mut sample = Sample::new(theme(), size);
        let alone = |sample: &mut Sample, ready, due_ago_ms: u64| {
            sample.change(|snapshot| {
                snapshot.host = None;
                let view = orders(snapshot);
                view.hosts.clear();
                view.report = None;
                view.overview.counts.ready = ready;
                view.overview.counts.retry = 0;
                view.overview.oldest_ready_ms = (ready > 0).then_some(NOW_MS - 4_000);
                view.overview.next_due_ms = Some(NOW_MS + 10_000 - due_ago_ms);
            });
            text(sample)
        };
        let calm = alone(&mut sample, 0, 0);
        assert!(!calm.contains("no host serves"), "{calm}");
        let overdue = alone(&mut sample, 0, 310_000);
        assert!(
            overdue.contains("! no host serves this queue: messages are overdue since 5m"),
            "{overdue}"
        );
        let ready = alone(&mut sample, 7, 0);
        assert!(
            ready.contains("! no host serves this queue: 7 messages wait since 4.0s"),
            "{ready}"
        );
        sample.change(|snapshot| {
            orders(snapshot).hosts.push(SeenHost {
                info: HostInfo {
                    id: "x".to_owned(),
                    version: "1".to_owned(),
                    handler: "y".to_owned(),
                    slots: 1,
                    in_flight: 0,
                },
                seen_ms_ago: 0,
            });
        });
        let served = text(&mut sample);
        assert!(!served.contains("no host serves"), "{served}");
    }
}

#[test]
fn a_message_that_was_acked_is_called_acked() {
    let gone = |last: Option<In>, log: &str| {
        let mut sample = Sample::new(theme(), (120, 40));
        sample.state.logs.add(LogLevel::Info, false, log);
        sample.type_in(if last == Some(In::Dead) { "3" } else { "2" });
        sample.enter();
        if last == Some(In::Dead) {
            sample.enter();
        }
        if let Some(last) = last {
            sample.change(|snapshot| {
                let QueryResult::Message { record, .. } = &mut snapshot.result else {
                    panic!("there is a message");
                };
                Arc::make_mut(record.as_mut().unwrap()).state = last;
            });
        }
        sample.change(|snapshot| {
            let QueryResult::Message { record, .. } = &mut snapshot.result else {
                panic!("there is a message");
            };
            *record = None;
        });
        text(&mut sample)
    };
    let time = "2026-11-21T11:22:19.323122Z";
    let id = "id=019a2b3c-0000-7000-8000-000000000001";
    let log = format!("{time}  INFO acked queue=orders {id} attempt=2 took=84µs");
    let text = gone(Some(In::Pending), &log);
    assert!(text.contains("acked at attempt 2, after 84µs"), "{text}");
    // A handler that prints such a line tells nothing.
    let forged = format!("{time}  INFO queue=orders {id} acked attempt=2 took=84µs");
    let text = gone(Some(In::Pending), &forged);
    assert!(text.contains("acked by a host, or cancelled"), "{text}");
    let text = gone(Some(In::Unack), "");
    assert!(text.contains("acked by a host of orders"), "{text}");
    let text = gone(Some(In::Dead), "");
    assert!(text.contains("redriven or deleted"), "{text}");
}

#[test]
fn a_message_that_is_gone_says_how_it_ended_if_the_store_tells_it() {
    let mut sample = Sample::new(theme(), (120, 40));
    sample.type_in("2");
    sample.enter();
    let mut shown = |end| {
        sample.change(|snapshot| {
            let QueryResult::Message { record, ended, .. } = &mut snapshot.result else {
                panic!("there is a message");
            };
            *record = None;
            *ended = Some(Arc::new(Ended {
                at_ms: NOW_MS - 60_000,
                ..crate::contract::tools::ended("x", end)
            }));
        });
        text(&mut sample)
    };
    let text = shown(End::Acked);
    assert!(
        text.contains("acked 1m 00s ago in 12ms, attempt 2, by host host"),
        "{text}"
    );
    let text = shown(End::Died);
    assert!(
        text.contains("died 1m 00s ago after 12ms") && text.contains("redriven or deleted since"),
        "{text}"
    );
}

/// The times at which the store was read until the list has the message, counted from the first
/// reading that knows of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_shows_what_the_counts_know_already() {
    let store = SqliteStore::open(&SqliteOptions::memory()).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let queue: QueueName = "q".parse().unwrap();
    store.set_paused(&queue, true).await.unwrap();
    let controller = Controller {
        store: Arc::clone(&store),
        queues: vec![queue.clone()],
        host: None,
        read_only: false,
        handlers: None,
    };
    let (mut channels, _desk) = controller.open(Arc::new(LogRing::default()));
    let look = Query::Messages {
        queue: queue.clone(),
        state: In::Pending,
        offset: 0,
        limit: 10,
        filter: Filter::default(),
    };
    channels.commands.send(Command::Query(look)).unwrap();
    let listed = |snapshot: &Snapshot| match &snapshot.result {
        QueryResult::Messages { records, .. } => Some(records.len()),
        _ => None,
    };
    let is_empty = |snapshot: &Arc<Snapshot>| listed(snapshot) == Some(0);
    channels.snapshots.wait_for(is_empty).await.unwrap();
    let message = NewMessage {
        due: Due::In(Duration::from_hours(1)),
        ..NewMessage::new("x")
    };
    store.send(&queue, &[message]).await.unwrap();
    let mut readings = std::collections::BTreeSet::new();
    loop {
        channels.snapshots.changed().await.unwrap();
        let snapshot = Arc::clone(&channels.snapshots.borrow_and_update());
        if listed(&snapshot) == Some(1) {
            break;
        }
        if snapshot.queues[0].overview.counts.pending == 1 {
            readings.insert(snapshot.read_at);
        }
        assert!(readings.len() < 5, "the list has not followed");
    }
}

#[test]
fn the_end_of_a_backlog_is_foreseen_while_it_falls() {
    for size in [(200, 60), (120, 40), (80, 24)] {
        let mut sample = Sample::new(theme(), size);
        let ready = |sample: &mut Sample, left: u64| {
            sample.now += Duration::from_secs(1);
            let now = sample.now;
            sample.change(|snapshot| {
                orders(snapshot).read_at = now;
                orders(snapshot).overview.counts.ready = left;
            });
        };
        for n in 0..20 {
            ready(&mut sample, 40_000 + n);
        }
        let rising = text(&mut sample);
        assert!(
            !rising.contains("done in") && !rising.contains(" left"),
            "{rising}"
        );
        for n in 0..20 {
            ready(&mut sample, 40_000 - n * 100);
        }
        // 38,100 at 100 a second.
        let falling = text(&mut sample);
        assert!(falling.contains("6m 21s"), "{falling}");
    }
}

/// What the sample's store says of due times, changed.
fn due(snapshot: &mut Snapshot, change: impl FnOnce(&mut DueAhead)) {
    let QueryResult::Due {
        ahead: Ok(ahead), ..
    } = &mut snapshot.result
    else {
        panic!("there are due times")
    };
    change(Arc::make_mut(ahead));
}

#[test]
fn what_falls_due_is_counted_and_a_part_of_it_is_not_called_all() {
    for size in [(200, 60), (120, 40), (80, 24)] {
        let mut sample = Sample::new(theme(), size);
        let all = |count, failed| {
            move |ahead: &mut DueAhead| {
                for span in &mut ahead.spans {
                    *span = DueSpan {
                        count,
                        failed,
                        is_more: false,
                    };
                }
            }
        };
        sample.change(|snapshot| due(snapshot, all(10, 1)));
        let shown = text(&mut sample);
        assert!(
            shown.contains("Due in the next hour (z) ── 270 new, 30 to retry"),
            "{shown}"
        );
        sample.change(|snapshot| {
            due(snapshot, |ahead| {
                ahead.spans[0].is_more = true;
                ahead.partial = true;
            });
        });
        let shown = text(&mut sample);
        assert!(shown.contains("270+ new, 30+ to retry"), "{shown}");
        for reach in ["day", "week", "minute", "hour"] {
            sample.type_in("z");
            let shown = text(&mut sample);
            assert!(
                shown.contains(&format!("Due in the next {reach}")),
                "{shown}"
            );
        }
    }
}

#[test]
fn a_backlog_is_forecast_with_what_falls_due_meanwhile() {
    let mut sample = Sample::new(theme(), (200, 60));
    let forecast = |sample: &mut Sample, ready: u64, due_each: u64| {
        sample.change(|snapshot| {
            due(snapshot, |ahead| {
                for span in &mut ahead.spans {
                    span.count = due_each;
                }
            });
        });
        // A hundred are acked each second.
        for _ in 0..6 {
            sample.now += Duration::from_secs(1);
            let now = sample.now;
            sample.change(|snapshot| {
                let view = orders(snapshot);
                view.read_at = now;
                view.overview.counts.ready = ready;
                view.overview.counts.totals.acked += 100;
            });
        }
        line(&text(sample), "Due in the next hour").to_owned()
    };
    // 24,000 and 5 of retry: 100 a second, and in each 2 minutes 6,000 more.
    let shown = forecast(&mut sample, 24_000, 6_000);
    assert!(shown.contains("at 100/s done in 8m"), "{shown}");
    let shown = forecast(&mut sample, 24_000, 12_000);
    assert!(shown.contains("at 100/s not done by then"), "{shown}");
    let shown = forecast(&mut sample, 10, 6_000);
    assert!(!shown.contains("100/s"), "{shown}");
}

#[test]
fn due_times_are_asked_for_only_where_they_are_shown() {
    let asks = |size, keys: &str| {
        let mut sample = Sample::new(theme(), size);
        sample.type_in(keys);
        matches!(sample.state.query, Query::Due { .. })
    };
    assert!(asks((80, 24), "") && asks((80, 24), "21"));
    assert!(!asks((40, 10), "") && !asks((80, 18), "") && !asks((80, 24), "6"));
    // Whoever may not ask is told so, and sees all the rest.
    let mut sample = Sample::new(theme(), (80, 24));
    sample.change(|snapshot| {
        let QueryResult::Due { ahead, .. } = &mut snapshot.result else {
            panic!("there are due times")
        };
        *ahead = Err("no permission".to_owned());
    });
    let shown = text(&mut sample);
    assert!(
        shown.contains("no permission") && shown.contains("● live"),
        "{shown}"
    );
}

#[test]
fn a_search_says_how_far_it_is() {
    for (size, keys) in [
        ((200, 60), "2"),
        ((120, 40), "2"),
        ((80, 24), "3"),
        ((40, 10), "2"),
    ] {
        let mut sample = Sample::new(theme(), size);
        sample.type_in(&format!("{keys}/needle"));
        sample.enter();
        let mut is = |searched| {
            sample.change(|snapshot| match &mut snapshot.result {
                QueryResult::Messages {
                    records,
                    searched: now,
                    ..
                } => {
                    *records = Arc::default();
                    *now = searched;
                }
                QueryResult::Groups {
                    groups,
                    searched: now,
                    ..
                } => {
                    *groups = Arc::default();
                    *now = searched;
                }
                other => panic!("{other:?}"),
            });
            text(&mut sample)
        };
        let shown = is(Searched::SoFar(15_000));
        assert!(shown.contains("looked at 15000 of "), "{shown}");
        assert!(!shown.contains("nothing matches"), "{shown}");
        let shown = is(Searched::All);
        assert!(!shown.contains("looked at"), "{shown}");
        assert!(shown.contains("nothing matches") || keys == "3", "{shown}");
    }
}

/// The only message that matches is the last of many: the search shows how far it is, and finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_goes_on_until_it_has_found_what_there_is() {
    let store = SqliteStore::open(&SqliteOptions::memory()).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let queue: QueueName = "q".parse().unwrap();
    store.set_paused(&queue, true).await.unwrap();
    let all = 2 * SEARCHED_MAX + 1;
    let payload = |n| if n + 1 == all { "needle" } else { "hay" };
    let messages: Vec<_> = (0..all).map(|n| NewMessage::new(payload(n))).collect();
    store.send(&queue, &messages).await.unwrap();
    let controller = Controller {
        store,
        queues: vec![queue.clone()],
        host: None,
        read_only: false,
        handlers: None,
    };
    let (mut channels, _handle) = controller.open(Arc::new(LogRing::default()));
    let search = Query::Messages {
        queue,
        state: In::Ready,
        offset: 0,
        limit: 10,
        filter: Filter::parse("needle").unwrap(),
    };
    channels.commands.send(Command::Query(search)).unwrap();
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some((_, Searched::All))) {
        channels.snapshots.changed().await.unwrap();
        let snapshot = Arc::clone(&channels.snapshots.borrow_and_update());
        if let QueryResult::Messages {
            records, searched, ..
        } = &snapshot.result
        {
            seen.push((records.len(), *searched));
        }
    }
    seen.dedup();
    // A snapshot may be passed over, and none comes twice.
    let expected = [
        (0, Searched::SoFar(SEARCHED_MAX)),
        (0, Searched::SoFar(2 * SEARCHED_MAX)),
        (1, Searched::All),
    ];
    assert!(seen.len() > 1, "{seen:?}");
    assert!(seen.iter().all(|step| expected.contains(step)), "{seen:?}");
}

#[test]
fn what_a_limit_holds_back_is_told_beside_what_is_ready() {
    for (size, words) in [((200, 60), "7 wait for a limit"), ((80, 24), "limit")] {
        let mut sample = Sample::new(theme(), size);
        assert!(!text(&mut sample).contains("limit"));
        sample.change(|snapshot| orders(snapshot).overview.limited = 7);
        let shown = text(&mut sample);
        assert!(shown.contains(words), "{shown}");
    }
}
