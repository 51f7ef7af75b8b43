//! What SQLite's errors mean for who asked.

use crate::store::Operation;
use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_WRITE;

use crate::store::StoreError;

/// Why a transaction has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    /// It cannot be done, for this reason.
    Refused(String),
    /// The disk has less free than a send must leave, in bytes.
    NoRoom {
        free_min: u64,
    },
    /// It is written, and whether it is on the disk is not known, for this reason.
    NotFlushed(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// The error for operators: which store, what was tried, why not, what mends it.
pub(super) fn store_error(store: &str, operation: Operation, failure: &Failure) -> StoreError {
    let unusable = |reason: String| StoreError::Unusable {
        store: store.to_owned(),
        reason,
    };
    let refused = |reason: String| StoreError::Refused {
        store: store.to_owned(),
        operation,
        reason,
    };
    let unreachable = |reason: String| StoreError::Unreachable {
        store: store.to_owned(),
        operation,
        reason,
    };
    let error = match failure {
        Failure::Sqlite(error) => error,
        Failure::Refused(reason) => return refused(reason.clone()),
        Failure::NotFlushed(reason) => {
            return unreachable(format!(
                "its disk failed to keep what was written ({reason}); stop all \
                 programs that use the file, mend the disk, and start the machine anew"
            ));
        }
        Failure::NoRoom { free_min } => {
            return unusable(format!(
                "its disk has less than {} MiB free, which is kept so that messages can be taken \
                 out; nothing of this was stored; make room",
                free_min.div_ceil(1024 * 1024)
            ));
        }
    };
    let rusqlite::Error::SqliteFailure(code, _) = error else {
        return refused(error.to_string());
    };
    match code.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            unreachable("another process keeps it locked".to_owned())
        }
        ErrorCode::NotADatabase => unusable(
            "it is not a database file; give another path, or move this file away".to_owned(),
        ),
        ErrorCode::DatabaseCorrupt => unusable(format!(
            "{operation} found it damaged ({error}); stop all hosts, keep a copy, and save what \
             can be read with `sqlite3 FILE .recover`"
        )),
        ErrorCode::DiskFull => unusable(format!(
            "the disk is full ({operation}); nothing of this was stored, and all that was \
             accepted before is safe; make room"
        )),
        ErrorCode::SystemIoFailure if code.extended_code == SQLITE_IOERR_WRITE => {
            unusable(format!(
                "it cannot be written ({operation}): a quota, a limit on file sizes, or the disk \
             itself; all that was accepted before is safe"
            ))
        }
        ErrorCode::SystemIoFailure => unreachable(format!("{error}; its disk is full or fails")),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => unusable(
            "it is not writable for this user; mend the permissions of the file and of its folder"
                .to_owned(),
        ),
        ErrorCode::CannotOpen => unusable(
            "it cannot be opened; see that its folder exists and is writable for this user"
                .to_owned(),
        ),
        _ => refused(error.to_string()),
    }
}
