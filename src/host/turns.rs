//! Whose long run computes next.
//!
//! The rule is start-time fair queueing (Goyal, Vin and Cheng, "Start-time fair queuing", IEEE/ACM
//! Transactions on Networking 5(5), 1997). Each queue has a virtual time, the time that its runs have
//! computed, and the queue whose virtual time is the earliest has the next turn. A queue that comes back
//! begins at the virtual time of those that stayed, so it owes nothing and has saved nothing up. Within a queue
//! runs take turns. A turn ends with the next tick of the engine's clock, or when the run waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The turns of all long runs of a host.
#[derive(Debug)]
pub(super) struct Turns(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Threads on which nothing computes.
    free: usize,
    /// When the latest turn began, in virtual time.
    now: Duration,
    queues: Vec<QueueState>,
    /// Those of `queues` that no queue uses any more.
    unused: Vec<usize>,
    /// The latest number given.
    latest: u64,
}

#[derive(Debug, Default)]
struct QueueState {
    /// The queue's virtual time.
    time: Duration,
    waiting: VecDeque<Waiting>,
    /// Its runs that have a turn.
    running: Vec<u64>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    waker: Waker,
}

/// The turns of one queue's runs.
#[derive(Debug)]
pub(super) struct QueueTurns {
    turns: Arc<Turns>,
    queue: usize,
}

/// The turns of one run. Its place is given up when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    of: Arc<QueueTurns>,
    number: u64,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Waits,
    Computes(Instant),
}

impl Turns {
    /// For so many threads.
    pub(super) fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            free: threads.max(1),
            now: Duration::ZERO,
            queues: Vec::new(),
            unused: Vec::new(),
            latest: 0,
        })))
    }

    /// The turns of a further queue.
    pub(super) fn add_queue(self: &Arc<Self>) -> Arc<QueueTurns> {
        let mut state = self.lock();
        let queue = state.unused.pop().unwrap_or(state.queues.len());
        if queue == state.queues.len() {
            state.queues.push(QueueState::default());
        }
        Arc::new(QueueTurns {
            turns: Arc::clone(self),
            queue,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueTurns {
    /// The turns of a new run.
    pub(super) fn add_run(self: &Arc<Self>) -> Turn {
        let mut state = self.turns.lock();
        state.latest += 1;
        Turn {
            of: Arc::clone(self),
            number: state.latest,
            phase: Phase::Idle,
        }
    }
}

/// Its runs have ended, since each of them holds it.
impl Drop for QueueTurns {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.queues[self.queue] = QueueState::default();
        state.unused.push(self.queue);
    }
}

impl State {
    /// Gives free threads to those who are next; returns what wakes them.
    fn serve(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        while self.free > 0 {
            let queues = self.queues.iter_mut();
            let waiting = queues.filter(|queue| !queue.waiting.is_empty());
            let Some(next) = waiting.min_by_key(|queue| (queue.time, queue.running.len())) else {
                break;
            };
            self.now = self.now.max(next.time);
            if let Some(Waiting { number, waker }) = next.waiting.pop_front() {
                next.running.push(number);
                woken.push(waker);
            }
            self.free -= 1;
        }
        woken
    }

    /// Ends the turn of a run that has one, after it has computed for so long.
    fn end(&mut self, queue: usize, number: u64, took: Duration) -> Vec<Waker> {
        let queue = &mut self.queues[queue];
        let running = queue.running.len();
        queue.running.retain(|other| *other != number);
        if queue.running.len() == running {
            return Vec::new();
        }
        queue.time += took;
        self.free += 1;
        self.serve()
    }
}

impl Turn {
    /// Ready when it is the run's turn.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.of.turns.lock();
        let now = state.now;
        let queue = &mut state.queues[self.of.queue];
        match self.phase {
            Phase::Computes(_) => return Poll::Ready(()),
            Phase::Waits => {
                let mut waiting = queue.waiting.iter_mut();
                if let Some(place) = waiting.find(|one| one.number == self.number) {
                    place.waker.clone_from(cx.waker());
                    return Poll::Pending;
                }
            }
            Phase::Idle => {
                if queue.waiting.is_empty() && queue.running.is_empty() {
                    queue.time = queue.time.max(now);
                }
                queue.waiting.push_back(Waiting {
                    number: self.number,
                    waker: cx.waker().clone(),
                });
                self.phase = Phase::Waits;
                // A thread that was free until now had nobody who waited for it.
                let woken = state.serve();
                if woken.is_empty() {
                    return Poll::Pending;
                }
            }
        }
        self.phase = Phase::Computes(Instant::now());
        Poll::Ready(())
    }

    /// Ends the turn.
    pub(super) fn end(&mut self) {
        if let Phase::Computes(since) = self.phase {
            self.end_after(since.elapsed());
        }
    }

    fn end_after(&mut self, took: Duration) {
        self.phase = Phase::Idle;
        let woken = self.of.turns.lock().end(self.of.queue, self.number, took);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let took = match self.phase {
            Phase::Idle => return,
            Phase::Waits => Duration::ZERO,
            Phase::Computes(since) => since.elapsed(),
        };
        let woken = {
            let mut state = self.of.turns.lock();
            let waiting = &mut state.queues[self.of.queue].waiting;
            waiting.retain(|one| one.number != self.number);
            // It may have been given a turn that it has not taken.
            state.end(self.of.queue, self.number, took)
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(turn: &mut Turn) -> bool {
        turn.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn a_queue_with_one_run_computes_as_much_as_one_with_fifteen() {
        let turns = Turns::new(1);
        let queues = [(); 2].map(|()| turns.add_queue());
        let mut greedy: Vec<Turn> = (0..15).map(|_| queues[0].add_run()).collect();
        let mut modest = queues[1].add_run();
        let mut counts = [0; 2];
        for _ in 0..1000 {
            let mut all: Vec<&mut Turn> = greedy.iter_mut().chain([&mut modest]).collect();
            let ready: Vec<bool> = all.iter_mut().map(|turn| poll(turn)).collect();
            let next = ready.iter().position(|ready| *ready).unwrap();
            counts[all[next].of.queue] += 1;
            all[next].end_after(TICK);
        }
        assert_eq!(counts, [500, 500]);
    }

    #[test]
    fn who_comes_late_is_next_and_has_saved_nothing_up() {
        let turns = Turns::new(1);
        let queues = [(); 2].map(|()| turns.add_queue());
        let [mut first, mut second] = [(); 2].map(|()| queues[0].add_run());
        for _ in 0..100 {
            assert!(poll(&mut first));
            first.end_after(TICK);
        }
        assert!(poll(&mut first) && !poll(&mut second));
        let mut late = queues[1].add_run();
        assert!(!poll(&mut late));
        first.end_after(TICK);
        // Before the run that waited longer, of the queue that has just computed.
        assert!(!poll(&mut second) && poll(&mut late));
        late.end_after(50 * TICK);
        assert!(!poll(&mut late));
        assert!(poll(&mut second));
    }

    #[test]
    fn who_is_gone_gives_its_turn_to_the_next() {
        let turns = Turns::new(1);
        let queue = turns.add_queue();
        let mut all: Vec<Turn> = (0..4).map(|_| queue.add_run()).collect();
        let ready: Vec<bool> = all.iter_mut().map(poll).collect();
        assert_eq!(ready, [true, false, false, false]);
        // One that waits, one that computes, and one that has not taken its turn yet.
        drop(all.remove(1));
        drop(all.remove(0));
        drop(all.remove(0));
        assert!(poll(&mut all[0]));
        drop(all);
        assert_eq!(turns.lock().free, 1);
    }
}
