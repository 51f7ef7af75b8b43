//! The embedded store as a file: which one is used, who shares it, what is wrong with it.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dqhost::message::{Due, NewMessage, State};
use dqhost::store::prelude::*;
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use dqhost::store::{BATCH_MAX, DueSpan, Settlement};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::contract::settle::outbox::{ack_with, in_flight, to};
use crate::contract::tools::*;
use crate::support::{
    Host, PATIENCE, RedisServer, dqhost, eventually, expect, feed, guest, run, stats, stderr,
    stdout,
};

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn without_redis_the_file_in_the_data_folder_is_used() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let run = |args: &[&str], environment: &[(&str, &str)], code| {
        let mut command = dqhost(None, args);
        command
            .env("XDG_DATA_HOME", &data)
            .envs(environment.iter().copied());
        expect(command.output().unwrap(), code)
    };
    run(&["send", "a"], &[], 0);
    let file = data.join("dqhost/dqhost.db");
    assert!(file.exists());
    let mode = fs::metadata(data.join("dqhost"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    let shown = stdout(&run(&["stats"], &[], 0));
    assert!(
        shown.contains(&format!("store sqlite://{}", file.display())),
        "{shown}"
    );

    // A flag before the environment, and what is ours there before what others use as well.
    let (one, other) = (
        text(&folder.path().join("1.db")),
        text(&folder.path().join("2.db")),
    );
    let nowhere = "redis://127.0.0.1:1";
    for (args, environment) in [
        (
            &["send", "x", "--db", &one] as &[&str],
            &[("DQHOST_DB", &*other)] as &[(&str, &str)],
        ),
        (&["send", "x", "--db", &one], &[("DQHOST_REDIS", nowhere)]),
        (
            &["send", "x"],
            &[("DQHOST_DB", &*one), ("REDIS_URL", nowhere)],
        ),
        (
            &["send", "x"],
            &[("DQHOST_DB", &*one), ("DQHOST_REDIS", "")],
        ),
    ] {
        run(args, environment, 0);
    }
    assert_eq!(stats(&one, "default")["ready"], 4);
    run(&["stats", "--redis", nowhere], &[("DQHOST_DB", &*one)], 3);
    let errors = run(
        &["stats"],
        &[("DQHOST_DB", &*one), ("DQHOST_REDIS", nowhere)],
        2,
    );
    assert!(stderr(&errors).contains("both set"));
    run(&["stats", "--db", &one, "--redis", nowhere], &[], 2);
    let errors = run(
        &["send", "x"],
        &[("XDG_DATA_HOME", "relative"), ("HOME", "")],
        2,
    );
    assert!(stderr(&errors).contains("--db PATH"));
}

#[test]
fn what_is_kept_in_memory_is_said_to_be_lost() {
    let folder = TempDir::new().unwrap();
    let errors = stderr(&run(None, &["send", "x", "--db", ":memory:"], 2));
    assert!(errors.contains("goes with the process"), "{errors}");
    let handler = guest("echo");
    let args = [
        "--handler",
        handler.to_str().unwrap(),
        "--db",
        ":memory:",
        "--exit-when-empty",
    ];
    let mut command = dqhost(None, &args);
    let output = expect(command.current_dir(folder.path()).output().unwrap(), 0);
    let log = stderr(&output);
    assert!(log.contains("nothing is kept when this host ends"), "{log}");
    assert!(log.contains("memory (nothing is kept)"), "{log}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Every command that needs a store must refuse it with this code and these words.
fn refused(db: &str, says: &str) {
    let handler = guest("echo").to_str().unwrap().to_owned();
    for args in [
        &["stats"] as &[&str],
        &["send", "x"],
        &["--handler", &handler, "--exit-when-empty"],
    ] {
        let errors = stderr(&run(Some(db), args, 3));
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
}

#[test]
fn a_file_that_is_none_of_ours_is_refused_and_left_as_it_is() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| text(&folder.path().join(name));
    let content = "not a database, but as long as the header of one: ".repeat(10);
    fs::write(path("text"), &content).unwrap();
    refused(&path("text"), "not a database file");
    assert_eq!(fs::read_to_string(path("text")).unwrap(), content);

    let other = Connection::open(path("other")).unwrap();
    other
        .execute_batch("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1);")
        .unwrap();
    drop(other);
    let before = fs::read(path("other")).unwrap();
    refused(&path("other"), "the database of another program");
    assert_eq!(fs::read(path("other")).unwrap(), before);

    run(Some(&path("newer")), &["send", "x"], 0);
    let newer = Connection::open(path("newer")).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    refused(&path("newer"), "a newer dqhost has made it (schema 99");

    fs::create_dir(path("folder")).unwrap();
    refused(&path("folder"), "cannot be opened");
    refused(&path("missing/dqhost.db"), "missing/dqhost.db");
    for args in [
        ["stats"].as_slice(),
        &["get", "x"],
        &["list", "ready"],
        &["dead", "list"],
    ] {
        let errors = stderr(&run(Some(&path("mistyped")), args, 3));
        assert!(errors.contains("there is no file"), "{errors}");
    }
    assert!(!folder.path().join("mistyped").exists());
}

/// As releases with schema 1 made it, with one message in line.
fn file_of_schema_1(path: &Path) {
    let old = Connection::open(path).unwrap();
    old.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")
        .unwrap();
    let schema = include_str!("../../src/store/sqlite/migrations/1.sql");
    old.execute_batch(schema).unwrap();
    old.execute_batch(
        "PRAGMA application_id = 0x6471686f;
         PRAGMA user_version = 1;
         INSERT INTO queues (name, tail, ready, sent) VALUES ('q', 1099511627778, 1, 1);
         INSERT INTO messages (queue, id, state, place, retries_left, payload)
           VALUES (1, 'old', 3, 1099511627777, 3, CAST('payload' AS BLOB));",
    )
    .unwrap();
}

#[tokio::test]
async fn a_file_of_an_older_schema_is_brought_up_to_date() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    file_of_schema_1(&path);
    let store = SqliteStore::open(&SqliteOptions::file(&path))
        .await
        .unwrap();
    assert!(!store.overview(&queue()).await.unwrap().paused);
    store.set_paused(&queue(), true).await.unwrap();
    drop(store);
    // Once more: it is not changed a second time, and is as it was left.
    let store = SqliteStore::open(&SqliteOptions::file(&path))
        .await
        .unwrap();
    assert!(reserve(&store, 1, LONG).await.is_empty());
    store.set_paused(&queue(), false).await.unwrap();
    let new = NewMessage {
        dedup_window: LONG,
        ..NewMessage::new("new")
    };
    store.send(&queue(), &[new.clone()]).await.unwrap();
    let deliveries = reserve(&store, 2, LONG).await;
    let ids: Vec<&str> = deliveries.iter().map(|d| d.claim.id.as_str()).collect();
    assert_eq!(ids, ["old", new.id.as_str()]);
    assert_eq!(
        deliveries[0].payload.as_deref(),
        Some(b"payload".as_slice())
    );
    for delivery in deliveries {
        settle(&store, &delivery.claim, Settlement::ACK).await;
    }
    assert_eq!(depths(&store).await, [0; 5]);
}

#[test]
fn what_only_looks_leaves_a_file_of_an_older_schema_to_its_version() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (path, copy, empty) = (at("dqhost.db"), at("copy.db"), at("empty.db"));
    file_of_schema_1(&path);
    let version = |path: &Path| -> i64 {
        let file = Connection::open(path).unwrap();
        let version = file.pragma_query_value(None, "user_version", |row| row.get(0));
        version.unwrap()
    };
    run(Some(&text(&path)), &["backup", &text(&copy)], 0);
    let found = stdout(&run(Some(&text(&path)), &["doctor"], 0));
    let line = found
        .lines()
        .find(|line| line.contains("schema 1"))
        .unwrap();
    assert!(line.starts_with("warn "), "{found}");
    let mut completion = dqhost(Some(&text(&path)), &["--", "dqhost", "stats", "-q", ""]);
    completion
        .env("DQHOST_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", "3");
    let candidates = expect(completion.output().unwrap(), 0);
    assert_eq!(stdout(&candidates), "");
    assert_eq!((version(&path), version(&copy)), (1, 1));
    // Any other command brings it up to date, and the copy as well.
    for file in [&path, &copy] {
        let told = stdout(&run(
            Some(&text(file)),
            &["list", "ready", "--queue", "q"],
            0,
        ));
        assert!(told.contains("old"), "{told}");
        assert!(version(file) > 1);
    }
    fs::write(&empty, "").unwrap();
    let told = stdout(&run(Some(&text(&empty)), &["doctor"], 0));
    assert!(told.contains("is empty"), "{told}");
    let refusal = stderr(&run(
        Some(&text(&empty)),
        &["backup", &text(&at("none.db"))],
        2,
    ));
    assert!(refusal.contains("there is nothing to copy"), "{refusal}");
    assert_eq!((version(&empty), at("none.db").exists()), (0, false));
}

/// As another user than root, whom no permission stops.
fn as_nobody(mut command: Command) -> Command {
    use std::os::unix::process::CommandExt;
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    let folder = TempDir::new().unwrap();
    let db = text(&folder.path().join("dqhost.db"));
    run(Some(&db), &["send", "x"], 0);
    for (of_folder, of_file) in [(0o555, 0o444), (0o755, 0o444)] {
        fs::set_permissions(&db, fs::Permissions::from_mode(of_file)).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(of_folder)).unwrap();
        let output = as_nobody(dqhost(Some(&db), &["send", "x"]))
            .output()
            .unwrap();
        let errors = stderr(&expect(output, 3));
        assert!(
            errors.contains("writable") || errors.contains("written"),
            "{errors}"
        );
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&db, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(stats(&db, "default")["ready"], 1);
}

#[test]
fn a_full_disk_stops_what_comes_in_and_loses_nothing_that_is_there() {
    let folder = TempDir::new().unwrap();
    let db = text(&folder.path().join("dqhost.db"));
    let line = format!("{{\"payload\":\"{}\"}}\n", "x".repeat(20_000));
    let lines = line.repeat(400);
    // A limit on the size of files stands for a quota or a full disk: a write in the middle of a
    // transaction fails.
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 4000; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_dqhost"))
        .args(["send", "--ndjson", "--db", &db]);
    let output = feed(limited, lines.as_bytes());
    let accepted = stdout(&output).lines().count();
    let errors = stderr(&expect(output, 3));
    assert!(errors.contains("cannot be written"), "{errors}");
    assert!(accepted < 400);
    let counts = stats(&db, "default");
    assert_eq!(counts["ready"], accepted, "{errors}");
    let connection = Connection::open(&db).unwrap();
    let check: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    // With room again it goes on.
    expect(
        feed(dqhost(Some(&db), &["send", "--ndjson"]), lines.as_bytes()),
        0,
    );
    assert_eq!(stats(&db, "default")["ready"], accepted + 400);
}

#[tokio::test]
async fn a_disk_that_is_almost_full_takes_no_more_and_can_be_emptied() {
    let folder = TempDir::new().unwrap();
    let mut options = SqliteOptions::file(folder.path().join("dqhost.db"));
    let store = SqliteStore::open(&options).await.unwrap();
    send(&store, "a", Due::NOW, 3).await;
    options.free_min = u64::MAX;
    let full = SqliteStore::open(&options).await.unwrap();
    let error = full
        .send(&queue(), &[NewMessage::new("b")])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("make room"), "{error}");
    let claim = reserve_one(&full, LONG).await.claim;
    assert_eq!(
        settle(&full, &claim, Settlement::ACK).await,
        dqhost::store::Settled::Done
    );
    assert_eq!(depths(&full).await, [0; 5]);
}

