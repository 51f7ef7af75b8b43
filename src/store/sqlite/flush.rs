//! Waits for the disk on a thread of its own. Meanwhile the next transactions are written, and one flush does for
//! all that were written before it began.
//!
//! SQLite itself flushes the log as it begins anew and before its content goes to the file, and at no other time
//! (`synchronous = NORMAL`, <https://sqlite.org/pragma.html#pragma_synchronous>). So what was committed is either in
//! the log, which is flushed here, or in the file, where it was flushed. A process that dies between the commit and
//! the flush leaves what it has committed, and who asked for it has not been told. After a power cut it may be gone.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;

use super::disk;
use super::error::Failure;

/// What is done when all that was written before is on the disk, or when that has failed.
type Then = Box<dyn FnOnce(Result<(), Failure>) + Send>;

/// Flushes the log of one file. Dropping it waits for the flush under way.
pub(super) struct Flusher {
    log: Arc<Log>,
    /// Taken only by drop.
    waiting: Option<mpsc::Sender<Then>>,
    thread: Option<JoinHandle<()>>,
}

struct Log {
    flush: Mutex<Box<dyn FnMut() -> io::Result<()> + Send>>,
    /// The system reports a failure once and takes the data for written then
    /// (<https://lwn.net/Articles/752063/>), so no later flush is believed.
    failed: OnceLock<String>,
}

impl Log {
    fn flush(&self) -> Result<(), Failure> {
        let mut flush = self.flush.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_believed()?;
        if let Err(error) = flush() {
            let _ = self.failed.set(error.to_string());
        }
        self.is_believed()
    }

    fn is_believed(&self) -> Result<(), Failure> {
        match self.failed.get() {
            None => Ok(()),
            Some(reason) => Err(Failure::NotFlushed(reason.clone())),
        }
    }
}

impl Flusher {
    /// Of the log beside a file that a connection has open, which keeps the log in its place.
    pub(super) fn of(path: Option<&Path>) -> io::Result<Option<Arc<Self>>> {
        let Some(path) = path else {
            return Ok(None);
        };
        let log = disk::open_log(path)?;
        // That the log is there has to be on the disk as well, whoever has put it there.
        let mut folder = path.parent().and_then(|folder| File::open(folder).ok());
        let flusher = Self::start(move || {
            if let Some(folder) = folder.take() {
                // Not every file system can.
                let _ = folder.sync_all();
            }
            flush(&log)
        });
        flusher.map(|flusher| Some(Arc::new(flusher)))
    }

    pub(super) fn start(
        flush: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let log = Arc::new(Log {
            flush: Mutex::new(Box::new(flush)),
            failed: OnceLock::new(),
        });
        let (waiting, receiver) = mpsc::channel::<Then>();
        let of_thread = Arc::clone(&log);
        let thread = std::thread::Builder::new()
            .name("sqlite-flush".to_owned())
            .spawn(move || {
                let mut all = Vec::new();
                while let Ok(first) = receiver.recv() {
                    all.push(first);
                    all.extend(receiver.try_iter());
                    let _ = of_thread.flush();
                    for then in all.drain(..) {
                        then(of_thread.is_believed());
                    }
                }
            })?;
        Ok(Self {
            log,
            waiting: Some(waiting),
            thread: Some(thread),
        })
    }

    /// Flushes on this thread, which saves the time to wake the other.
    pub(super) fn now(&self) -> Result<(), Failure> {
        self.log.flush()
    }

    /// An error once a flush has failed. What is written then may never be read again, so nothing is.
    pub(super) fn is_believed(&self) -> Result<(), Failure> {
        self.log.is_believed()
    }

    /// Does something when all that was written before is on the disk.
    pub(super) fn then(&self, then: impl FnOnce(Result<(), Failure>) + Send + 'static) {
        if let Some(waiting) = &self.waiting
            && let Err(mpsc::SendError(then)) = waiting.send(Box::new(then))
        {
            then(Err(Failure::NotFlushed("its thread is gone".to_owned())));
        }
    }
}

fn flush(log: &File) -> io::Result<()> {
    let flushed = log.sync_data();
    // There it empties the cache of the drive too, which not every file system can. So does SQLite.
    #[cfg(target_vendor = "apple")]
    let flushed = flushed.or_else(|_| Ok(rustix::fs::fsync(log)?));
    flushed
}

impl Drop for Flusher {
    fn drop(&mut self) {
        drop(self.waiting.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::NewMessage;
    use crate::store::SendMessages;
    use crate::store::sqlite::{SqliteOptions, SqliteStore};
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_flush_does_for_all_that_were_written_before() {
        let done = Arc::new(AtomicUsize::new(0));
        let (count, (goes_on, go_on)) = (Arc::clone(&done), mpsc::channel::<()>());
        let (began, begins) = mpsc::channel();
        let flusher = Flusher::start(move || {
            count.fetch_add(1, Ordering::SeqCst);
            began.send(()).unwrap();
            go_on.recv().unwrap();
            Ok(())
        });
        let flusher = flusher.unwrap();
        let (told, heard) = mpsc::channel();
        let wait = |who: usize| {
            let told = told.clone();
            flusher.then(move |flushed| told.send((who, flushed.is_ok())).unwrap());
        };
        wait(0);
        begins.recv().unwrap();
        // What comes during a flush is not done with by it.
        for who in 1..100 {
            wait(who);
        }
        assert!(heard.try_recv().is_err());
        goes_on.send(()).unwrap();
        assert_eq!(heard.recv().unwrap(), (0, true));
        begins.recv().unwrap();
        assert!(heard.try_recv().is_err());
        goes_on.send(()).unwrap();
        for who in 1..100 {
            assert_eq!(heard.recv().unwrap(), (who, true));
        }
        assert_eq!(done.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn after_a_flush_that_failed_none_is_believed() {
        let mut results = vec![Ok(()), Err(io::Error::other("it burns")), Ok(())].into_iter();
        let flusher = Flusher::start(move || results.next().unwrap()).unwrap();
        let (told, heard) = mpsc::channel();
        for expected in [None, Some("it burns"), Some("it burns")] {
            let told = told.clone();
            flusher.then(move |flushed| told.send(flushed).unwrap());
            match (heard.recv().unwrap(), expected) {
                (Ok(()), None) => {}
                (Err(Failure::NotFlushed(reason)), Some(expected)) => assert_eq!(reason, expected),
                (other, _) => panic!("{other:?}"),
            }
        }
        assert!(flusher.now().is_err());
    }

    #[tokio::test]
    async fn the_log_that_is_flushed_stays_that_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("q.db");
        let store = SqliteStore::open(&SqliteOptions::file(&path))
            .await
            .unwrap();
        let log = disk::open_log(&path).unwrap().metadata().unwrap().ino();
        let queue = "q".parse().unwrap();
        for _ in 0..8 {
            // More than the log holds, so that it begins anew; and other processes come and go.
            let other = SqliteStore::open(&SqliteOptions::file(&path))
                .await
                .unwrap();
            let messages: Vec<_> = (0..200)
                .map(|_| NewMessage::new("x".repeat(8_000)))
                .collect();
            other.send(&queue, &messages).await.unwrap();
            store.send(&queue, &messages[..1]).await.unwrap();
            drop(other);
            let now = std::fs::metadata(path.with_extension("db-wal")).unwrap();
            assert_eq!(now.ino(), log);
        }
    }
}
