//! A key that another program has written: it holds something else than it must. The queue that it
//! belongs to says so and loses nothing, those beside it go on, and so does it once the key is mended.

use std::time::Duration;

use dqhost::message::{Claim, Due, MessageId, NewMessage, OnRepeat, Record, State};
use dqhost::store::{
    End, Ended, First, HOST_SILENCE, HostInfo, Page, Peer, Redrive, Reservation, Retention,
    Settlement, Store, StoreResult,
};
use rustix::process::Signal;

use crate::contract::settle::outbox::{ack_with, to};
use crate::contract::tools::*;
use crate::support::{Host, RedisServer, eventually, guest, run, stats, stderr, stdout};

/// Every key of a queue but those of payloads.
const KEYS: [&str; 21] = [
    "pending",
    "ready",
    "unack",
    "retry",
    "retry:cnt",
    "garbage",
    "attempts",
    "due",
    "headers",
    "history",
    "dead",
    "stats",
    "ended",
    "dedup",
    "repeats",
    "moving",
    "moving:was",
    "moving:peer",
    "paused",
    "hosts",
    "hosts:info",
];

/// Puts something of the wrong type under a key: a string, which is right for payloads alone. In one
/// step, so that a host that is at work finds the one or the other.
fn spoil(server: &RedisServer, key: &str) {
    let command = if key.contains(":msg:") {
        "RPUSH"
    } else {
        "SET"
    };
    let script =
        "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], 'saved') end
        redis.call(ARGV[1], KEYS[1], 'spoilt')";
    let () = server.command(&["EVAL", script, "1", key, command]);
}

fn mend(server: &RedisServer, key: &str) {
    let script = "redis.call('DEL', KEYS[1])
        if redis.call('EXISTS', 'saved') == 1 then redis.call('RENAME', 'saved', KEYS[1]) end";
    let () = server.command(&["EVAL", script, "1", key]);
}

fn name_of(key: &str) -> String {
    format!("{{dp:q}}:{key}")
}

const RUN: &str = "run";

/// One message in each state.
struct Messages {
    waits: MessageId,
    ready: MessageId,
    held: Claim,
    dead: MessageId,
    moving: Record,
}

impl Messages {
    fn ids(&self) -> [&MessageId; 5] {
        let Self {
            waits, ready, dead, ..
        } = self;
        [waits, ready, &self.held.id, dead, &self.moving.id]
    }
}

fn host_info() -> HostInfo {
    HostInfo {
        id: "host".to_owned(),
        version: "1".to_owned(),
        handler: String::new(),
        slots: 1,
        in_flight: 0,
    }
}

async fn messages(store: &dyn Store) -> Messages {
    let peer = Peer {
        name: "elsewhere".to_owned(),
        renamed: true,
        run: RUN.to_owned(),
    };
    store.begin_transfer(&queue(), &peer).await.unwrap();
    send(store, "moves", Due::NOW, 3).await;
    let moving = store.export(&queue(), RUN, 1).await.unwrap().remove(0);
    let dead = send(store, "dies", Due::NOW, 3).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, reject()).await;
    collect_garbage(store).await;
    send(store, "is in flight", Due::NOW, 3).await;
    let held = reserve_one(store, LONG).await.claim;
    let info = host_info();
    store
        .heartbeat(&queue(), &info, HOST_SILENCE)
        .await
        .unwrap();
    Messages {
        waits: send(store, "waits", Due::In(LONG), 3).await,
        ready: send(store, "is ready", Due::NOW, 3).await,
        held,
        dead,
        moving,
    }
}

const KEEP_ONE: Retention = Retention {
    age: Some(Duration::ZERO),
    number: Some(1),
};

/// What a host or a person may do, and the message that is not there any more after it.
const STEPS: [&str; 28] = [
    "send",
    "replace",
    "reschedule",
    "cancel",
    "pause",
    "advance",
    "reserve",
    "extend",
    "release",
    "nack",
    "reject",
    "ack",
    "ack and send",
    "keep ended",
    "redrive",
    "edit",
    "retention",
    "delete",
    "export",
    "import",
    "remove_exported",
    "commit_import",
    "beat",
    "leave",
    "look",
    "list",
    "get",
    "hosts",
];

