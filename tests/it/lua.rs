//! The rules that every script in `lua/` keeps.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::servers::tools::free_port;
use crate::support::RedisServer;

fn scripts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let mut scripts: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "lua"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 15);
    scripts
}

#[test]
fn every_header_says_what_a_reader_must_know() {
    for (name, text) in scripts() {
        let header: Vec<&str> = text
            .lines()
            .skip(1)
            .take_while(|line| line.starts_with("--"))
            .collect();
        let header = header.join("\n");
        assert!(text.starts_with("#!lua"), "{name}: no flags line");
        assert!(
            header.starts_with(&format!("-- {name}: ")),
            "{name}: no sentence"
        );
        for part in ["KEYS[1]", "Returns", "Crash safety: "] {
            assert!(header.contains(part), "{name}: the header lacks {part}");
        }
    }
}

/// The highest index of KEYS that the code uses by number stands in the header.
#[test]
fn every_key_that_is_used_is_declared() {
    let indices = |text: &str| -> BTreeSet<String> {
        text.split("KEYS[")
            .skip(1)
            .filter_map(|rest| {
                let index: String = rest.chars().take_while(char::is_ascii_digit).collect();
                (!index.is_empty()).then_some(index)
            })
            .collect()
    };
    for (name, text) in scripts() {
        let is_header = |line: &&str| line.starts_with("--");
        let header: String = text
            .lines()
            .filter(is_header)
            .collect::<Vec<_>>()
            .join("\n");
        let code: String = text
            .lines()
            .filter(|l| !is_header(l))
            .collect::<Vec<_>>()
            .join("\n");
        for index in indices(&code) {
            let shown = header.contains(&format!("KEYS[{index}"))
                || header.contains(&format!(", KEYS[{index}"));
            assert!(shown, "{name}: KEYS[{index}] is not in the header");
        }
    }
}

#[test]
fn no_script_compares_a_reply_with_nil_or_builds_a_key() {
    for (name, text) in scripts() {
        for line in text.lines().filter(|line| !line.starts_with("--")) {
            assert!(
                !line.contains("= nil") || line.contains("local "),
                "{name}: {line}"
            );
            assert!(
                !line.contains("':msg:'") && !line.contains("\":msg:\""),
                "{name}: {line}"
            );
        }
    }
}

#[test]
fn only_what_takes_messages_in_is_stopped_by_a_full_memory() {
    for (name, text) in scripts() {
        let flags = text.lines().next().unwrap();
        let expected = match name.as_str() {
            "send" | "send_or_change" | "send_to_each" | "tick" | "ack_and_send"
            | "redrive_edited" | "begin_transfer" | "import" | "keep_results" => "#!lua",
            "inspect" | "audit" | "elsewhere" | "past_retention" | "locate" => {
                "#!lua flags=no-writes"
            }
            _ => "#!lua flags=allow-oom",
        };
        assert_eq!(flags, expected, "{name}");
    }
}

/// What people do to a queue, with one message that waits and one dead letter; both are as before
/// in the end.
async fn people_step_in(
    store: &dyn dqhost::store::Store,
    waits: &dqhost::message::MessageId,
    dead: &dqhost::message::MessageId,
) {
    use crate::contract::tools::*;
    use dqhost::message::Due;
    use dqhost::store::{Redriven, Retention};

    let retention = Retention {
        age: None,
        number: Some(0),
    };
    let past = store.past_retention(&queue(), retention).await.unwrap();
    assert!(past.contains(dead));
    for paused in [true, false] {
        store.set_paused(&queue(), paused).await.unwrap();
        assert_eq!(store.overview(&queue()).await.unwrap().paused, paused);
    }
    for due in [Due::In(LONG), Due::NOW] {
        let ids = [waits.clone()];
        store.reschedule(&queue(), &ids, due).await.unwrap();
    }
    let redriven = store.redrive_edited(&queue(), dead, b"edited", None).await;
    let Redriven::As(new) = redriven.unwrap() else {
        panic!("{dead} is not dead")
    };
    store.cancel(&queue(), &[new]).await.unwrap();
    schedules_tick(store).await;
}