#[tokio::test]
async fn a_disk_that_is_almost_full_takes_no_ack_that_sends() {
    use dqhost::store::Settled::{Done, LeaseLost, Refused};

    let folder = TempDir::new().unwrap();
    let mut options = SqliteOptions::file(folder.path().join("dqhost.db"));
    let store = SqliteStore::open(&options).await.unwrap();
    options.free_min = u64::MAX;
    let full = SqliteStore::open(&options).await.unwrap();
    let [sends, plain, nacked] = in_flight(&store, 3).await.try_into().unwrap();
    let outbox = ["q", "new"].map(|name| to(name, NewMessage::new("x")));
    let sends = (sends, ack_with(&outbox));
    let batch = [
        sends.clone(),
        (plain, Settlement::ACK),
        (nacked, nack(None)),
    ];
    let answers = full.settle(&queue(), &batch).await.unwrap();
    assert_eq!(answers, [Refused, Done, Done]);
    assert_eq!(depths(&full).await, [0, 0, 1, 1, 0]);
    assert_eq!(full.queues().await.unwrap(), [queue()]);
    // With room it is done; then its lease is gone, room or not.
    for (store, answer) in [(&store, Done), (&full, LeaseLost)] {
        let answers = store.settle(&queue(), &[sends.clone()]).await.unwrap();
        assert_eq!(answers, [answer]);
        assert_eq!(depths(store).await, [0, 1, 0, 1, 0]);
    }
}