/// A message that is looked for in every place.
fn once() -> NewMessage {
    NewMessage {
        dedup_window: LONG,
        ..NewMessage::new("new")
    }
}

/// How a message ended, long ago.
fn told() -> (Ended, Duration) {
    (ended("a", End::Acked), LONG)
}

fn replacement() -> NewMessage {
    NewMessage {
        on_repeat: OnRepeat::Replace { max_wait: None },
        ..NewMessage::new("new")
    }
}

fn wanted() -> Reservation {
    Reservation {
        max: 10,
        lease: LONG,
        first: First::Ready,
        retries_default: 3,
    }
}

async fn step(store: &dyn Store, step: &str, m: &Messages) -> StoreResult<()> {
    let q = &queue();
    let claims = [m.held.clone()];
    let say = |how: Settlement| [(m.held.clone(), how)];
    let dead = [m.dead.clone()];
    let moving = [m.moving.id.clone()];
    let page = Page {
        offset: 0,
        limit: 10,
        payload_max: 10,
    };
    match step {
        "send" => store.send(q, &[once()]).await.map(drop),
        "replace" => store.send(q, &[replacement()]).await.map(drop),
        "reschedule" => {
            let due = Due::In(LONG * 2);
            store.reschedule(q, &[m.ready.clone()], due).await.map(drop)
        }
        "cancel" => store.cancel(q, &[m.waits.clone()]).await.map(drop),
        "pause" => store.set_paused(q, true).await,
        "advance" => store.advance(q).await.map(drop),
        "reserve" => store.advance_and_reserve(q, wanted()).await.map(drop),
        "extend" => store.extend(q, &claims, LONG).await.map(drop),
        "release" => store.release(q, &claims).await.map(drop),
        "nack" => store.settle(q, &say(nack(None))).await.map(drop),
        "reject" => store.settle(q, &say(reject())).await.map(drop),
        "ack" => store.settle(q, &say(Settlement::ACK)).await.map(drop),
        "ack and send" => {
            let how = ack_with(&["q", "other"].map(|name| to(name, NewMessage::new("x"))));
            store.settle(q, &say(how)).await.map(drop)
        }
        "keep ended" => store.keep_ended(q, &[told()], 10).await,
        "redrive" => store.redrive(q, &dead, Redrive::default()).await.map(drop),
        "edit" => store.redrive_edited(q, &m.dead, b"y", None).await.map(drop),
        "retention" => store.past_retention(q, KEEP_ONE).await.map(drop),
        "delete" => store.delete_dead(q, &dead).await.map(drop),
        "export" => store.export(q, RUN, 10).await.map(drop),
        "import" => {
            let id = MessageId::new();
            let record = Record {
                id,
                ..m.moving.clone()
            };
            store.import(q, RUN, &[record]).await
        }
        "remove_exported" => store.remove_exported(q, RUN, &moving).await,
        "commit_import" => store.commit_import(q, RUN, &moving).await,
        "beat" => store.heartbeat(q, &host_info(), HOST_SILENCE).await,
        "leave" => store.leave(q, "host").await,
        "look" => {
            store.overview(q).await?;
            store.counts(q).await.map(drop)
        }
        "list" => {
            for state in [State::Pending, State::Ready, State::Dead, State::Moving] {
                store.list(q, state, page).await?;
            }
            Ok(())
        }
        "get" => store.get(q, &m.ready).await.map(drop),
        _ => store.hosts(q, HOST_SILENCE).await.map(drop),
    }
}

