//! From one store to another and back: everything arrives, nothing twice, wherever it is cut off.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dqhost::message::{Due, MessageId, NewMessage, Record, State};
use dqhost::store::move_queue::{Progress, move_queue};
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use dqhost::store::{Peer, Settled, Settlement, Store, StoreError};
use tempfile::TempDir;

use crate::contract::tools::*;
use crate::support::{RedisServer, dqhost, expect, run, stats, stderr, stdout};

async fn file(folder: &TempDir, name: &str) -> Arc<dyn Store> {
    let options = SqliteOptions::file(folder.path().join(name));
    Arc::new(SqliteStore::open(&options).await.unwrap())
}

/// Messages in all states but unack: their ids.
async fn fill(store: &dyn Store) -> Vec<MessageId> {
    let headers = vec![("k".to_owned(), "v".to_owned())];
    let mut ids = Vec::new();
    for n in 0..12_u32 {
        let message = NewMessage {
            due: if n < 9 { Due::NOW } else { Due::In(LONG * n) },
            retries: n,
            headers: headers.clone(),
            ..NewMessage::new(vec![0, 255, u8::try_from(n).unwrap()])
        };
        ids.push(message.id.clone());
        store.send(&queue(), &[message]).await.unwrap();
    }
    let claims = reserve(store, 6, LONG).await;
    for (n, how) in [nack(None), nack(Some(LONG)), reject(), nack(None), reject()]
        .into_iter()
        .enumerate()
    {
        assert_eq!(settle(store, &claims[n].claim, how).await, Settled::Done);
        if n == 2 {
            collect_garbage(store).await;
        }
    }
    store
        .release(&queue(), &[claims[5].claim.clone()])
        .await
        .unwrap();
    ids
}

async fn records(store: &dyn Store, ids: &[MessageId]) -> BTreeMap<MessageId, Record> {
    let mut found = BTreeMap::new();
    for id in ids {
        if let Some(record) = store.get(&queue(), id).await.unwrap() {
            found.insert(id.clone(), record);
        }
    }
    found
}

async fn copy(from: &dyn Store, to: &dyn Store) -> Result<u64, StoreError> {
    move_queue(from, to, &queue(), false, |_| ()).await
}

#[tokio::test]
async fn a_queue_moves_to_another_store_and_back_as_it_is() {
    let (folder, server) = (TempDir::new().unwrap(), RedisServer::start());
    let file = file(&folder, "a.db").await;
    let redis = server.store().await;
    let ids = fill(&*file).await;
    let before = records(&*file, &ids).await;
    assert_eq!(before.len(), ids.len());
    let depths_before = depths(&*file).await;

    let order = |state| {
        let store = Arc::clone(&file);
        async move { store.list(&queue(), state, ALL).await.unwrap() }
    };
    let ready = order(State::Ready).await;
    for (from, to) in [(&file, &redis), (&redis, &file)] {
        assert_eq!(copy(&**from, &**to).await.unwrap(), ids.len() as u64);
        assert_eq!(records(&**to, &ids).await, before);
        assert_eq!(depths(&**to).await, depths_before);
        assert!(records(&**from, &ids).await.is_empty());
        assert_eq!(from.counts(&queue()).await.unwrap().moving, 0);
        assert_eq!(copy(&**from, &**to).await.unwrap(), 0);
    }
    assert_eq!(order(State::Ready).await, ready);
    // In Redis nothing is left but what is not of a message: the list of queues, and who copied last.
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    keys.sort();
    assert_eq!(keys, ["dqhost:queues", "{dp:q}:moving:peer"]);
    // What arrived is alive: a dead letter has the budget it had.
    let dead = &file.list(&queue(), State::Dead, ALL).await.unwrap()[0];
    file.redrive(
        &queue(),
        &[dead.id.clone()],
        dqhost::store::Redrive::default(),
    )
    .await
    .unwrap();
    assert_eq!(reserve(&*file, 20, LONG).await.len(), 6);
}

