//! The files of the log: one that an operator has named, or two for each process with a dashboard, found
//! again by their names.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::{self, Owner};

/// Bytes of the file before it makes room for a new one; one old one is kept.
const FILE_MAX: u64 = 16 * 1024 * 1024;

/// Processes of one user that have a file of their own, at most.
const FILES_MAX: usize = 100;

/// A file for this user alone, since handlers print into it.
#[derive(Debug)]
pub(super) struct LogFile {
    pub path: PathBuf,
    file: File,
    size: u64,
    /// Of a file that this process rotates: it is for this process alone, since whoever renames it must be
    /// the only one to write to it. Locked for as long as one of its files is here. The lock is on a file
    /// that is never renamed; the system frees it when the process ends, however it ends.
    lock: Option<Arc<File>>,
}

impl LogFile {
    /// The file of the host's own lines, the first of `dqhost.log`, `dqhost-2.log`, ... that no other
    /// process writes to, and `dqhost-guests.log`, `dqhost-2-guests.log`, ... for those of handlers.
    pub(super) fn open_both(folder: &Path) -> io::Result<[Self; 2]> {
        for number in 1..=FILES_MAX {
            let name = match number {
                1 => "dqhost".to_owned(),
                number => format!("dqhost-{number}"),
            };
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            let lock = folder.join(format!("{name}.lock"));
            let lock = files::open_ours(&lock, &options, Owner::Us)?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let lock = Arc::new(lock);
            let host = folder.join(format!("{name}.log"));
            let guests = folder.join(format!("{name}-guests.log"));
            return Ok([
                Self::open(host, Some(Arc::clone(&lock)))?,
                Self::open(guests, Some(lock))?,
            ]);
        }
        Err(io::Error::other(format!(
            "{FILES_MAX} processes write their logs here already"
        )))
    }

    /// A file that others rotate.
    pub(super) fn open_named(path: &Path) -> io::Result<Self> {
        Self::open(std::path::absolute(path)?, None)
    }

    fn open(path: PathBuf, lock: Option<Arc<File>>) -> io::Result<Self> {
        let (file, size) = append(&path)?;
        Ok(Self {
            path,
            file,
            size,
            lock,
        })
    }

    /// Goes on in the file that is at the path now, which is made if there is none. If that fails, it goes
    /// on in the old one.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.size) = append(&self.path)?;
        Ok(())
    }

    /// Writes a line.
    pub(super) fn add(&mut self, line: &[u8]) -> io::Result<()> {
        if self.size >= FILE_MAX && self.lock.is_some() {
            std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
            (self.file, self.size) = append(&self.path)?;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    let file = files::open_ours(path, options.append(true).create(true), Owner::Us)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_makes_room_when_it_is_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dqhost.log");
        std::fs::write(&path, vec![b'x'; usize::try_from(FILE_MAX).unwrap()]).unwrap();
        let [mut file, mut guests] = LogFile::open_both(folder.path()).unwrap();
        file.add(b"one\n").unwrap();
        file.add(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        let old = std::fs::metadata(folder.path().join("dqhost.log.1")).unwrap();
        assert_eq!(old.len(), FILE_MAX);
        // Those of handlers push out nothing of the host's.
        guests.size = FILE_MAX;
        guests.add(b"three\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        let guests = folder.path().join("dqhost-guests.log");
        assert_eq!(std::fs::read(guests).unwrap(), b"three\n");
        assert!(folder.path().join("dqhost-guests.log.1").exists());
    }

    #[test]
    fn no_link_is_written_through_and_no_pipe_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("victim"), "content").unwrap();
        for name in ["dqhost.lock", "dqhost.log", "dqhost-guests.log"] {
            std::os::unix::fs::symlink(at("victim"), at(name)).unwrap();
            let error = LogFile::open_both(folder.path()).unwrap_err().to_string();
            assert!(error.contains("is a symbolic link"), "{error}");
            std::fs::remove_file(at(name)).unwrap();
            let made = std::process::Command::new("mkfifo").arg(at(name)).status();
            assert!(made.unwrap().success());
            let error = LogFile::open_both(folder.path()).unwrap_err().to_string();
            assert!(error.contains("is a named pipe"), "{error}");
            std::fs::remove_file(at(name)).unwrap();
        }
        assert_eq!(std::fs::read(at("victim")).unwrap(), b"content");
    }

    #[test]
    fn two_processes_of_one_user_have_a_file_and_a_rotation_each() {
        let folder = tempfile::tempdir().unwrap();
        let [mut one, guests] = LogFile::open_both(folder.path()).unwrap();
        let [mut two, _] = LogFile::open_both(folder.path()).unwrap();
        assert_eq!(two.path, folder.path().join("dqhost-2.log"));
        two.size = FILE_MAX;
        two.add(b"two\n").unwrap();
        one.add(b"one\n").unwrap();
        assert_eq!(std::fs::read(&one.path).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&two.path).unwrap(), b"two\n");
        assert!(!folder.path().join("dqhost.log.1").exists());
        // The next one has the file of one that has ended.
        let path = one.path.clone();
        drop((one, guests));
        assert_eq!(LogFile::open_both(folder.path()).unwrap()[0].path, path);
    }
}
