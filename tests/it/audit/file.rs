//! Damage in a file. The schema forbids it, so it is made with its checks turned off.

use std::path::PathBuf;

use dqhost::store::prelude::*;
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::support::{run, stdout};

struct Damaged {
    path: PathBuf,
    store: SqliteStore,
    filled: Filled,
    _folder: TempDir,
}

impl Damaged {
    /// A file with messages in all states.
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("dqhost.db");
        let store = SqliteStore::open(&SqliteOptions::file(&path))
            .await
            .unwrap();
        let filled = fill(&store).await;
        let new = Self {
            path,
            store,
            filled,
            _folder: folder,
        };
        new.is_clean().await;
        new
    }

    fn sql(&self, sql: &str) {
        let connection = Connection::open(&self.path).unwrap();
        connection
            .execute_batch("PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0;")
            .unwrap();
        connection.execute_batch(sql).unwrap();
    }

    /// Changes the first `count` messages in a state.
    fn change(&self, state: State, count: usize, set: &str) -> Vec<MessageId> {
        let ids = &self.filled.of(state)[..count];
        for id in ids {
            self.sql(&format!("UPDATE messages SET {set} WHERE id = '{id}'"));
        }
        ids.to_vec()
    }

    async fn audit_all(&self, repair: bool) -> (AuditReport, AuditReport) {
        let of_file = self.store.audit_store(repair).await.unwrap();
        (of_file, audit(&self.store, repair).await)
    }

    async fn is_clean(&self) {
        let (of_file, of_queue) = self.audit_all(true).await;
        assert_eq!((found(&of_file), found(&of_queue)), (vec![], vec![]));
    }

    /// Exactly this is named, then repaired, then nothing is wrong.
    async fn named_and_mended(&self, expected: &[(FindingKind, u64)]) -> AuditReport {
        let report = audit(&self.store, false).await;
        assert_eq!(found(&report), expected);
        assert!(!report.is_repaired());
        // The same again: nothing was changed.
        assert_eq!(audit(&self.store, false).await, report);
        let report = audit(&self.store, true).await;
        assert_eq!(found(&report), expected);
        assert!(report.is_repaired(), "{report:?}");
        self.is_clean().await;
        report
    }
}

#[tokio::test]
async fn depths_that_are_wrong_are_counted_again() {
    let file = Damaged::new().await;
    let before = depths(&file.store).await;
    file.sql("UPDATE queues SET ready = ready + 5, unack = 0, dead = -1");
    let kind = FindingKind::WrongDepth;
    let report = file.named_and_mended(&[(kind, 3)]).await;
    assert_eq!(done(&report, kind), [3, 0, 0, 0]);
    assert!(
        report.0[0]
            .samples
            .contains(&"ready: 8 noted, 3 there".to_owned())
    );
    assert_eq!(depths(&file.store).await, before);
    nothing_is_lost(&file.store, &file.filled, &[]).await;
}

#[tokio::test]
async fn messages_without_a_payload_become_dead_letters() {
    let mut file = Damaged::new().await;
    let mut lost = Vec::new();
    for state in [State::Pending, State::Ready, State::Retry] {
        lost.extend(file.change(state, 2, "payload = NULL"));
    }
    let ended = file.filled.held.remove(0).id;
    file.sql(&format!(
        "UPDATE messages SET payload = NULL, place = 1 WHERE id = '{ended}'"
    ));
    lost.push(ended);
    let dead = file.store.counts(&queue()).await.unwrap().totals.dead;
    let kind = FindingKind::PayloadMissing;
    let report = file.named_and_mended(&[(kind, 7)]).await;
    assert_eq!(done(&report, kind), [0, 7, 0, 0]);
    assert_eq!(class_of(&file.store, &lost[0]).await, "payload-missing");
    let totals = file.store.counts(&queue()).await.unwrap().totals;
    assert_eq!(totals.dead, dead + 7);
    nothing_is_lost(&file.store, &file.filled, &lost).await;
}

