//! The clock of the engine's epochs. It stands still while nothing runs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use wasmtime::Engine;

/// How often a running guest yields and its deadline is looked at. A guest is stopped at most this
/// much late.
const TICK: Duration = Duration::from_millis(1);

/// Ticks without a run after which the clock stands still: it is set going again at a price.
const IDLE_TICKS_MAX: u32 = 100;

#[derive(Debug, Default)]
struct Shared {
    /// Runs under way.
    running: AtomicUsize,
    /// The thread sleeps until it is woken.
    is_still: AtomicBool,
    stop: AtomicBool,
}

/// A thread that advances the epoch of one engine; stopped and joined on drop.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Makes the clock go, for what it is given to.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    shared: Arc<Shared>,
    thread: Thread,
}

/// The clock goes as long as this is there.
pub(super) struct Ticking<'a>(&'a Clock);

impl Ticker {
    pub(super) fn start(engine: &Engine) -> io::Result<Self> {
        let engine = engine.weak();
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("epoch".to_owned())
            .spawn(move || {
                let mut idle = 0;
                while !of_thread.stop.load(Ordering::SeqCst) {
                    if of_thread.running.load(Ordering::SeqCst) > 0 {
                        idle = 0;
                    } else {
                        idle += 1;
                    }
                    if idle > IDLE_TICKS_MAX {
                        of_thread.is_still.store(true, Ordering::SeqCst);
                        // A run that began before it could see that this thread sleeps.
                        while of_thread.running.load(Ordering::SeqCst) == 0
                            && !of_thread.stop.load(Ordering::SeqCst)
                        {
                            std::thread::park();
                        }
                        of_thread.is_still.store(false, Ordering::SeqCst);
                        idle = 0;
                    }
                    std::thread::sleep(TICK);
                    match engine.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                }
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    pub(super) fn clock(&self) -> Option<Clock> {
        Some(Clock {
            shared: Arc::clone(&self.shared),
            thread: self.thread.as_ref()?.thread().clone(),
        })
    }
}

impl Clock {
    pub(super) fn go(&self) -> Ticking<'_> {
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        if self.shared.is_still.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Ticking(self)
    }
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.0.shared.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_still_clock_goes_again_when_something_runs() {
        let engine = Engine::default();
        let ticker = Ticker::start(&engine).unwrap();
        let clock = ticker.clock().unwrap();
        let wait_until = |is_still: bool| {
            while clock.shared.is_still.load(Ordering::SeqCst) != is_still {
                std::thread::yield_now();
            }
        };
        for _ in 0..3 {
            wait_until(true);
            let ticking = clock.go();
            wait_until(false);
            drop(ticking);
        }
    }
}