/// Ticks of a schedule that is paused, resumed and overlaps; all messages are gone in the end.
async fn schedules_tick(store: &dyn dqhost::store::Store) {
    use crate::contract::tools::*;
    use dqhost::message::NewMessage;
    use dqhost::store::{Tick, TickSent};

    let tick = || Tick {
        schedule: "s".to_owned(),
        message: NewMessage {
            dedup_window: LONG,
            ..NewMessage::new("tick")
        },
        may_overlap: false,
    };
    for paused in [true, false] {
        let queue = queue();
        let set = store.set_schedule_paused(&queue, "s", paused);
        set.await.unwrap();
    }
    let ticks = [tick(), tick()];
    let sent = store.send_ticks(&queue(), &ticks).await.unwrap();
    assert_eq!(sent, [TickSent::Sent, TickSent::Skipped]);
    assert_eq!(store.schedules(&queue()).await.unwrap()[0].skipped, 1);
    let id = ticks[0].message.id.clone();
    assert_eq!(
        store.kill(&queue(), &[id]).await.unwrap(),
        [dqhost::store::Cancelled::Done]
    );
}

/// An ack that takes messages along to its own queue; all is as before in the end.
async fn ack_and_send_within_the_queue(store: &dyn dqhost::store::Store) {
    use crate::contract::settle::outbox::{ack_with, other, to};
    use crate::contract::tools::*;
    use dqhost::message::{Due, NewMessage};
    use dqhost::store::{First, Limits, Reservation, Settled};

    assert!(store.can_send_along(&queue(), &queue()));
    assert!(!store.can_send_along(&queue(), &other("other")));
    topic_of_one_queue(store).await;
    send(store, "sends", Due::NOW, 3).await;
    let limits = Limits {
        rate: "1/d".parse().ok(),
        max_running: std::num::NonZeroU32::new(1000),
        by: None,
        fair_by: None,
        fair_weights: dqhost::store::FairWeights::EQUAL,
    };
    let wanted = Reservation {
        max: 1,
        lease: LONG,
        first: First::Ready,
        retries_default: 3,
    };
    let limited = store.reserve_limited(&queue(), wanted, &limits).await;
    let claim = limited.unwrap().deliveries.remove(0);
    let [now, later] = [Due::NOW, Due::In(LONG)].map(|due| NewMessage {
        due,
        headers: vec![("k".to_owned(), "v".to_owned())],
        dedup_window: LONG,
        ..NewMessage::new("sent along")
    });
    let ids = [now.id.clone(), later.id.clone()];
    let how = ack_with(&[to("q", now), to("q", later)]);
    assert_eq!(settle(store, &claim.claim, how).await, Settled::Done);
    let cancelled = store.cancel(&queue(), &ids).await.unwrap();
    assert_eq!(cancelled, [dqhost::store::Cancelled::Done; 2]);
}

/// Messages that are replaced while they wait and while they run; all is as before in the end.
async fn repeats_of_each_kind(store: &dyn dqhost::store::Store) {
    use crate::contract::tools::*;
    use dqhost::message::{Due, MessageId, NewMessage, OnRepeat, SendOutcome};

    let message = |due| NewMessage {
        id: MessageId::of_key("key"),
        due,
        headers: vec![("k".to_owned(), "v".to_owned())],
        on_repeat: OnRepeat::Replace {
            max_wait: Some(LONG),
        },
        ..NewMessage::new("x")
    };
    let waiting = reserve(store, 10, LONG).await;
    for (due, expected) in [
        (Due::NOW, SendOutcome::Sent),
        (Due::In(LONG), SendOutcome::Replaced),
        (Due::NOW, SendOutcome::Replaced),
    ] {
        let sent = store.send(&queue(), &[message(due)]).await.unwrap();
        assert_eq!(sent[0].outcome, expected);
    }
    for _ in 0..2 {
        let running = reserve_one(store, LONG).await;
        let sent = store.send(&queue(), &[message(Due::NOW)]).await.unwrap();
        assert_eq!(sent[0].outcome, SendOutcome::AfterRunning);
        settle(store, &running.claim, dqhost::store::Settlement::ACK).await;
    }
    let ids = [MessageId::of_key("key")];
    store.cancel(&queue(), &ids).await.unwrap();
    let claims: Vec<_> = waiting.into_iter().map(|d| d.claim).collect();
    store.release(&queue(), &claims).await.unwrap();
}

/// In a cluster a topic has one queue; all is as before in the end.
async fn topic_of_one_queue(store: &dyn dqhost::store::Store) {
    use crate::contract::settle::outbox::other;
    use crate::contract::tools::*;
    use dqhost::message::{NewMessage, TopicName};

    let topic: TopicName = "t".parse().unwrap();
    assert!(store.subscribe_queue(&topic, &queue()).await.unwrap());
    let refused = store.subscribe_queue(&topic, &other("other")).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("one hash tag only"), "{error}");
    let message = NewMessage::new("x");
    let sent = store
        .send_to_topic(&topic, &[message.clone()])
        .await
        .unwrap();
    assert!(sent[0].1[0].is_new());
    store.cancel(&queue(), &[message.id]).await.unwrap();
    assert!(store.unsubscribe_queue(&topic, &queue()).await.unwrap());
}

