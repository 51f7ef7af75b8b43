//! What the Redis store does to Redis, looked at from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dqhost::message::{Due, MessageId, NewMessage, State};
use dqhost::store::prelude::*;
use dqhost::store::redis::{RedisOptions, RedisStore};
use dqhost::store::{Redriven, Settled, Settlement, Store, StoreError};

use futures_util::future::join_all;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::contract::settle::outbox::{ack_with, in_flight, other, to};
use crate::contract::tools::*;
use crate::support::{RedisServer, eventually};

/// Lets host A's lease end, gives the message to B, and returns both claims.
async fn overtaken(store: &dyn Store) -> [dqhost::message::Claim; 2] {
    send(store, "contested", Due::NOW, 3).await;
    let a = reserve_one(store, SHORT).await.claim;
    advance_until(store, |advanced| advanced.expired == 1).await;
    let b = reserve_one(store, LONG).await.claim;
    [a, b]
}

/// Says everything that a host can say of a delivery, twice, and checks that no byte changes.
async fn nothing_changes(server: &RedisServer, store: &dyn Store, stale: &dqhost::message::Claim) {
    let before = server.dump();
    for _ in 0..2 {
        for how in [Settlement::ACK, nack(None), nack(Some(LONG)), reject()] {
            assert_eq!(settle(store, stale, how.clone()).await, Settled::LeaseLost);
            assert_eq!(server.dump(), before, "{how:?}");
        }
        let claims = [stale.clone()];
        assert_eq!(
            store.extend(&queue(), &claims, LONG).await.unwrap(),
            [Settled::LeaseLost]
        );
        assert_eq!(
            store.release(&queue(), &claims).await.unwrap(),
            [Settled::LeaseLost]
        );
        assert_eq!(server.dump(), before);
    }
}

#[tokio::test]
async fn a_host_whose_lease_has_ended_changes_no_byte() {
    let server = RedisServer::start();
    let store = server.store().await;
    let [a, b] = overtaken(&*store).await;
    nothing_changes(&server, &*store, &a).await;
    // After B's ack, too, and after its own second say.
    assert_eq!(settle(&*store, &b, Settlement::ACK).await, Settled::Done);
    nothing_changes(&server, &*store, &a).await;
    nothing_changes(&server, &*store, &b).await;
    // And after the message is dead.
    let [a, b] = overtaken(&*store).await;
    assert_eq!(settle(&*store, &b, reject()).await, Settled::Done);
    nothing_changes(&server, &*store, &b).await;
    collect_garbage(&*store).await;
    nothing_changes(&server, &*store, &a).await;
    nothing_changes(&server, &*store, &b).await;
}

