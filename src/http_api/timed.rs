//! A stream that fails when its reader takes nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How long a client may take nothing of its answer before its connection is closed.
const WRITE_LIMIT: Duration = Duration::from_secs(20);

/// A stream whose writes have a time limit each.
pub(super) struct TimedStream<S> {
    stream: S,
    write_limit: Duration,
    limit: Pin<Box<Sleep>>,
    /// A write waits, and the limit counts.
    is_waiting: bool,
}

impl<S> TimedStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self::with_limit(stream, WRITE_LIMIT)
    }

    fn with_limit(stream: S, write_limit: Duration) -> Self {
        Self {
            stream,
            write_limit,
            limit: Box::pin(tokio::time::sleep(write_limit)),
            is_waiting: false,
        }
    }

    /// The outcome of a write, or an error if it has waited for too long.
    fn within_limit<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.is_waiting = false;
            return outcome;
        }
        if !std::mem::replace(&mut self.is_waiting, true) {
            let end = Instant::now() + self.write_limit;
            self.limit.as_mut().reset(end);
        }
        ready!(self.limit.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within_limit(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.within_limit(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.within_limit(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.within_limit(cx, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_write_that_nobody_reads_fails_and_one_that_is_read_does_not() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let mut stream = TimedStream::with_limit(ours, Duration::from_millis(1));
        let error = stream.write_all(&[1; 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // The limit counts anew for each write that waits.
        let mut stream = TimedStream::new(stream.stream);
        let mut bytes = [0; 30];
        let (written, read) =
            tokio::join!(stream.write_all(&[1; 20]), theirs.read_exact(&mut bytes));
        assert!(written.is_ok() && read.is_ok());
    }
}