#[test]
fn a_damaged_page_is_told() {
    let folder = TempDir::new().unwrap();
    let db = text(&folder.path().join("dqhost.db"));
    let lines = "{\"payload\":\"x\"}\n".repeat(500);
    expect(
        feed(dqhost(Some(&db), &["send", "--ndjson"]), lines.as_bytes()),
        0,
    );
    let mut file = fs::File::options()
        .read(true)
        .write(true)
        .open(&db)
        .unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    // All pages but the first, which says that it is a database.
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.write_all(&vec![0xa5; bytes.len() - 4096]).unwrap();
    drop(file);
    let errors = stderr(&run(Some(&db), &["send", "x"], 3));
    assert!(
        errors.contains("damaged") && errors.contains(".recover"),
        "{errors}"
    );
}

#[test]
fn whatever_has_used_a_file_leaves_it_whole_without_its_log() {
    let folder = TempDir::new().unwrap();
    let db = text(&folder.path().join("dqhost.db"));
    let handler = text(&guest("noop"));
    let is_whole = |who: &str| {
        let log = format!("{db}-wal");
        assert!(!Path::new(&log).exists(), "{who} leaves {log}");
    };
    let host = ["--handler", &handler, "--exit-when-empty"];
    for args in [&["send", "x"], &["stats", "--json"], &host[..]] {
        run(Some(&db), args, 0);
        is_whole(args[0]);
    }
    let api = ["--listen", "127.0.0.1:0"];
    let host = [&["--handler", &handler][..], &api].concat();
    let serve = [&["serve"][..], &api].concat();
    for (args, begins) in [(host, "serving"), (serve, "listening")] {
        let mut program = Host::start_silently(&db, &args);
        program.wait_for(begins, |_| true);
        program.signal(rustix::process::Signal::TERM);
        assert!(program.end().0.success());
        is_whole(args[0]);
    }
}