/// One node of a cluster, to which only the slots of these keys belong.
fn node_with_the_slots_of(keys: &[&str]) -> RedisServer {
    let bus = free_port().to_string();
    let server = RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    for key in keys {
        let slot: u16 = server.command(&["CLUSTER", "KEYSLOT", key]);
        let () = server.command(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
    }
    let () = server.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    crate::support::eventually("the node serves its slots", || {
        let info: String = server.command(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:ok").then_some(())
    });
    server
}

/// Undeclared keys are found only where they are refused: in a cluster of which another node owns
/// them. Redis checks the keys of a script's calls against this node's slots, so one node that owns
/// only the slot of the queue's tag shows it.
#[tokio::test]
async fn scripts_touch_no_key_outside_the_slot_of_their_queue() {
    use crate::contract::tools::*;
    use dqhost::message::{Due, NewMessage};
    use dqhost::store::{End, Peer, Settlement};

    let server = node_with_the_slots_of(&["{dp:q}", "dqhost:queues", "dqhost:topics"]);
    let store = server.store().await;
    let headers = vec![("k".to_owned(), "v".to_owned())];
    for n in 0..6 {
        let message = NewMessage {
            headers: headers.clone(),
            dedup_window: SHORT,
            ..NewMessage::new(n.to_string())
        };
        store.send(&queue(), &[message]).await.unwrap();
    }
    let later = send(&*store, "later", Due::In(LONG), 3).await;
    store.cancel(&queue(), &[later]).await.unwrap();
    repeats_of_each_kind(&*store).await;
    store.advance(&queue()).await.unwrap();
    crate::contract::fair::sort(&*store).await;
    let claims: Vec<_> = reserve(&*store, 5, LONG)
        .await
        .into_iter()
        .map(|d| d.claim)
        .collect();
    reserve(&*store, 1, SHORT).await;
    store.extend(&queue(), &claims, LONG).await.unwrap();
    ack_and_send_within_the_queue(&*store).await;
    settle(&*store, &claims[0], Settlement::ACK).await;
    settle(&*store, &claims[1], nack(None)).await;
    settle(&*store, &claims[2], reject()).await;
    settle(&*store, &claims[3], reject()).await;
    let told = (ended("a", End::Acked), LONG);
    store.keep_ended(&queue(), &[told], 10).await.unwrap();
    assert_eq!(store.ended(&queue(), 0, 10).await.unwrap().len(), 1);
    store.release(&queue(), &claims[4..]).await.unwrap();
    advance_until(&*store, |advanced| advanced.dead_lettered > 0).await;
    advance_until(&*store, |advanced| advanced.next_in.is_none()).await;
    people_step_in(&*store, &claims[1].id, &claims[3].id).await;
    store
        .redrive(
            &queue(),
            &[claims[2].id.clone()],
            dqhost::store::Redrive::default(),
        )
        .await
        .unwrap();
    store
        .delete_dead(&queue(), &[claims[3].id.clone()])
        .await
        .unwrap();
    assert_eq!(depths(&*store).await, [0, 2, 0, 2, 0]);
    let peer = Peer {
        name: "other".to_owned(),
        renamed: false,
        run: "1".to_owned(),
    };
    store.begin_transfer(&queue(), &peer).await.unwrap();
    let away = store.export(&queue(), "1", 10).await.unwrap();
    let ids: Vec<_> = away.iter().map(|record| record.id.clone()).collect();
    store.remove_exported(&queue(), "1", &ids).await.unwrap();
    store.import(&queue(), "1", &away).await.unwrap();
    store.commit_import(&queue(), "1", &ids).await.unwrap();
    assert_eq!(depths(&*store).await, [0, 2, 0, 2, 0]);
    let () = server.command(&["SET", "{dp:q}:msg:orphan", "x"]);
    let how = dqhost::store::Audit {
        repair: true,
        settling: SHORT,
    };
    assert!(store.audit(&queue(), how).await.unwrap().is_repaired());
    assert_eq!(depths(&*store).await, [0, 2, 0, 2, 1]);
}
