//! The connections of one run, which are closed when it ends.
//!
//! Requests are driven by tasks beside the guest, and a task that is aborted lets go of what it has only
//! when a thread gets to it. A message is given back as soon as its handler has ended. By then whoever is
//! at the other end must see that, too, and nothing more may be sent to it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// None once it was closed from here.
type Shared = Mutex<Option<TcpStream>>;

#[derive(Debug, Default)]
struct Open {
    is_over: bool,
    streams: Vec<Weak<Shared>>,
}

/// Closes them when it is dropped, with the run.
#[derive(Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Open>>);

/// Where the tasks of a run report their connections.
#[derive(Debug, Clone)]
pub(super) struct Register(Arc<Mutex<Open>>);

/// A connection that its run can close at any time.
#[derive(Debug)]
pub(super) struct Connection(Arc<Shared>);

/// Closes one connection from wherever it is driven.
#[derive(Debug)]
pub(super) struct Cut(Weak<Shared>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    pub(super) fn register(&self) -> Register {
        Register(Arc::clone(&self.0))
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let mut open = lock(&self.0);
        open.is_over = true;
        for stream in open.streams.drain(..).filter_map(|weak| weak.upgrade()) {
            drop(lock(&stream).take());
        }
    }
}

impl Register {
    /// The stream, as one of the run's; none when that is over.
    pub(super) fn add(&self, stream: TcpStream) -> Option<Connection> {
        let mut open = lock(&self.0);
        if open.is_over {
            return None;
        }
        open.streams.retain(|stream| stream.strong_count() > 0);
        let stream = Arc::new(Mutex::new(Some(stream)));
        open.streams.push(Arc::downgrade(&stream));
        Some(Connection(stream))
    }
}

impl Drop for Connection {
    /// While the run can still reach it, so that it waits for what is being closed elsewhere.
    fn drop(&mut self) {
        drop(lock(&self.0).take());
    }
}

impl Cut {
    /// What reads or writes next gets an error.
    pub(super) fn close(&self) {
        if let Some(stream) = self.0.upgrade() {
            drop(lock(&stream).take());
        }
    }
}

impl Connection {
    pub(super) fn cut(&self) -> Cut {
        Cut(Arc::downgrade(&self.0))
    }

    fn poll<T>(
        &self,
        poll: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut *lock(&self.0) {
            Some(stream) => poll(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(|stream| stream.poll_write_vectored(cx, bufs))
    }

    /// As those of TCP can.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|stream| stream.poll_shutdown(cx))
    }
}