#[test]
fn a_disk_that_hangs_keeps_no_program_from_ending() {
    let folder = TempDir::new().unwrap();
    let db = text(&folder.path().join("dqhost.db"));
    let mut send = dqhost(Some(&db), &["send", "x"]);
    send.env("FAILPOINTS", "closing a file=pause");
    expect(send.output().unwrap(), 0);
    // The log was left, and is read by the next one.
    assert_eq!(stats(&db, "default")["ready"], 1);
}

#[test]
fn two_hosts_that_start_at_once_on_a_new_file_share_the_work() {
    let folder = TempDir::new().unwrap();
    let db = text(&folder.path().join("dqhost.db"));
    let handler = text(&guest("sleeper"));
    let args = ["--handler", &*handler, "--slots", "2"];
    let hosts: Vec<Host> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| Host::start(&db, &args)))
            .collect();
        starts
            .into_iter()
            .map(|host| host.join().unwrap())
            .collect()
    });
    eventually("both are seen", || {
        (stats(&db, "default")["hosts"].as_array()?.len() == 2).then_some(())
    });
    let lines = "{\"payload\":\"50\"}\n".repeat(20);
    expect(
        feed(dqhost(Some(&db), &["send", "--ndjson"]), lines.as_bytes()),
        0,
    );
    eventually("all are acked", || {
        (stats(&db, "default")["totals"]["acked"] == 20).then_some(())
    });
    for host in hosts {
        host.signal(rustix::process::Signal::TERM);
        let (status, lines) = host.end();
        assert!(status.success());
        assert!(!crate::support::with_message(&lines, "acked").is_empty());
    }
}

/// The wait has no poll of its own, so that it ends at all shows that it was woken.
#[tokio::test]
async fn a_wait_ends_with_what_another_process_sends() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = SqliteStore::open(&SqliteOptions::file(&path))
        .await
        .unwrap();
    let hints = store.subscribe(&["default".parse().unwrap()]);
    // It ends once by itself, for what came before it.
    let soon = Duration::from_millis(100);
    while tokio::time::timeout(soon, hints.notified()).await.is_ok() {}
    run(Some(&text(&path)), &["send", "x"], 0);
    tokio::time::timeout(PATIENCE, hints.notified())
        .await
        .expect("nothing was heard");
}