/// Each step with each key spoilt: what fails says which key it is and has changed nothing, and what
/// does not need the key works.
#[tokio::test]
async fn what_fails_for_a_key_of_the_wrong_type_names_it_and_changes_nothing() {
    let server = RedisServer::start_with(&["--enable-debug-command", "yes"]);
    let store = server.store().await;
    let store = &*store;
    let digest = || -> String { server.command(&["DEBUG", "DIGEST"]) };
    let mut refused = Vec::new();
    for at in 0..=KEYS.len() {
        for name in STEPS {
            let () = server.command(&["FLUSHALL"]);
            let m = messages(store).await;
            let key = KEYS
                .get(at)
                .map_or(format!("msg:{}", m.moving.id), |key| (*key).to_owned());
            let key = name_of(&key);
            spoil(&server, &key);
            let before = digest();
            let result = step(store, name, &m).await;
            let what = format!("{name} with a broken {key}: {result:?}");
            if let Err(error) = &result {
                let error = error.to_string();
                assert!(error.contains(&format!("the key {key} is a ")), "{what}");
                // The first of several scripts may have done its part.
                let several = ["advance", "reserve", "export"].contains(&name);
                assert!(several || digest() == before, "{what}");
                refused.push((at, name));
            }
            mend(&server, &key);
            for id in m.ids() {
                let gone = result.is_ok()
                    && match name {
                        "cancel" => *id == m.waits,
                        "ack" | "ack and send" => *id == m.held.id,
                        "redrive" | "delete" => *id == m.dead,
                        "remove_exported" => *id == m.moving.id,
                        _ => false,
                    };
                let payload = name_of(&format!("msg:{id}"));
                let there: bool = server.command(&["EXISTS", &payload]);
                assert!(there || gone, "{what}: {payload}");
            }
        }
    }
    // Each key is needed by some step, but for what may be anything, and a payload by an export alone.
    for (at, key) in KEYS.iter().enumerate() {
        let is_needed = refused.iter().any(|(of, _)| *of == at);
        assert_eq!(is_needed, *key != "paused", "{key}");
    }
    let of_payload = refused.iter().filter(|(of, _)| *of == KEYS.len());
    assert_eq!(
        of_payload.map(|(_, name)| *name).collect::<Vec<_>>(),
        ["export"]
    );
}

/// What every queue can be asked for while `q` is broken: shown are the others at least.
fn stats_while_broken(url: &str, key: &str) {
    let code = i32::from(!matches!(
        key,
        "paused"
            | "moving:was"
            | "moving:peer"
            | "history"
            | "headers"
            | "dedup"
            | "repeats"
            | "ended"
    )) * 5;
    let code = if key.starts_with("msg:") { 0 } else { code };
    let output = dqhost_stats(url);
    let shown = (stdout(&output), stderr(&output));
    assert!(shown.0.contains("\nfine "), "{key}: {shown:?}");
    let actual = output.status.code();
    // Those that are looked at only while something is in line, or has failed.
    let may_be_whole = matches!(key, "due" | "retry:cnt");
    assert!(
        actual == Some(code) || (may_be_whole && actual == Some(0)),
        "{key}: {shown:?}"
    );
    let is_named = shown.1.contains("queue q is not shown: ") && shown.1.contains(&name_of(key));
    assert_eq!(is_named, actual == Some(5), "{key}: {shown:?}");
}

fn dqhost_stats(url: &str) -> std::process::Output {
    crate::support::dqhost(Some(url), &["stats"])
        .output()
        .unwrap()
}

fn send_to(url: &str, queue: &str, payload: &str, more: &[&str]) {
    run(
        Some(url),
        &[&["send", "--queue", queue, payload], more].concat(),
        0,
    );
}

