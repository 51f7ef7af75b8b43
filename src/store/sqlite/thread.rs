//! A connection on a thread of its own, so that no async thread waits for a disk.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

enum Job {
    Run(Box<dyn FnOnce(&mut Connection) + Send>),
    Close(oneshot::Sender<()>),
}

/// Runs jobs one after the other. Dropping it lets the job under way end and closes the
/// connection, which is when SQLite tidies up its files. So does [`close`](Self::close).
pub(super) struct ConnectionThread {
    /// Taken only by drop.
    jobs: Option<mpsc::Sender<Job>>,
    /// Those that have not begun.
    waiting: Arc<AtomicUsize>,
    is_closed: AtomicBool,
    thread: Option<JoinHandle<()>>,
}

/// Why a job has no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// A transaction that was not committed was rolled back, and the thread goes on.
    Panicked,
    /// It came too late, and was not begun.
    Closed,
}

impl ConnectionThread {
    pub(super) fn start(name: &str, mut connection: Connection) -> std::io::Result<Self> {
        let (jobs, receiver) = mpsc::channel::<Job>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let begun = Arc::clone(&waiting);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                for job in receiver {
                    let job = match job {
                        Job::Run(job) => job,
                        Job::Close(closed) => {
                            fail::fail_point!("closing a file");
                            drop(connection);
                            let _ = closed.send(());
                            return;
                        }
                    };
                    begun.fetch_sub(1, Relaxed);
                    // The caller sees that no answer comes; the panic itself is on stderr.
                    let _ = catch_unwind(AssertUnwindSafe(|| job(&mut connection)));
                }
            })?;
        Ok(Self {
            jobs: Some(jobs),
            waiting,
            is_closed: AtomicBool::new(false),
            thread: Some(thread),
        })
    }

    /// Does the jobs that wait, then closes the connection. Later ones are not begun.
    pub(super) async fn close(&self) {
        let (closed, is_closed) = oneshot::channel();
        self.is_closed.store(true, Relaxed);
        if let Some(jobs) = &self.jobs
            && jobs.send(Job::Close(closed)).is_ok()
        {
            // An error says that another has closed it.
            let _ = is_closed.await;
        }
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
    ) -> Result<T, NoAnswer> {
        self.hand_over(|connection, answer| {
            let _ = answer.send(job(connection));
        })
        .await
    }

    /// The same for a job that gives its answer itself, at its end or later.
    pub(super) async fn hand_over<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection, oneshot::Sender<T>) + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (sender, answer) = oneshot::channel();
        let job = Job::Run(Box::new(move |connection| {
            if !sender.is_closed() {
                job(connection, sender);
            }
        }));
        if let Some(jobs) = &self.jobs {
            self.waiting.fetch_add(1, Relaxed);
            // It fails only when the thread is gone, and then so is the sender of the answer.
            let _ = jobs.send(job);
        }
        answer.await.map_err(|_| {
            if self.is_closed.load(Relaxed) {
                NoAnswer::Closed
            } else {
                NoAnswer::Panicked
            }
        })
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

    #[tokio::test]
    async fn what_waits_when_it_is_closed_is_done_and_what_comes_later_is_not() {
        let connection = Connection::open_in_memory().unwrap();
        let thread = ConnectionThread::start("test", connection).unwrap();
        let (go, wait) = mpsc::channel::<()>();
        let mut first = pin!(thread.run(move |_| wait.recv()));
        let mut second = pin!(thread.run(|_| 2));
        let mut close = pin!(thread.close());
        let mut third = pin!(thread.run(|_| 3));
        poll_fn(|context| {
            assert!(first.as_mut().poll(context).is_pending());
            assert!(second.as_mut().poll(context).is_pending());
            assert!(close.as_mut().poll(context).is_pending());
            assert!(third.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        go.send(()).unwrap();
        assert!(first.await.unwrap().is_ok());
        assert_eq!(second.await.unwrap(), 2);
        close.await;
        assert!(matches!(third.await, Err(NoAnswer::Closed)));
        assert!(matches!(thread.run(|_| ()).await, Err(NoAnswer::Closed)));
        thread.close().await;
    }
}
