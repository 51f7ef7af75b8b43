//! What a guest prints: both streams in one buffer, cut at a limit. A guest that floods them goes
//! on at full speed and fills nothing.

use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// Bytes that are kept of what one run prints.
const KEPT_MAX: usize = 64 * 1024;

/// Bytes that a guest may write in one call.
const WRITE_MAX: usize = 64 * 1024;

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    dropped: usize,
}

/// The buffer of one run. A clone is the same buffer.
#[derive(Debug, Clone, Default)]
pub(super) struct GuestLog(Arc<Mutex<Kept>>);

impl GuestLog {
    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = KEPT_MAX - kept.bytes.len();
        let taken = bytes.len().min(room);
        kept.bytes.extend_from_slice(&bytes[..taken]);
        kept.dropped += bytes.len() - taken;
    }

    /// What was printed so far, with a mark when it was cut.
    pub(super) fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::from_utf8_lossy(&kept.bytes).into_owned();
        if kept.dropped > 0 {
            let _ = write!(text, "[cut: {} bytes more]", kept.dropped);
        }
        text
    }
}

impl IsTerminal for GuestLog {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestLog {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for GuestLog {
    async fn ready(&mut self) {}
}

impl OutputStream for GuestLog {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.add(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_MAX)
    }
}

impl AsyncWrite for GuestLog {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.add(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let log = GuestLog::default();
        for _ in 0..3 {
            log.add(&vec![b'x'; 50 * 1024]);
        }
        let text = log.text();
        assert!(text.starts_with(&"x".repeat(KEPT_MAX)));
        assert!(text.ends_with(&format!("[cut: {} bytes more]", 150 * 1024 - KEPT_MAX)));
    }
}