/// One host, two queues, each key of the one spoilt in turn while messages of all kinds wait.
#[test]
fn one_broken_queue_keeps_no_other_from_going_on_and_goes_on_when_it_is_mended() {
    let server = RedisServer::start();
    let url = server.url();
    let handler = guest("flaky").display().to_string();
    let queues = [format!("q={handler}"), format!("fine={handler}")];
    let args = [
        "--queue",
        &queues[0],
        "--queue",
        &queues[1],
        "--backoff",
        "1ms",
    ];
    let mut host = Host::start(&url, &args);
    let (mut fine, mut acked, mut died) = (0, 0, 0);
    for key in KEYS.into_iter().chain(["msg:spoilt"]) {
        // Acked at once, after a retry, and dead.
        run(Some(&url), &["pause", "--queue", "q", "--create"], 0);
        for (payload, more) in [
            ("1", &[] as &[&str]),
            ("2", &["--header", "k=v"]),
            ("x", &[]),
            ("1", &["--in", "1ms"]),
        ] {
            send_to(&url, "q", payload, more);
        }
        spoil(&server, &name_of(key));
        if key != "paused" {
            // Whatever is under it is all that counts.
            let () = server.command(&["DEL", "{dp:q}:paused"]);
        }
        stats_while_broken(&url, key);
        send_to(&url, "fine", "2", &[]);
        fine += 1;
        eventually("the other goes on", || {
            (stats(&url, "fine")["totals"]["acked"] == fine).then_some(())
        });
        // Those without which no message can be handled; the rest is needed only now and then.
        if matches!(
            key,
            "pending"
                | "ready"
                | "unack"
                | "retry"
                | "retry:cnt"
                | "attempts"
                | "headers"
                | "history"
                | "stats"
        ) {
            let named = host.wait_for_line_with(&format!("the key {} is a ", name_of(key)));
            assert_eq!(named["queue"], "q", "{named}");
        }
        mend(&server, &name_of(key));
        let () = server.command(&["DEL", "{dp:q}:paused"]);
        (acked, died) = (acked + 3, died + 1);
        eventually("it goes on when it is mended", || {
            let now = stats(&url, "q");
            (now["totals"]["acked"] == acked && now["dead"] == died).then_some(())
        });
    }
    host.signal(Signal::TERM);
    let (status, lines) = host.end();
    assert!(status.success(), "{lines:#?}");
    let text = format!("{lines:?}");
    assert!(
        !text.contains("panicked") && !text.contains("a bug in dqhost"),
        "{text}"
    );
}

/// Keys that are for people alone: the host works without them and says what does not.
#[test]
fn lists_for_people_keep_no_message_waiting() {
    let server = RedisServer::start();
    let url = server.url();
    let handler = guest("noop").display().to_string();
    let queues = [format!("q={handler}"), format!("fine={handler}")];
    send_to(&url, "q", "1", &[]);
    send_to(&url, "fine", "1", &[]);
    for key in ["{dp:q}:hosts", "{dp:q}:hosts:info", "dqhost:queues"] {
        spoil(&server, key);
        let mut host = Host::start(&url, &["--queue", &queues[0], "--queue", &queues[1]]);
        let said = host.wait_for_start("this host is not shown to others");
        assert!(said["message"].as_str().unwrap().contains(key), "{said}");
        // Sent by others, who know of no list.
        let () = server.command(&["SET", "{dp:q}:msg:a", "x"]);
        let () = server.command(&["LPUSH", "{dp:q}:ready", "a"]);
        host.wait_for("acked", |line| line["queue"] == "q" && line["id"] == "a");
        if key == "dqhost:queues" {
            let failed = run(Some(&url), &["send", "x", "--queue", "new"], 1);
            assert!(stderr(&failed).contains("the key dqhost:queues is a string"));
            run(Some(&url), &["stats"], 1);
            // A queue that is named needs no list.
            run(Some(&url), &["stats", "--queue", "q"], 0);
            // One that was sent to before is known to the process that did.
        }
        mend(&server, key);
        send_to(&url, "q", "1", &[]);
        host.wait_for("acked", |line| line["queue"] == "q" && line["id"] != "a");
    }
}

#[test]
fn a_frame_shows_the_queues_that_are_whole() {
    let server = RedisServer::start();
    let url = server.url();
    for queue in ["q", "fine"] {
        send_to(&url, queue, "1", &["--in", "1h"]);
    }
    spoil(&server, "{dp:q}:stats");
    let output = run(Some(&url), &["top", "--snapshot"], 5);
    let (frame, errors) = (stdout(&output), stderr(&output));
    assert!(
        frame.contains("> fine") && frame.contains("queue q: "),
        "{frame}"
    );
    assert!(
        errors.contains("queue q: ") && errors.contains("{dp:q}:stats"),
        "{errors}"
    );
    let output = run(Some(&url), &["stats", "--json"], 5);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["queues"][0]["pending"], 1);
    let error = shown["queues"][1]["error"].as_str().unwrap();
    assert!(error.contains("{dp:q}:stats"), "{error}");
}