#[tokio::test]
async fn after_everything_only_the_totals_are_left() {
    let server = RedisServer::start();
    let store = server.store().await;
    for n in 0..20 {
        let headers = vec![("k".to_owned(), n.to_string())];
        let due = Due::In(Duration::from_millis(n % 2));
        let message = NewMessage {
            headers,
            due,
            retries: 1,
            ..NewMessage::new("x")
        };
        store.send(&queue(), &[message]).await.unwrap();
    }
    let mut dead = Vec::new();
    while !store.counts(&queue()).await.unwrap().is_drained() {
        store.advance(&queue()).await.unwrap();
        for (n, delivery) in reserve(&*store, 3, LONG).await.into_iter().enumerate() {
            let how = [Settlement::ACK, nack(None), nack(Some(SHORT))][n].clone();
            if how != Settlement::ACK && delivery.attempt == delivery.attempts_max {
                dead.push(delivery.claim.id.clone());
            }
            settle(&*store, &delivery.claim, how).await;
        }
    }
    while store.advance(&queue()).await.unwrap().dead_lettered > 0 {}
    assert!(!dead.is_empty());
    assert!(
        store
            .delete_dead(&queue(), &dead)
            .await
            .unwrap()
            .iter()
            .all(|deleted| *deleted)
    );
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    keys.sort();
    assert_eq!(keys, ["dqhost:queues", "{dp:q}:stats"]);
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_loaded_again() {
    let server = RedisServer::start();
    let store = server.store().await;
    for n in 0..5 {
        let () = server.command(&["SCRIPT", "FLUSH"]);
        send(&*store, &n.to_string(), Due::NOW, 3).await;
        let () = server.command(&["SCRIPT", "FLUSH"]);
        store.advance(&queue()).await.unwrap();
        let () = server.command(&["SCRIPT", "FLUSH"]);
        let claim = reserve_one(&*store, LONG).await.claim;
        let () = server.command(&["SCRIPT", "FLUSH"]);
        let how = match n % 2 {
            0 => Settlement::ACK,
            _ => ack_with(&[to("other", NewMessage::new("x"))]),
        };
        assert_eq!(settle(&*store, &claim, how).await, Settled::Done);
    }
    assert_eq!(store.counts(&other("other")).await.unwrap().ready, 2);
}

/// Otherwise many queues would wait for one another's time limits.
#[tokio::test]
async fn requests_that_wait_for_a_connection_share_the_try() {
    let server = RedisServer::start();
    let store = server.store().await;
    let mut watcher = server.connection();
    let mut connections = || -> u64 {
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("stats").query(&mut watcher).unwrap();
        let (_, rest) = info.split_once("total_connections_received:").unwrap();
        rest.lines().next().unwrap().trim().parse().unwrap()
    };
    let before = connections();
    server.signal(Signal::STOP);
    // The first find out that the connection is dead.
    for _ in 0..2 {
        let asked = (0..10).map(|_| async { store.counts(&queue()).await });
        for answer in join_all(asked).await {
            assert!(matches!(answer, Err(StoreError::Unreachable { .. })));
        }
    }
    server.signal(Signal::CONT);
    let made = eventually("the server has seen what came meanwhile", || {
        let made = connections() - before;
        (made > 0).then_some(made)
    });
    assert_eq!(made, 1);
    store.counts(&queue()).await.unwrap();
}

#[tokio::test]
async fn a_full_server_refuses_new_messages_and_lets_the_old_ones_go() {
    let server = RedisServer::start();
    let store = server.store().await;
    let ids = [
        send(&*store, "ack", Due::NOW, 3).await,
        send(&*store, "reject", Due::NOW, 3).await,
    ];
    let () = server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = server.dump();
    let error = store
        .send(&queue(), &[NewMessage::new("one more")])
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }) && error.to_string().contains("OOM"));
    assert_eq!(server.dump(), before);
    store.advance(&queue()).await.unwrap();
    let deliveries = reserve(&*store, 2, LONG).await;
    let claims: Vec<_> = deliveries.into_iter().map(|d| d.claim).collect();
    assert_eq!(
        store.extend(&queue(), &claims, LONG).await.unwrap(),
        [Settled::Done; 2]
    );
    assert_eq!(
        settle(&*store, &claims[0], nack(Some(SHORT))).await,
        Settled::Done
    );
    advance_until(&*store, |advanced| advanced.promoted == 1).await;
    let again = reserve_one(&*store, LONG).await.claim;
    assert_eq!(
        settle(&*store, &again, Settlement::ACK).await,
        Settled::Done
    );
    assert_eq!(settle(&*store, &claims[1], reject()).await, Settled::Done);
    collect_garbage(&*store).await;
    let edited = store.redrive_edited(&queue(), &ids[1], b"new", None).await;
    assert!(edited.unwrap_err().to_string().contains("OOM"));
    for paused in [true, false] {
        store.set_paused(&queue(), paused).await.unwrap();
    }
    let () = server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    send(&*store, "room again", Due::NOW, 3).await;
    assert_eq!(state_of(&*store, &ids[1]).await, Some(State::Dead));
}

#[tokio::test]
async fn a_full_server_refuses_an_ack_that_sends_and_no_other_settlement() {
    let server = RedisServer::start();
    let store = server.store().await;
    let [own, new, plain, nacked] = in_flight(&*store, 4).await.try_into().unwrap();
    let own = (own, ack_with(&[to("q", NewMessage::new("a"))]));
    // A queue that is not in the list of queues yet.
    let new = (new, ack_with(&[to("new", NewMessage::new("b"))]));
    let () = server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for forget in [false, true] {
        if forget {
            let () = server.command(&["SCRIPT", "FLUSH"]);
        }
        let before = server.dump();
        let both = [own.clone(), new.clone()];
        for some in [&both[..], &both[..1], &both[1..]] {
            let answers = store.settle(&queue(), some).await.unwrap();
            assert_eq!(answers, vec![Settled::Refused; some.len()]);
            assert_eq!(server.dump(), before);
        }
    }
    let mixed = [
        own.clone(),
        (plain, Settlement::ACK),
        new.clone(),
        (nacked, nack(None)),
    ];
    let answers = store.settle(&queue(), &mixed).await.unwrap();
    let [done, no_room] = [Settled::Done, Settled::Refused];
    assert_eq!(answers, [no_room, done, no_room, done]);
    assert_eq!(depths(&*store).await, [0, 0, 2, 1, 0]);
    assert_eq!(store.queues().await.unwrap(), [queue()]);
    let claims = [own.0.clone(), new.0.clone()];
    let extended = store.extend(&queue(), &claims, LONG).await.unwrap();
    assert_eq!(extended, [done; 2]);

    let () = server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let answers = store.settle(&queue(), &[own, new]).await.unwrap();
    assert_eq!(answers, [done; 2]);
    assert_eq!(depths(&*store).await, [0, 1, 0, 1, 0]);
    assert_eq!(store.queues().await.unwrap(), [other("new"), queue()]);
    assert_eq!(store.counts(&other("new")).await.unwrap().ready, 1);
}

