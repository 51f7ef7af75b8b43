//! A copy of the file while others work on it.
//!
//! SQLite's `VACUUM INTO` writes what one read transaction sees into a new file, without keeping writers
//! waiting (<https://sqlite.org/lang_vacuum.html>). It gets its name when it is whole and on the disk. A
//! process that dies before leaves a hidden file with its number in the name, which nothing reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::SqliteStore;

impl SqliteStore {
    /// Copies all that the file holds at one moment into a new file; returns its bytes.
    ///
    /// # Errors
    ///
    /// There is a file of this name, the folder cannot be written, or the store is in memory.
    pub async fn backup(&self, to: &Path) -> io::Result<u64> {
        let Some(read) = &self.read else {
            return Err(io::Error::other("the store is in memory"));
        };
        let to = std::path::absolute(to)?;
        let copied = read.run(move |connection| copy(connection, &to)).await;
        copied.unwrap_or_else(|_| Err(io::Error::other("a bug in dqhost")))
    }
}

fn copy(connection: &Connection, to: &Path) -> io::Result<u64> {
    if to.symlink_metadata().is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file of this name",
        ));
    }
    let part = part_of(to)?;
    let made = fill(connection, &part).and_then(|bytes| {
        std::fs::rename(&part, to)?;
        // The name as well.
        File::open(to.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        Ok(bytes)
    });
    if made.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    made
}

/// The name under which the copy is made.
fn part_of(to: &Path) -> io::Result<PathBuf> {
    let name = to
        .file_name()
        .ok_or_else(|| io::Error::other("it is no name of a file"))?;
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(format!(".{}", std::process::id()));
    Ok(to.with_file_name(part))
}

fn fill(connection: &Connection, part: &Path) -> io::Result<u64> {
    let name = part
        .to_str()
        .ok_or_else(|| io::Error::other("the path is not valid text"))?;
    // SQLite takes an empty file, which so is private from its first moment.
    let options = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .clone();
    let file = options.open(part)?;
    // The connection only reads otherwise, and a copy counts as a write.
    let copied = connection
        .pragma_update(None, "query_only", false)
        .and_then(|()| connection.execute("VACUUM INTO ?1", [name]));
    let restored = connection.pragma_update(None, "query_only", true);
    copied.and(restored.map(|()| 0)).map_err(io::Error::other)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}
