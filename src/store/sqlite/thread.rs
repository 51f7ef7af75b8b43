//! A connection on a thread of its own, so that no async thread waits for a disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// Runs jobs one after the other. Dropping it lets the job under way end and closes the
/// connection, which is when SQLite tidies up its files.
pub(super) struct ConnectionThread {
    /// Taken only by drop.
    jobs: Option<mpsc::Sender<Job>>,
    /// Those that have not begun.
    waiting: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// The job panicked: a transaction that was not committed was rolled back, and the thread goes on.
#[derive(Debug)]
pub(super) struct Panicked;

impl ConnectionThread {
    pub(super) fn start(name: &str, mut connection: Connection) -> std::io::Result<Self> {
        let (jobs, receiver) = mpsc::channel::<Job>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let begun = Arc::clone(&waiting);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                for job in receiver {
                    begun.fetch_sub(1, Relaxed);
                    // The caller sees that no answer comes; the panic itself is on stderr.
                    let _ = catch_unwind(AssertUnwindSafe(|| job(&mut connection)));
                }
            })?;
        Ok(Self {
            jobs: Some(jobs),
            waiting,
            thread: Some(thread),
        })
    }

    /// How many jobs have not begun.
    pub(super) fn waiting(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.waiting)
    }

    /// The answer of a job. A job that has begun is done to its end. One that nobody waits for any more
    /// when its turn comes is not begun: a lease that its host has given up is not renewed, and no message
    /// is reserved for nobody.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        self.hand_over(|connection, answer| {
            let _ = answer.send(job(connection));
        })
        .await
    }

    /// The same for a job that gives its answer itself, at its end or later.
    pub(super) async fn hand_over<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection, oneshot::Sender<T>) + Send + 'static,
    ) -> Result<T, Panicked> {
        let (sender, answer) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            if !sender.is_closed() {
                job(connection, sender);
            }
        });
        if let Some(jobs) = &self.jobs {
            self.waiting.fetch_add(1, Relaxed);
            // It fails only when the thread is gone, and then so is the sender of the answer.
            let _ = jobs.send(job);
        }
        answer.await.map_err(|_| Panicked)
    }
}

impl Drop for ConnectionThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_not_begun() {
        let connection = Connection::open_in_memory().unwrap();
        let thread = ConnectionThread::start("test", connection).unwrap();
        let (go, wait) = mpsc::channel::<()>();
        let mut first = pin!(thread.run(move |_| wait.recv()));
        let (told, heard) = mpsc::channel::<()>();
        {
            let mut second = pin!(thread.run(move |_| told.send(())));
            // Both are in the queue of the thread, which is with the first.
            poll_fn(|context| {
                assert!(first.as_mut().poll(context).is_pending());
                assert!(second.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        go.send(()).unwrap();
        assert!(first.await.unwrap().is_ok());
        thread.run(|_| ()).await.unwrap();
        assert!(heard.recv().is_err());
    }
}