/// A key of the wrong type in one of the queues that are sent to: nothing is written to any.
#[tokio::test]
async fn an_ack_sends_to_all_queues_or_to_none() {
    let server = RedisServer::start();
    let store = server.store().await;
    let claim = in_flight(&*store, 1).await.remove(0);
    let how = || {
        ack_with(&["q", "one", "two", "three"].map(|name| {
            let headers = vec![("k".to_owned(), "v".to_owned())];
            let message = NewMessage::new("x");
            to(name, NewMessage { headers, ..message })
        }))
    };
    // Now the queues are in the list of queues.
    settle(&*store, &in_flight(&*store, 1).await[0], how()).await;
    for name in ["pending", "ready", "retry:cnt", "headers", "stats"] {
        let key = format!("{{dp:two}}:{name}");
        let saved = format!("{{dp:two}}:saved:{name}");
        let is_there: bool = server.command(&["EXISTS", &key]);
        if is_there {
            let () = server.command(&["RENAME", &key, &saved]);
        }
        // Neither a sorted set nor a list or a hash.
        let () = server.command(&["SET", &key, "broken"]);
        let before = server.dump();
        assert_eq!(settle(&*store, &claim, how()).await, Settled::Refused);
        assert_eq!(server.dump(), before, "with a broken {name}");
        let () = server.command(&["DEL", &key]);
        if is_there {
            let () = server.command(&["RENAME", &saved, &key]);
        }
    }
    assert_eq!(settle(&*store, &claim, how()).await, Settled::Done);
}

#[tokio::test]
async fn a_payload_that_others_deleted_is_told_and_ends_dead() {
    let server = RedisServer::start();
    let store = server.store().await;
    let id = send(&*store, "a", Due::NOW, 3).await;
    let () = server.command(&["DEL", &format!("{{dp:q}}:msg:{id}")]);
    let delivery = reserve_one(&*store, LONG).await;
    assert_eq!(delivery.payload, None);
    settle(&*store, &delivery.claim, reject()).await;
    collect_garbage(&*store).await;
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    assert_eq!((record.state, record.payload), (State::Dead, None));
    let answers = store
        .redrive(&queue(), &[id.clone()], dqhost::store::Redrive::default())
        .await
        .unwrap();
    assert_eq!(answers, [Redriven::PayloadMissing]);
    // With a payload that someone gives it, it can be sent all the same.
    let answer = store.redrive_edited(&queue(), &id, b"found", None).await;
    assert!(matches!(answer, Ok(Redriven::As(_))), "{answer:?}");
    let delivery = reserve_one(&*store, LONG).await;
    assert_eq!(delivery.payload.as_deref(), Some(b"found".as_slice()));
    assert_eq!(state_of(&*store, &id).await, Some(State::Dead));
}

#[tokio::test]
async fn one_that_is_sent_again_after_others_deleted_its_payload_is_counted_once() {
    let server = RedisServer::start();
    let store = server.store().await;
    let message = NewMessage {
        due: Due::In(LONG),
        ..NewMessage::new("a")
    };
    let id = &message.id;
    for _ in 0..2 {
        let () = server.command(&["DEL", &format!("{{dp:q}}:msg:{id}")]);
        let sent = store.send(&queue(), std::slice::from_ref(&message)).await;
        assert!(sent.unwrap()[0].due_at_ms.is_some());
    }
    let record = store.get(&queue(), id).await.unwrap().unwrap();
    assert_eq!(record.payload.as_deref(), Some(b"a".as_slice()));
    let counts = store.counts(&queue()).await.unwrap();
    assert_eq!((counts.pending, counts.totals.sent), (1, 1));
}

#[tokio::test]
async fn what_is_put_off_loses_the_time_limit_that_others_gave_it() {
    let server = RedisServer::start();
    let store = server.store().await;
    let id = send(&*store, "a", Due::In(LONG), 3).await;
    let key = format!("{{dp:q}}:msg:{id}");
    let () = server.command(&["EXPIRE", &key, "600"]);
    let ids = [id];
    store
        .reschedule(&queue(), &ids, Due::In(2 * LONG))
        .await
        .unwrap();
    let limit: i64 = server.command(&["TTL", &key]);
    assert_eq!(limit, -1);
}

async fn open_error(url: String, allow_eviction: bool) -> StoreError {
    let options = RedisOptions {
        allow_eviction,
        ..RedisOptions::new(url)
    };
    match RedisStore::open(&options).await {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn servers_that_would_lose_messages_are_refused() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "volatile-lru"]);
    let error = open_error(server.url(), false).await.to_string();
    assert!(error.contains("volatile-lru") && error.contains("CONFIG SET maxmemory-policy"));
    let options = RedisOptions {
        allow_eviction: true,
        ..RedisOptions::new(server.url())
    };
    assert!(RedisStore::open(&options).await.is_ok());

    let master = RedisServer::start();
    let () = master.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = open_error(master.url(), false).await.to_string();
    assert!(
        error.contains("read-only replica") && error.contains("127.0.0.1:1"),
        "{error}"
    );
}

