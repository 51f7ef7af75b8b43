//! What concerns the whole file.

use std::fmt;

use rusqlite::{Connection, ErrorCode, Transaction, params};

use crate::message::QueueName;
use crate::store::sqlite::error::Failure;

/// What SQLite finds damaged, in its words, a few of them. A value that the schema forbids is not
/// among them: that is seen row by row. Indexes are compared with their tables, since what has no
/// entry in one is given to nobody.
pub(super) fn damage(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut query = connection.prepare("PRAGMA integrity_check(100)")?;
    let is_of_a_row =
        |line: &str| line.contains(" value in ") || line.starts_with("CHECK constraint failed in ");
    let mut damage = Vec::new();
    for line in query.query_map([], |row| row.get::<_, String>(0))? {
        match line {
            Ok(line) if line == "ok" || is_of_a_row(&line) => {}
            Ok(line) => damage.push(line),
            // So bad that the check itself cannot go on.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
                damage.push(error.to_string());
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(damage)
}

/// A number that is used as that of a queue.
#[derive(Debug)]
pub(super) struct UnknownQueue {
    pub queue: i64,
    /// Its name, which is not allowed; none when there is no row.
    name: Option<String>,
}

impl fmt::Display for UnknownQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "queue {} is called {name:?}", self.queue),
            None => write!(f, "queue {} has no name", self.queue),
        }
    }
}

pub(super) fn unknown_queues(connection: &Connection) -> rusqlite::Result<Vec<UnknownQueue>> {
    let mut unknown = Vec::new();
    let mut query = connection.prepare("SELECT queue, name FROM queues")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let name = String::from_utf8_lossy(row.get_ref(1)?.as_bytes()?).into_owned();
        if name.parse::<QueueName>().is_err() {
            unknown.push(UnknownQueue {
                queue: row.get(0)?,
                name: Some(name),
            });
        }
    }
    // What `PRAGMA foreign_key_check` would say row by row.
    let mut query = connection.prepare(
        "SELECT queue FROM messages UNION SELECT queue FROM hosts
         EXCEPT SELECT queue FROM queues",
    )?;
    for queue in query.query_map([], |row| row.get(0))? {
        unknown.push(UnknownQueue {
            queue: queue?,
            name: None,
        });
    }
    Ok(unknown)
}

/// Gives a queue a row with a name that is allowed, and depths and marks that go with its messages. A
/// queue that has got one meanwhile is left alone.
pub(super) fn adopt(tx: &Transaction<'_>, queue: i64, depths: [i64; 7]) -> Result<(), Failure> {
    let names: Vec<(i64, String)> = tx
        .prepare("SELECT queue, CAST(name AS BLOB) FROM queues")?
        .query_map([], |row| {
            let name = String::from_utf8_lossy(row.get_ref(1)?.as_bytes()?).into_owned();
            Ok((row.get(0)?, name))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let known = names.iter().find(|(other, _)| *other == queue);
    if known.is_some_and(|(_, name)| name.parse::<QueueName>().is_ok()) {
        return Ok(());
    }
    let is_free = |name: &String| names.iter().all(|(_, other)| other != name);
    let suffixes = (2..).map(|n| format!("unknown-{queue}-{n}"));
    let Some(name) = std::iter::once(format!("unknown-{queue}"))
        .chain(suffixes)
        .find(is_free)
    else {
        return Ok(());
    };
    if known.is_some() {
        tx.execute(
            "UPDATE queues SET name = ?2 WHERE queue = ?1",
            params![queue, name],
        )?;
        return Ok(());
    }
    let [pending, ready, unack, retry, garbage, dead, moving] = depths;
    tx.execute(
        "INSERT INTO queues (queue, name, pending, ready, unack, retry, garbage, dead, moving, peer)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, CASE WHEN ?9 > 0 THEN 'an unknown store' END)",
        params![queue, name, pending, ready, unack, retry, garbage, dead, moving],
    )?;
    // What comes goes before and behind what is in line, and no token is given out twice.
    tx.execute(
        "UPDATE queues SET
           head = min(head, (SELECT coalesce(min(place), head + 1) FROM messages
                             WHERE queue = ?1 AND state IN (3, 5)) - 1),
           tail = max(tail, (SELECT coalesce(max(place), tail - 1) FROM messages
                             WHERE queue = ?1 AND state IN (3, 5)) + 1),
           delivery = max(delivery, (SELECT coalesce(max(token), 0) FROM messages
                                     WHERE queue = ?1))
         WHERE queue = ?1",
        [queue],
    )?;
    Ok(())
}