#[tokio::test]
async fn a_lease_that_runs_is_left_alone() {
    let file = Damaged::new().await;
    let id = &file.filled.held[0].id;
    file.sql(&format!(
        "UPDATE messages SET payload = NULL WHERE id = '{id}'"
    ));
    let id = &file.filled.held[1].id;
    file.sql(&format!(
        "UPDATE messages SET headers = 'x' WHERE id = '{id}'"
    ));
    for repair in [false, true] {
        let report = audit(&file.store, repair).await;
        let kinds = [FindingKind::PayloadMissing, FindingKind::NotUnderstood];
        assert_eq!(found(&report), kinds.map(|kind| (kind, 1)));
        assert_eq!(kinds.map(|kind| done(&report, kind)), [[0, 0, 1, 1]; 2]);
    }
    nothing_is_lost(&file.store, &file.filled, &[]).await;
    file.is_clean().await;
}

#[tokio::test]
async fn rows_that_mean_nothing_become_dead_letters_that_tell_of_it() {
    let file = Damaged::new().await;
    let odd = file.change(State::Ready, 1, "state = 99").remove(0);
    let hostile = "headers = '{\"\x1b[2J' || char(10)";
    let headers = file.change(State::Retry, 1, hostile).remove(0);
    let dead = file.change(State::Dead, 1, "headers = '[1]'").remove(0);
    let report = file
        .named_and_mended(&[
            (FindingKind::NotUnderstood, 3),
            (FindingKind::WrongDepth, 1),
        ])
        .await;
    assert_eq!(done(&report, FindingKind::NotUnderstood), [1, 2, 0, 0]);
    for id in [&odd, &headers, &dead] {
        assert_eq!(class_of(&file.store, id).await, "not-understood");
    }
    let record = file.store.get(&queue(), &headers).await.unwrap().unwrap();
    let reason = &record.last_attempt().unwrap().reason;
    assert!(reason.ends_with("{\"\\u{1b}[2J\\n"), "{reason}");
    nothing_is_lost(&file.store, &file.filled, &[]).await;
}

#[tokio::test]
async fn numbers_and_histories_are_put_right_in_place() {
    let file = Damaged::new().await;
    let before = depths(&file.store).await;
    file.change(State::Pending, 1, "due_ms = place + 1");
    file.change(State::Ready, 1, "was = 3");
    file.change(State::Retry, 1, "failed = -1, retries_left = -1");
    let id = file.change(State::Garbage, 1, "history = 'x' || char(10) || history");
    let id = &id[0];
    let report = file
        .named_and_mended(&[(FindingKind::NotUnderstood, 4)])
        .await;
    assert_eq!(done(&report, FindingKind::NotUnderstood), [4, 0, 0, 0]);
    assert_eq!(depths(&file.store).await, before);
    let record = file.store.get(&queue(), id).await.unwrap().unwrap();
    assert_eq!(record.history.len(), 1);
    nothing_is_lost(&file.store, &file.filled, &[]).await;
}

#[tokio::test]
async fn what_moves_stays_out_of_reach() {
    let file = Damaged::new().await;
    let id = file.change(State::Ready, 1, "state = 8").remove(0);
    file.named_and_mended(&[
        (FindingKind::NotUnderstood, 1),
        (FindingKind::WrongDepth, 2),
    ])
    .await;
    assert_eq!(state_of(&file.store, &id).await, Some(State::Moving));
}

