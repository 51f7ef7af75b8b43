//! Opening: what a file must be before a message is entrusted to it.

use crate::store::{Operation, Side};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::disk;
use super::error::{Failure, store_error};
use super::flush::Flusher;
use super::thread::ConnectionThread;
use super::turn::{BUSY_LIMIT, BUSY_PAUSE, wait_while_busy};
use super::wake::Wake;
use super::{DiskReserve, SqliteStore};
use crate::clock::Clock;
use crate::store::{StoreError, StoreResult};

/// The oldest SQLite that does not lose data when two processes reset the write-ahead log at once
/// (SQLite 3.51.3's release notes).
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// "dqho", in the header of our files.
const APPLICATION_ID: i32 = 0x6471_686f;

/// What a new file has.
const SCHEMA: &str = include_str!("schema.sql");

/// What makes a file of schema 1 one of schema 2, and so on. The whole of them leads to [`SCHEMA`].
const MIGRATIONS: [&str; 8] = [
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
    include_str!("migrations/5.sql"),
    include_str!("migrations/6.sql"),
    include_str!("migrations/7.sql"),
    include_str!("migrations/8.sql"),
    include_str!("migrations/9.sql"),
];

/// The version of the schema that all of them lead to.
const SCHEMA_VERSION: usize = MIGRATIONS.len() + 1;

/// The most bytes that the write-ahead log keeps once its content is in the file.
const LOG_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// Bytes that the disk must have free for a send, unless set otherwise: about four times what the log
/// and the file grow by while messages are only taken out.
const FREE_MIN: u64 = 16 * 1024 * 1024;

/// What survives what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// What is accepted or settled is on the disk: it survives a power cut. Who has what in flight
    /// does not, for a power cut ends the hosts on the file as well.
    #[default]
    Full,
    /// What is accepted survives a crash of any process. A power cut, or a crash of the system, may
    /// undo the last moments, never more, and never damages the file.
    Normal,
}

/// What is done with a file that an older version has made, or that is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Older {
    /// It is brought up to date. The older version cannot use it any more.
    #[default]
    Migrate,
    /// It stays as it is, and nothing but [`SqliteStore::backup`] works on it.
    Keep,
    /// It is not opened.
    Refuse,
}

/// Where the messages are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Memory,
    File(PathBuf),
}

/// Which file, and how it is used.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    place: Place,
    /// What survives what.
    pub durability: Durability,
    /// Where the time is from. All processes that share a file must agree on it.
    pub clock: Clock,
    /// Make the file when it is missing.
    pub create: bool,
    /// What is done with a file of an older version.
    pub older: Older,
    /// Bytes that the disk must have free for a message to be accepted. Taking messages out needs
    /// some room as well, so a disk that sends alone would fill could not be emptied any more.
    pub free_min: u64,
}

impl SqliteOptions {
    /// A file, made when it is missing (its folder must be there). Beside it are its companions
    /// `-wal`, `-shm` and `-wake`.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self {
            place: Place::File(path.into()),
            durability: Durability::Full,
            clock: Clock::System,
            create: true,
            older: Older::Migrate,
            free_min: FREE_MIN,
        }
    }

    /// Nothing is kept: the messages go with the last clone of the store.
    #[must_use]
    pub fn memory() -> Self {
        Self {
            place: Place::Memory,
            ..Self::file("")
        }
    }
}

impl SqliteStore {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] for a file of something else, of a newer schema, damaged or not
    /// writable; [`StoreError::Unreachable`] when another process keeps it locked.
    pub async fn open(options: &SqliteOptions) -> StoreResult<Self> {
        let options = options.clone();
        // Opening may wait for other processes.
        Operation::Open.passes(Side::Before);
        let opened = tokio::task::spawn_blocking(move || open(options)).await;
        Operation::Open.passes(Side::After);
        opened.unwrap_or_else(|error| {
            Err(StoreError::Unusable {
                store: "the embedded store".to_owned(),
                reason: format!("a bug in dqhost: {error}"),
            })
        })
    }

    /// The version of the file's schema, and that which this program has, if the file was older and stayed
    /// as it is ([`Older::Keep`]). An empty file has version 0.
    #[must_use]
    pub fn older_schema(&self) -> Option<(usize, usize)> {
        (self.schema < SCHEMA_VERSION).then_some((self.schema, SCHEMA_VERSION))
    }
}