const ALL: dqhost::store::Page = dqhost::store::Page {
    offset: 0,
    limit: 100,
    payload_max: 100,
};

/// Polls a copy so often and then drops it, which is what the death of its process is to the two
/// stores: the call under way may have been done or not. True when it was done before.
async fn cut_off(from: &dyn Store, to: &dyn Store, polls: usize) -> bool {
    let mut copy = pin!(copy(from, to));
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        copy.as_mut().poll(context).map(|done| {
            done.unwrap();
            true
        })
    })
    .await
}

/// Handles everything that waits, as hosts that do not know of the copy would.
async fn handle_all(store: &dyn Store, handled: &mut Vec<MessageId>) {
    for delivery in reserve(store, 100, LONG).await {
        assert_eq!(
            settle(store, &delivery.claim, Settlement::ACK).await,
            Settled::Done
        );
        handled.push(delivery.claim.id);
    }
}

/// Cuts a copy off at every point; hosts of both stores handle what they can reach; then another
/// copy, in the same direction or back. Every message must be handled or kept exactly once.
async fn cut_off_everywhere(a: &dyn Store, b: &dyn Store) {
    for goes_back in [false, true] {
        for polls in 1.. {
            let ids = fill(a).await;
            let was_done = cut_off(a, b, polls).await;
            let mut handled = Vec::new();
            handle_all(a, &mut handled).await;
            handle_all(b, &mut handled).await;
            let (from, to) = if goes_back { (b, a) } else { (a, b) };
            copy(from, to).await.unwrap();
            handle_all(to, &mut handled).await;
            let (here, there) = (records(from, &ids).await, records(to, &ids).await);
            assert!(here.is_empty(), "cut off after {polls} polls: {here:?}");
            assert_eq!(
                handled.len() + there.len(),
                ids.len(),
                "cut off after {polls} polls, back: {goes_back}"
            );
            handled.extend(there.into_keys());
            handled.sort();
            handled.dedup();
            assert_eq!(handled.len(), ids.len(), "cut off after {polls} polls");
            for store in [a, b] {
                assert_eq!(store.counts(&queue()).await.unwrap().moving, 0);
                empty(store).await;
            }
            if was_done {
                // A file may answer before it is waited for, Redis does not.
                assert!(polls > 4, "{polls}");
                break;
            }
        }
    }
}

/// Removes what is left, for the next round.
async fn empty(store: &dyn Store) {
    while store.advance(&queue()).await.unwrap().dead_lettered > 0 {}
    for state in [State::Pending, State::Dead] {
        let listed = store.list(&queue(), state, ALL).await.unwrap();
        let ids: Vec<MessageId> = listed.into_iter().map(|record| record.id).collect();
        store.cancel(&queue(), &ids).await.unwrap();
        store.delete_dead(&queue(), &ids).await.unwrap();
    }
    assert_eq!(depths(store).await, [0; 5]);
}

#[tokio::test]
async fn a_copy_that_is_cut_off_anywhere_loses_and_doubles_nothing() {
    let (folder, server) = (TempDir::new().unwrap(), RedisServer::start());
    let (file, redis) = (file(&folder, "a.db").await, server.store().await);
    cut_off_everywhere(&*file, &*redis).await;
    cut_off_everywhere(&*redis, &*file).await;
}