#[tokio::test]
async fn queues_without_a_name_get_one() {
    let file = Damaged::new().await;
    for damage in ["DELETE FROM queues", "UPDATE queues SET name = 'a b'"] {
        file.sql(damage);
        let report = file.store.audit_store(false).await.unwrap();
        assert_eq!(found(&report), [(FindingKind::UnknownQueue, 1)]);
        assert_eq!(file.store.audit_store(false).await.unwrap(), report);
        // Who repairs one queue is told how all of it is repaired.
        let one = ["audit", "--repair", "--queue", "other"];
        let told = stdout(&run(file.path.to_str(), &one, 1));
        assert!(told.contains("without --queue"), "{told}");
        let report = file.store.audit_store(true).await.unwrap();
        assert_eq!(done(&report, FindingKind::UnknownQueue), [1, 0, 0, 0]);
        let queues = file.store.queues().await.unwrap();
        assert_eq!(queues, ["unknown-1".parse().unwrap()]);
        let how = Audit {
            repair: false,
            settling: AT_ONCE,
        };
        let report = file.store.audit(&queues[0], how).await.unwrap();
        assert_eq!(found(&report), []);
        file.sql("UPDATE queues SET name = 'q'");
    }
    // As if nothing had been.
    nothing_is_lost(&file.store, &file.filled, &[]).await;
}

/// Such a message is never found, and to count by the index would hide it.
#[tokio::test]
async fn a_message_that_is_in_no_index_is_named_as_damage() {
    let file = Damaged::new().await;
    let index = "FROM sqlite_schema WHERE name = 'messages_in_line'";
    file.sql(&format!(
        "CREATE TABLE kept AS SELECT * {index}; PRAGMA writable_schema = ON; DELETE {index};"
    ));
    file.sql(
        "INSERT INTO messages (queue, id, state, place, retries_left, payload)
         SELECT queue, 'unseen', 3, place, 1, x'78' FROM messages LIMIT 1;
         PRAGMA writable_schema = ON; INSERT INTO sqlite_schema SELECT * FROM kept;",
    );
    file.sql("DROP TABLE kept");
    let store = SqliteStore::open(&SqliteOptions::file(&file.path))
        .await
        .unwrap();
    let report = store.audit_store(true).await.unwrap();
    let kinds: Vec<FindingKind> = report.0.iter().map(|findings| findings.kind).collect();
    assert_eq!(kinds, [FindingKind::Damaged]);
}

#[tokio::test]
async fn a_damaged_page_is_named_and_nothing_is_changed() {
    let file = Damaged::new().await;
    let messages = vec![NewMessage::new("x"); 1];
    for _ in 0..3 {
        file.store.send(&queue(), &messages).await.unwrap();
    }
    file.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    let path = file.path.clone();
    let root: u32 = Connection::open(&path)
        .unwrap()
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'messages_in_line'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    drop(file.store);
    let mut bytes = std::fs::read(&path).unwrap();
    let page = (usize::try_from(root).unwrap() - 1) * 4096;
    // The number of its cells.
    bytes[page + 3] ^= 0x40;
    std::fs::write(&path, &bytes).unwrap();
    let store = SqliteStore::open(&SqliteOptions::file(&path))
        .await
        .unwrap();
    let report = store.audit_store(true).await.unwrap();
    let kinds: BTreeSet<FindingKind> = report.0.iter().map(|findings| findings.kind).collect();
    assert_eq!(kinds, BTreeSet::from([FindingKind::Damaged]));
    assert!(!report.is_repaired());
    drop(store);
    // Opening may have noted in the header that it is open.
    assert!(std::fs::read(&path).unwrap()[4096..] == bytes[4096..]);
}

#[tokio::test]
async fn a_queue_of_many_pages_is_audited_whole() {
    let file = Damaged::new().await;
    let messages: Vec<NewMessage> = (0..12_000).map(|_| NewMessage::new("x")).collect();
    file.store.send(&queue(), &messages).await.unwrap();
    file.sql("UPDATE messages SET payload = NULL WHERE state = 3 AND seq % 10 = 0");
    let lost = file.filled.of(State::Ready).len();
    let report = audit(&file.store, true).await;
    let (kind, number) = found(&report)[0];
    assert_eq!(
        (kind, found(&report).len()),
        (FindingKind::PayloadMissing, 1)
    );
    assert!((1200..=1200 + lost as u64).contains(&number), "{number}");
    file.is_clean().await;
    let [_, ready, _, _, dead] = depths(&file.store).await;
    assert_eq!((ready + number, dead), (12_003, 6 + number));
}