fn open(options: SqliteOptions) -> StoreResult<SqliteStore> {
    let (path, name) = match &options.place {
        Place::Memory => (None, "memory (nothing is kept)".to_owned()),
        Place::File(path) => {
            // Absolute, so that no name can be taken for a URI.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let name = format!("sqlite://{}", path.display());
            (Some(path), name)
        }
    };
    let name: Arc<str> = name.into();
    let unusable = |reason: String| StoreError::Unusable {
        store: name.to_string(),
        reason,
    };
    check_version().map_err(unusable)?;
    if let Some(path) = path
        .as_deref()
        .filter(|path| !options.create && !path.exists())
    {
        return Err(unusable(format!(
            "there is no file {}; give the path of one that was used before",
            path.display()
        )));
    }
    let failed = |failure: Failure| match failure {
        Failure::Refused(reason) => unusable(reason),
        failure => store_error(&name, Operation::Open, &failure),
    };
    let path = path
        .map(|path| match disk::prepare(&path) {
            // SQLite meets it as well, and its error says what to do.
            Err(error) if error.kind() != std::io::ErrorKind::Other => Ok(path),
            prepared => prepared.map_err(|error| unusable(format!("it cannot be opened: {error}"))),
        })
        .transpose()?;
    let write = connect(path.as_deref(), options.durability, options.older).map_err(failed)?;
    let schema = schema_of(&write).map_err(|error| failed(error.into()))?;
    let read = match &path {
        None => None,
        Some(path) => {
            let read = connect_again(path, options.durability);
            Some(read.map_err(|error| failed(error.into()))?)
        }
    };
    let thread = |name, connection| {
        ConnectionThread::start(name, connection)
            .map_err(|error| unusable(format!("no thread to run on: {error}")))
    };
    let no_companion =
        |error: std::io::Error| unusable(format!("its companion -wake cannot be written: {error}"));
    let wake = Wake::new(path.as_deref()).map_err(no_companion)?;
    let turn = wake.turn().map_err(no_companion)?;
    let is_full = options.durability == Durability::Full;
    let flusher = Flusher::of(path.as_deref().filter(|_| is_full))
        .map_err(|error| unusable(format!("its log cannot be flushed: {error}")))?;
    Ok(SqliteStore {
        schema,
        turn: turn.map(Arc::new),
        write: thread("sqlite-write", write)?,
        read: read.map(|read| thread("sqlite-read", read)).transpose()?,
        wake: Arc::new(wake),
        flusher,
        reserves: false.into(),
        room: path.map(|path| DiskReserve {
            path,
            free_min: options.free_min,
        }),
        name: Arc::clone(&name),
        clock: options.clock,
        events: Arc::default(),
    })
}

/// Refuses an SQLite that loses data.
fn check_version() -> Result<(), String> {
    if rusqlite::version_number() >= SQLITE_VERSION_MIN {
        return Ok(());
    }
    Err(format!(
        "dqhost was built with SQLite {}, which can damage files that several processes share; build it with \
         3.51.3 or later",
        rusqlite::version()
    ))
}

/// A file is opened at the very path that was checked. SQLite itself follows no link at its companions.
const FILE_FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX)
    .union(OpenFlags::SQLITE_OPEN_NOFOLLOW);

/// Whoever made the file may have prepared its schema: it calls no function that has effects, and no
/// statement can damage the file.
fn distrust_content(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    Ok(())
}