/// Two copies that both have exported a message: only the later may go on with it, however late the
/// other comes back, or a host could have handled it in between.
#[tokio::test]
async fn of_two_copies_at_once_the_later_goes_on_alone() {
    let (folder, server) = (TempDir::new().unwrap(), RedisServer::start());
    let (a, b) = (file(&folder, "a.db").await, server.store().await);
    for (from, to) in [(&*a, &*b), (&*b, &*a)] {
        let id = send(from, "once", Due::NOW, 3).await;
        let peer = |run: &str| Peer {
            name: "other".to_owned(),
            renamed: true,
            run: run.to_owned(),
        };
        for store in [from, to] {
            store
                .begin_transfer(&queue(), &peer("early"))
                .await
                .unwrap();
        }
        let exported = from.export(&queue(), "early", 10).await.unwrap();
        assert_eq!(exported[0].id, id);
        assert_eq!(
            move_queue(from, to, &queue(), true, |_| ()).await.unwrap(),
            1
        );
        let claim = reserve_one(to, LONG).await.claim;
        settle(to, &claim, Settlement::ACK).await;
        for refused in [
            to.import(&queue(), "early", &exported).await,
            from.remove_exported(&queue(), "early", &[id.clone()]).await,
            to.commit_import(&queue(), "early", &[id.clone()]).await,
            from.export(&queue(), "early", 10).await.map(|_| ()),
        ] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("another copy"), "{error}");
        }
        assert_eq!(records(to, &[id.clone()]).await.len(), 0);
    }
}

#[tokio::test]
async fn what_hosts_have_in_hand_is_waited_for() {
    let folder = TempDir::new().unwrap();
    let (a, b) = (file(&folder, "a.db").await, file(&folder, "b.db").await);
    let kept = send(&*a, "kept", Due::NOW, 3).await;
    send(&*a, "acked", Due::NOW, 3).await;
    let claims = reserve(&*a, 1, Duration::from_millis(200)).await;
    assert_eq!(claims[0].claim.id, kept);
    let acked = reserve_one(&*a, LONG).await.claim;
    let mut waited = Vec::new();
    let queue = queue();
    let (arrived, settled) = tokio::join!(
        move_queue(&*a, &*b, &queue, false, |progress| waited.push(progress)),
        settle(&*a, &acked, Settlement::ACK),
    );
    assert_eq!((arrived.unwrap(), settled), (1, Settled::Done));
    assert!(
        matches!(waited[0], Progress::Waiting { in_flight: 1 | 2 }),
        "{waited:?}"
    );
    // Its lease ended, which cost an attempt as always.
    let record = b.get(&queue, &kept).await.unwrap().unwrap();
    assert_eq!((record.state, record.attempts), (State::Retry, 1));
}

#[tokio::test]
async fn a_store_is_not_copied_to_itself_or_to_a_third_half_way() {
    let folder = TempDir::new().unwrap();
    let a = file(&folder, "a.db").await;
    let id = send(&*a, "a", Due::NOW, 3).await;
    // The same folder by another name.
    std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).unwrap();
    let alias = file(&folder, "link/a.db").await;
    let error = copy(&*a, &*alias).await.unwrap_err().to_string();
    assert!(error.contains("in already"), "{error}");
    assert_eq!(state_of(&*a, &id).await, Some(State::Ready));
    assert!(a.hosts(&queue(), LONG).await.unwrap().is_empty());

    let (b, c) = (file(&folder, "b.db").await, file(&folder, "c.db").await);
    // How far a copy to the second comes before it ends.
    let peer = |store: &dyn Store| Peer {
        name: store.describe(),
        renamed: false,
        run: "first".to_owned(),
    };
    a.begin_transfer(&queue(), &peer(&*b)).await.unwrap();
    b.begin_transfer(&queue(), &peer(&*a)).await.unwrap();
    assert_eq!(a.export(&queue(), "first", 10).await.unwrap().len(), 1);
    let error = copy(&*a, &*c).await.unwrap_err().to_string();
    assert!(error.contains(&b.describe()), "{error}");
    let file = folder.path().join("a.db");
    let shown = stdout(&run(Some(file.to_str().unwrap()), &["stats"], 0));
    assert!(shown.contains("q: 1 messages are on their way"), "{shown}");
    // Under its new name it goes on.
    assert_eq!(
        move_queue(&*a, &*c, &queue(), true, |_| ()).await.unwrap(),
        1
    );
    assert_eq!(state_of(&*c, &id).await, Some(State::Ready));
}

