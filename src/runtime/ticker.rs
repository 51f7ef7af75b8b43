//! The clock of the engine's epochs.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::Engine;

/// How often a running guest yields and its deadline is looked at. A guest is stopped at most this
/// much late.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// A thread that advances the epoch of one engine; stopped and joined on drop.
pub(super) struct Ticker {
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(super) fn start(engine: &Engine) -> io::Result<Self> {
        let engine = engine.weak();
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("epoch".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    match engine.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                }
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