#[tokio::test]
async fn nothing_is_due_a_millisecond_early() {
    use dqhost::clock::{Clock, ManualClock};
    let clock = ManualClock::at(1_795_228_395_999);
    let mut options = SqliteOptions::memory();
    options.clock = Clock::Manual(clock.clone());
    let store = SqliteStore::open(&options).await.unwrap();
    let id = send(&store, "a", Due::In(Duration::from_micros(1_000_001)), 3).await;
    assert_eq!(
        store.advance(&queue()).await.unwrap().next_in,
        Some(Duration::from_millis(1001))
    );
    clock.pass(Duration::from_secs(1));
    assert_eq!(store.advance(&queue()).await.unwrap().promoted, 0);
    clock.pass(Duration::from_millis(1));
    assert_eq!(store.advance(&queue()).await.unwrap().promoted, 1);
    assert_eq!(state_of(&store, &id).await, Some(State::Ready));
    let claim = reserve_one(&store, Duration::from_millis(10)).await.claim;
    clock.pass(Duration::from_millis(9));
    assert_eq!(store.advance(&queue()).await.unwrap().expired, 0);
    clock.pass(Duration::from_millis(1));
    assert_eq!(store.advance(&queue()).await.unwrap().expired, 1);
    assert_eq!(
        settle(&store, &claim, Settlement::ACK).await,
        dqhost::store::Settled::LeaseLost
    );
}

/// The number of messages: `DQHOST_TEST_MESSAGES`, else 100,000.
#[tokio::test]
async fn the_file_gives_back_what_it_no_longer_needs() {
    let count = std::env::var("DQHOST_TEST_MESSAGES").map_or(100_000, |n| n.parse().unwrap());
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = SqliteStore::open(&SqliteOptions::file(&path))
        .await
        .unwrap();
    let size = || {
        ["", "-wal"]
            .iter()
            .map(|end| fs::metadata(format!("{}{end}", path.display())).map_or(0, |m| m.len()))
            .sum::<u64>()
    };
    let mut left = count;
    while left > 0 {
        let some = left.min(BATCH_MAX);
        let batch = vec![0; some]
            .into_iter()
            .map(|_| NewMessage::new([b'x'; 100]));
        store
            .send(&queue(), &batch.collect::<Vec<_>>())
            .await
            .unwrap();
        left -= some;
    }
    let full = size();
    assert!(full > 20_000_000, "{full}");
    let mut acked = 0;
    while acked < count {
        let claims = reserve(&store, BATCH_MAX, LONG).await;
        let acks: Vec<_> = claims
            .into_iter()
            .map(|d| (d.claim, Settlement::ACK))
            .collect();
        acked += store.settle(&queue(), &acks).await.unwrap().len();
    }
    // Hosts advance all the time.
    for _ in 0..count {
        if size() < 20_000_000 {
            return;
        }
        store.advance(&queue()).await.unwrap();
    }
    panic!("it has {} bytes and had {full}", size());
}

/// A file that was made by others before it was ours may have no way to give pages back.
#[tokio::test]
async fn a_file_that_cannot_get_smaller_is_not_asked_to_for_ever() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
        .unwrap();
    let store = SqliteStore::open(&SqliteOptions::file(&path))
        .await
        .unwrap();
    for _ in 0..16 {
        let message = NewMessage::new(vec![0; 1 << 20]);
        store.send(&queue(), &[message]).await.unwrap();
    }
    for delivery in reserve(&store, 16, LONG).await {
        settle(&store, &delivery.claim, Settlement::ACK).await;
    }
    assert!(!store.advance(&queue()).await.unwrap().more);
}

#[test]
fn redis_is_not_needed_and_not_touched() {
    // REDIS_URL names a server, but --db comes first.
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let db = text(&folder.path().join("dqhost.db"));
    run(Some(&server.url()), &["send", "x", "--db", &db], 0);
    assert_eq!(server.dump(), "");
}

#[tokio::test]
async fn of_many_that_fall_due_together_a_file_counts_a_part() {
    let store = SqliteStore::open(&SqliteOptions::memory()).await.unwrap();
    let hour = Duration::from_hours(1);
    let batch = |number: usize| -> Vec<NewMessage> {
        let message = |_| NewMessage {
            due: Due::In(hour / 2),
            ..NewMessage::new("x")
        };
        (0..number).map(message).collect()
    };
    store.send(&queue(), &batch(10_000)).await.unwrap();
    for is_more in [false, true] {
        let ahead = store.due_ahead(&queue(), hour, 2).await.unwrap();
        let expected = DueSpan {
            count: 10_000,
            failed: 0,
            is_more,
        };
        assert_eq!(ahead.spans, [expected, DueSpan::default()]);
        store.send(&queue(), &batch(1)).await.unwrap();
    }
}