#[tokio::test]
async fn passwords_are_asked_for_and_never_shown() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    let path = server.url().replace("unix://", "unix:");
    for (password, url) in [
        (
            "wrong",
            format!("{}?pass=wrong", path.replace("unix:", "unix://")),
        ),
        ("", server.url()),
    ] {
        let error = open_error(url, false).await;
        assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
        assert!(
            password.is_empty() || !error.to_string().contains(password),
            "{error}"
        );
    }
    let options = RedisOptions::new(format!("{}?pass=right", server.url()));
    let store = RedisStore::open(&options).await.unwrap();
    assert!(!store.describe().contains("right"));
}

/// Stands in for an old server: Debian has none to install.
#[tokio::test]
async fn an_old_server_is_refused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4096];
        loop {
            let read = stream.read(&mut buffer).await.unwrap();
            let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
            for command in ["SETINFO", "INFO"] {
                for _ in 0..text.matches(&format!("\r\n{command}\r\n")).count() {
                    let answer = match command {
                        "INFO" => "$37\r\nredis_version:6.2.14\r\nrole:master\r\n\r\n\r\n",
                        _ => "+OK\r\n",
                    };
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
            if read == 0 {
                return;
            }
        }
    });
    let error = open_error(url, false).await.to_string();
    assert!(error.contains("6.2.14") && error.contains("7.0"), "{error}");
}

#[tokio::test]
async fn a_payload_id_of_any_form_is_survived() {
    let server = RedisServer::start();
    let store = server.store().await;
    // Bytes that are no text, as a hostile producer may write them.
    let mut push = redis::cmd("LPUSH");
    push.arg("{dp:q}:ready")
        .arg(b"\xff\xfe".as_slice())
        .arg("\x1b[2J");
    let () = push.query(&mut server.connection()).unwrap();
    let mut count = redis::cmd("HSET");
    count.arg("{dp:q}:retry:cnt");
    count
        .arg(b"\xff\xfe".as_slice())
        .arg(0)
        .arg("\x1b[2J")
        .arg(0);
    let () = count.query(&mut server.connection()).unwrap();
    let deliveries = reserve(&*store, 10, SHORT).await;
    assert_eq!(deliveries.len(), 2);
    assert!(deliveries.iter().all(|delivery| delivery.payload.is_none()));
    // The one whose id cannot be said ends by its lease, like any that no host answers for.
    while depths(&*store).await != [0, 0, 0, 0, 2] {
        store.advance(&queue()).await.unwrap();
        reserve(&*store, 10, SHORT).await;
    }
    assert_eq!(
        state_of(&*store, &MessageId::from("\x1b[2J")).await,
        Some(State::Dead)
    );
}

/// Passes connections on to a server, until it is told to swallow what comes through those that it
/// has: a black hole, in which nothing is refused and nothing answered.
async fn proxy(server: &RedisServer) -> (String, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let swallowed = Arc::new(AtomicUsize::new(0));
    let (path, hole) = (server.url().replace("unix://", ""), Arc::clone(&swallowed));
    tokio::spawn(async move {
        for number in 1.. {
            let (client, _) = listener.accept().await.unwrap();
            let redis = tokio::net::UnixStream::connect(&path).await.unwrap();
            let hole = Arc::clone(&hole);
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_redis, mut to_redis) = redis.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut from_redis, &mut to_client).await });
                let mut buffer = vec![0; 65_536];
                while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                    if number > hole.load(Ordering::SeqCst) {
                        to_redis.write_all(&buffer[..read]).await.unwrap();
                    }
                }
            });
        }
    });
    (url, swallowed)
}

#[tokio::test]
async fn a_request_that_was_given_up_leaves_a_black_hole_behind() {
    let server = RedisServer::start();
    let (url, swallowed) = proxy(&server).await;
    let options = RedisOptions::new(url);
    let store = RedisStore::open(&options).await.unwrap();
    send(&store, "a", Due::NOW, 3).await;
    let claims = [reserve_one(&store, LONG).await.claim];
    assert_eq!(
        store.extend(&queue(), &claims, LONG).await.unwrap(),
        [Settled::Done]
    );
    // All connections so far, and no later one.
    swallowed.store(2, Ordering::SeqCst);
    let queue = queue();
    let extend = store.extend(&queue, &claims, LONG);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), extend)
            .await
            .is_err()
    );
    assert_eq!(
        store.extend(&queue, &claims, LONG).await.unwrap(),
        [Settled::Done]
    );
}