/// A statement stays as it was compiled, whatever is bound to it. Otherwise SQLite compiles each that has
/// `LIMIT ?` anew whenever it is used again, since the number might lead to a better plan.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// A connection that writes, to a file that is ours.
fn connect(
    path: Option<&Path>,
    durability: Durability,
    older: Older,
) -> Result<Connection, Failure> {
    let mut connection = match path {
        None => Connection::open_in_memory()?,
        Some(path) => {
            Connection::open_with_flags(path, FILE_FLAGS | OpenFlags::SQLITE_OPEN_CREATE)?
        }
    };
    distrust_content(&connection)?;
    keep_plans(&connection)?;
    connection.busy_handler(Some(wait_while_busy))?;
    connection.set_prepared_statement_cache_capacity(64);
    check_owner(&connection)?;
    // Has an effect only on a new file, and only before anything else is written.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    if path.is_some() {
        let mode = use_log(&connection)?;
        if mode != "wal" {
            return Err(Failure::Refused(format!(
                "its file system allows no write-ahead log (journal mode {mode}); put it on a \
                 local disk"
            )));
        }
    }
    // What has to be on the disk is flushed by the `Flusher`.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    flush_drive(&connection, durability)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    let found = schema_of(&connection)?;
    match older {
        Older::Keep if found < SCHEMA_VERSION => {}
        Older::Refuse if found < SCHEMA_VERSION => {
            return Err(Failure::Refused(format!(
                "an older dqhost has made it (schema {found}, this one has {SCHEMA_VERSION}); the next host, or \
                 any command that uses it, brings it up to date"
            )));
        }
        _ => migrate(&mut connection)?,
    }
    Ok(connection)
}

/// A second connection to a file that the first has made ours; it only reads.
fn connect_again(path: &Path, durability: Durability) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_with_flags(path, FILE_FLAGS)?;
    distrust_content(&connection)?;
    keep_plans(&connection)?;
    connection.busy_handler(Some(wait_while_busy))?;
    connection.pragma_update(None, "query_only", true)?;
    // The last connection that is closed moves the log into the file, and that may be this one.
    flush_drive(&connection, durability)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// On macOS a plain flush leaves the data in the drive's own cache, which a power cut empties. Elsewhere
/// these settings change nothing.
fn flush_drive(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    let is_full = durability == Durability::Full;
    connection.pragma_update(None, "fullfsync", is_full)?;
    connection.pragma_update(None, "checkpoint_fullfsync", is_full)
}

/// Refuses a database of another program, before anything is changed in it.
fn check_owner(connection: &Connection) -> Result<(), Failure> {
    // In this order: another process that makes the database between the two has put its name on
    // the tables that are seen.
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let owner: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if owner == APPLICATION_ID || (owner == 0 && tables == 0) {
        return Ok(());
    }
    Err(Failure::Refused(
        "it is the database of another program; give another path".to_owned(),
    ))
}

/// Turns the write-ahead log on. Two processes that do it at once are told that the file is busy
/// without being made to wait, so this waits.
fn use_log(connection: &Connection) -> rusqlite::Result<String> {
    let end = Instant::now() + BUSY_LIMIT;
    loop {
        let mode =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        match mode {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && Instant::now() < end =>
            {
                std::thread::sleep(BUSY_PAUSE);
            }
            mode => return mode,
        }
    }
}

/// The version of the schema that the file has; 0 if it has none.
fn schema_of(connection: &Connection) -> rusqlite::Result<usize> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

