//! A copy of the file while others work on it.
//!
//! SQLite's `VACUUM INTO` writes what one read transaction sees into a new file, without keeping writers
//! waiting (<https://sqlite.org/lang_vacuum.html>). It gets its name when it is whole and on the disk. A
//! process that dies before leaves a hidden file with a name of its own, which nothing reads.

use std::ffi::OsString;
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
    /// There is a file of this name, the folder cannot be written, there is no room for it, or the store is
    /// in memory.
    pub async fn backup(&self, to: &Path) -> io::Result<u64> {
        let (Some(read), Some(room)) = (&self.read, self.room.clone()) else {
            return Err(io::Error::other("the store is in memory"));
        };
        let (folder, name) = place(to)?;
        let copied = read.run(move |connection| {
            let bytes = std::fs::metadata(&room.path)?.len();
            let disk = rustix::fs::statvfs(&folder)?;
            // What hosts need to take messages out stays free.
            if disk.f_bavail.saturating_mul(disk.f_frsize) < bytes.saturating_add(room.free_min) {
                let reason = format!("the disk has no room for {bytes} bytes more");
                return Err(io::Error::other(reason));
            }
            copy(connection, &folder, &name)
        });
        copied
            .await
            .unwrap_or_else(|_| Err(io::Error::other("a bug in dqhost")))
    }
}

/// The folder without symbolic links, since SQLite follows none, and the name in it.
fn place(to: &Path) -> io::Result<(PathBuf, OsString)> {
    let name = to
        .file_name()
        .ok_or_else(|| io::Error::other("it is no name of a file"))?;
    let folder = std::path::absolute(to)?;
    let folder = folder.parent().unwrap_or(Path::new("/")).canonicalize()?;
    Ok((folder, name.to_owned()))
}

fn copy(connection: &Connection, folder: &Path, name: &OsString) -> io::Result<u64> {
    let is_there = || io::Error::new(io::ErrorKind::AlreadyExists, "there is a file of this name");
    let to = folder.join(name);
    if to.symlink_metadata().is_ok() {
        return Err(is_there());
    }
    let mut part = OsString::from(".");
    part.push(name);
    part.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let part = folder.join(part);
    // SQLite takes an empty file, which so is private from its first moment.
    let mut options = File::options();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)?;
    let copied = fill(connection, &part, &file);
    // A link takes the place of nothing.
    let named = copied.and_then(|bytes| match std::fs::hard_link(&part, &to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(is_there()),
        linked => linked.map(|()| bytes),
    });
    let _ = std::fs::remove_file(&part);
    let bytes = named?;
    // The name as well. A folder that cannot be read is flushed with the next that is.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(bytes)
}

fn fill(connection: &Connection, part: &Path, file: &File) -> io::Result<u64> {
    let name = part
        .to_str()
        .ok_or_else(|| io::Error::other("the path is not valid text"))?;
    // The connection only reads otherwise, and a copy counts as a write.
    let copied = connection
        .pragma_update(None, "query_only", false)
        .and_then(|()| connection.execute("VACUUM INTO ?1", [name]));
    let restored = connection.pragma_update(None, "query_only", true);
    copied.and(restored.map(|()| 0)).map_err(io::Error::other)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}