#[test]
fn the_command_moves_all_queues() {
    let (folder, server) = (TempDir::new().unwrap(), RedisServer::start());
    let file = folder.path().join("a.db").to_str().unwrap().to_owned();
    for queue in ["a", "b"] {
        for payload in ["1", "2"] {
            run(
                Some(&file),
                &["send", payload, "--queue", queue, "--in", "1h"],
                0,
            );
        }
    }
    let copy = |from: &str, to: &str| {
        let mut command = dqhost(None, &["move", "--from", from, "--to", to]);
        stdout(&expect(
            command.env("STORE", server.url()).output().unwrap(),
            0,
        ))
    };
    let text = copy(&file, "env:STORE");
    assert!(text.contains("a: 2 messages from sqlite://"), "{text}");
    assert_eq!(stats(&server.url(), "b")["pending"], 2);
    assert_eq!(stats(&file, "b")["pending"], 0);
    let none = [
        "move",
        "--from",
        &file,
        "--to",
        &server.url(),
        "--queue",
        "mistyped",
    ];
    let refusal = stderr(&run(None, &none, 1));
    assert!(refusal.contains("there is no queue mistyped"), "{refusal}");
    assert!(!server.dump().contains("mistyped"));
    copy(&server.url(), &format!("sqlite://{file}"));
    assert_eq!(stats(&file, "a")["pending"], 2);

    for (from, to, code, says) in [
        ("/nowhere/a.db", "b.db", 3, "there is no file"),
        (
            &*file,
            "http://user:secret@host",
            2,
            "cannot be named by http",
        ),
        (&*file, "env:NOT_SET", 2, "is not set"),
        (&*file, ":memory:", 2, "would go with this command"),
        (&*file, &*file, 1, "in already"),
    ] {
        let errors = stderr(&run(None, &["move", "--from", from, "--to", to], code));
        assert!(
            errors.contains(says) && !errors.contains("secret"),
            "{errors}"
        );
    }
    assert_eq!(stats(&file, "a")["pending"], 2);
}

#[tokio::test]
async fn a_message_that_arrives_without_its_payload_is_dead_and_says_why() {
    let (folder, server) = (TempDir::new().unwrap(), RedisServer::start());
    let (from, to) = (server.store().await, file(&folder, "to.db").await);
    let message = NewMessage::new("lost");
    from.send(&queue(), std::slice::from_ref(&message))
        .await
        .unwrap();
    let key = format!("{{dp:{}}}:msg:{}", queue(), message.id);
    assert_eq!(server.command::<u32>(&["DEL", &key]), 1);
    move_queue(&*from, &*to, &queue(), false, |_| {})
        .await
        .unwrap();
    collect_garbage(&*to).await;
    let record = to.get(&queue(), &message.id).await.unwrap().unwrap();
    assert_eq!(record.state, State::Dead);
    assert_eq!(record.last_attempt().unwrap().class, "payload-missing");
}

/// Scripts of the version before say `copy`.
#[test]
fn the_old_name_of_move_is_still_understood() {
    let help = |name: &str| stdout(&run(None, &[name, "--help"], 0));
    assert_eq!(help("copy"), help("move"));
}

#[tokio::test]
async fn a_paused_schedule_is_paused_where_its_queue_goes() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let (a, b) = (server.store().await, file(&folder, "b.db").await);
    for (from, to) in [(&a, &b), (&b, &a)] {
        from.send(&queue(), &[NewMessage::new("x")]).await.unwrap();
        for (name, paused) in [("stops", true), ("ticks", false)] {
            from.set_schedule_paused(&queue(), name, paused)
                .await
                .unwrap();
        }
        copy(&**from, &**to).await.unwrap();
        let states = to.schedules(&queue()).await.unwrap();
        let paused = states.iter().filter(|one| one.paused_since_ms.is_some());
        let names: Vec<&str> = paused.map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["stops"]);
    }
}