/// Brings the schema up to date, in one transaction: of two processes that come at once the second
/// finds it done, and a crash leaves it as it was.
fn migrate(connection: &mut Connection) -> Result<(), Failure> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = schema_of(&tx)?;
    if version > SCHEMA_VERSION {
        return Err(Failure::Refused(format!(
            "a newer dqhost has made it (schema {version}, this one knows up to {SCHEMA_VERSION}); use \
             that version"
        )));
    }
    match version.checked_sub(1) {
        None => tx.execute_batch(SCHEMA)?,
        Some(done) => {
            for step in &MIGRATIONS[done..] {
                tx.execute_batch(step)?;
            }
        }
    }
    if version < SCHEMA_VERSION {
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(
            None,
            "user_version",
            i64::try_from(SCHEMA_VERSION).unwrap_or(i64::MAX),
        )?;
    }
    tx.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::StatementStatus;

    #[test]
    fn no_connection_trusts_what_is_in_the_file() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().canonicalize().unwrap().join("dqhost.db");
        let write = connect(Some(&path), Durability::Normal, Older::Migrate)
            .map_err(|_| ())
            .unwrap();
        let read = connect_again(&path, Durability::Normal).unwrap();
        let memory = connect(None, Durability::Normal, Older::Migrate)
            .map_err(|_| ())
            .unwrap();
        for connection in [write, read, memory] {
            for (config, expected) in [
                (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
                (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            ] {
                assert_eq!(
                    connection.db_config(config).unwrap(),
                    expected,
                    "{config:?}"
                );
            }
        }
    }

    #[test]
    fn no_statement_is_compiled_again_when_it_is_used_again() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().canonicalize().unwrap().join("dqhost.db");
        let write = connect(Some(&path), Durability::Normal, Older::Migrate)
            .map_err(|_| ())
            .unwrap();
        let read = connect_again(&path, Durability::Normal).unwrap();
        for connection in [write, read] {
            for limit in [16, 7, 0] {
                let select = "SELECT seq FROM messages WHERE queue = ?1 ORDER BY place LIMIT ?2";
                let mut select = connection.prepare_cached(select).unwrap();
                assert!(!select.exists([1, limit]).unwrap());
                assert_eq!(select.get_status(StatementStatus::RePrepare), 0);
            }
        }
    }

    /// All that is in a file: for each table and index its columns in order, and the words of its text in
    /// any order. A column that was added stands elsewhere in the text than one of the first day.
    fn shape(connection: &Connection) -> Vec<(String, Vec<String>, Vec<String>)> {
        let names = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
        let mut statement = connection.prepare(names).unwrap();
        let rows = statement.query_map([], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        });
        let rows: Vec<(String, String)> = rows.unwrap().map(Result::unwrap).collect();
        let columns = |name: &str| -> Vec<String> {
            let mut columns = connection
                .prepare("SELECT name FROM pragma_table_xinfo(?1)")
                .unwrap();
            let names = columns.query_map([name], |row| row.get(0)).unwrap();
            names.map(Result::unwrap).collect()
        };
        let words = |sql: &str| {
            let code = sql.lines().map(|line| line.split("--").next().unwrap());
            let code: String = code.collect::<Vec<_>>().join(" ").replace(',', " , ");
            let mut words: Vec<String> = code.split_whitespace().map(str::to_owned).collect();
            words.sort();
            words
        };
        let shape = rows
            .into_iter()
            .map(|(name, sql)| (name.clone(), columns(&name), words(&sql)));
        shape.collect()
    }

    #[test]
    fn the_migrations_lead_to_what_a_new_file_has() {
        let new = connect(None, Durability::Normal, Older::Migrate)
            .map_err(|_| ())
            .unwrap();
        let mut old = Connection::open_in_memory().unwrap();
        old.execute_batch(include_str!("migrations/1.sql")).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        assert_ne!(shape(&old), shape(&new));
        migrate(&mut old).map_err(|_| ()).unwrap();
        assert_eq!(shape(&old), shape(&new));
        let version = |connection: &Connection| -> i64 {
            connection
                .pragma_query_value(None, "user_version", |row| row.get(0))
                .unwrap()
        };
        assert_eq!(version(&old), version(&new));
    }

    #[test]
    fn full_durability_flushes_the_cache_of_the_drive_on_macos_too() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().canonicalize().unwrap().join("dqhost.db");
        for (durability, expected) in [(Durability::Full, 1), (Durability::Normal, 0)] {
            let write = connect(Some(&path), durability, Older::Migrate)
                .map_err(|_| ())
                .unwrap();
            let read = connect_again(&path, durability).unwrap();
            for connection in [write, read] {
                for pragma in ["fullfsync", "checkpoint_fullfsync"] {
                    let value: i64 = connection
                        .pragma_query_value(None, pragma, |row| row.get(0))
                        .unwrap();
                    assert_eq!(value, expected, "{pragma} with {durability:?}");
                }
            }
        }
    }
}
