//! Files that are looked at again and again, since people replace them while a program runs.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::Usage;
use crate::files;
use crate::text::printable;

/// How often [`Kept`] looks at its files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What tells two states of a file apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// None if there is no regular file: what is in a pipe is read once.
    fn of(path: impl AsRef<Path>) -> Option<Self> {
        let file = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
        Some(Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            written: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

/// What is known of watched files.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// At the last look; empty before the first.
    seen: Vec<Option<Stamp>>,
    /// When they were last taken over or refused.
    taken: Vec<Option<Stamp>>,
}

impl Watched {
    /// True when a file is another than was taken last, and all are the same as at the last look: then
    /// nobody writes them any more.
    pub(super) fn have_changed(&mut self, paths: &[impl AsRef<Path>]) -> bool {
        let now: Vec<Option<Stamp>> = paths.iter().map(Stamp::of).collect();
        let none = vec![None; now.len()];
        let known = |stamps: Vec<Option<Stamp>>| {
            if stamps.is_empty() {
                none.clone()
            } else {
                stamps
            }
        };
        let is_steady = known(std::mem::replace(&mut self.seen, now.clone())) == now;
        is_steady && known(std::mem::replace(&mut self.taken, now.clone())) != now
    }
}

/// What files say, as it was when they were last right.
pub(super) struct Kept<T> {
    /// As it is used.
    pub value: Arc<RwLock<Arc<T>>>,
    /// For messages: "the tokens".
    what: &'static str,
    files: Arc<Files<T>>,
    watched: Watched,
}

struct Files<T> {
    paths: Vec<PathBuf>,
    bytes_max: u64,
    parse: fn(&[Vec<u8>]) -> Result<T, String>,
}

impl<T> Files<T> {
    fn read(&self) -> Result<T, String> {
        let read = |path: &PathBuf| {
            let shown = || printable(&path.display().to_string()).into_owned();
            let bytes = files::read_named(path, self.bytes_max)
                .map_err(|error| format!("{}: {error}", shown()))?;
            if bytes.len() as u64 > self.bytes_max {
                return Err(format!(
                    "{} has more than {} bytes",
                    shown(),
                    self.bytes_max
                ));
            }
            Ok(bytes)
        };
        let contents: Result<Vec<Vec<u8>>, String> = self.paths.iter().map(read).collect();
        (self.parse)(&contents?)
    }
}

impl<T: Send + Sync + 'static> Kept<T> {
    /// Reads them for the first time.
    pub(super) fn open(
        what: &'static str,
        paths: Vec<PathBuf>,
        bytes_max: u64,
        parse: fn(&[Vec<u8>]) -> Result<T, String>,
    ) -> Result<Self, Usage> {
        let mut watched = Watched::default();
        // What changes while it is read is read again.
        watched.have_changed(&paths);
        watched.have_changed(&paths);
        let files = Files {
            paths,
            bytes_max,
            parse,
        };
        let value = files
            .read()
            .map_err(|error| Usage(format!("{what} cannot be used: {error}")))?;
        Ok(Self {
            value: Arc::new(RwLock::new(Arc::new(value))),
            what,
            files: Arc::new(files),
            watched,
        })
    }

    /// Reads the files again whenever they have changed. What is wrong changes nothing, and is told of.
    pub(super) async fn keep(self) {
        let Self {
            value,
            what,
            files,
            mut watched,
        } = self;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let files = Arc::clone(&files);
            // A disk may hang.
            let looked = tokio::task::spawn_blocking(move || {
                let found = watched.have_changed(&files.paths).then(|| files.read());
                (watched, found)
            });
            let Ok((now, found)) = looked.await else {
                tracing::error!("{what} cannot be read again any more: restart dqhost");
                return;
            };
            watched = now;
            match found {
                None => {}
                Some(Ok(found)) => {
                    *value.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
                    tracing::info!("{what} were read again");
                }
                Some(Err(error)) => tracing::error!("{what} stay as they were: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn a_watched_file_is_taken_once_when_it_has_stopped_changing() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("handler.wasm");
        std::fs::write(&path, "a").unwrap();
        let mut watched = Watched::default();
        let mut looks = |count: usize| -> Vec<bool> {
            (0..count).map(|_| watched.have_changed(&[&path])).collect()
        };
        assert_eq!(looks(4), [false, true, false, false]);
        std::fs::write(&path, "ab").unwrap();
        assert_eq!(looks(1), [false]);
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(looks(3), [false, true, false]);
        // Another file of the same name and length.
        let other = folder.path().join("other.wasm");
        std::fs::write(&other, "xyz").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(looks(3), [false, true, false]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(looks(3), [false, true, false]);
    }
}
