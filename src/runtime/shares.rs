//! Things of which a host has only so many (connections, name look-ups), divided among queues and runs.
//!
//! The rule is that of dynamic thresholds (Choudhury and Hahne, "Dynamic queue length thresholds for
//! shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998), on two levels. A queue
//! may hold as many as it leaves free, and a run as many as it leaves to the other runs of its queue. So
//! whoever comes later finds a free one, although nobody ever has to give one back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// All of one kind.
#[derive(Debug)]
pub(super) struct Shares {
    /// What a run can expect: half of its equal part, and at least one. Runs that all want more have
    /// as many by the rule, so none of them can say that it had too few.
    expected: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    queues: Vec<QueueShare>,
    /// Those that may not have one now, in the order in which they came. At most one for each run.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct QueueShare {
    name: String,
    held: usize,
    /// Who knows it: its runs, and whoever serves it. Without any it is gone, and its place is free.
    known: usize,
}

/// A queue for which the others leave something, as long as this is there.
#[derive(Debug)]
pub(super) struct KnownQueue {
    shares: Arc<Shares>,
    index: usize,
}

#[derive(Debug)]
struct Waiting {
    run: Arc<RunShare>,
    grant: oneshot::Sender<Held>,
}

/// What one run holds.
#[derive(Debug)]
pub(super) struct RunShare {
    queue: KnownQueue,
    /// Changed only while the state is locked.
    held: AtomicUsize,
    /// Waits that were not served while the run held less than it can expect.
    unserved: AtomicUsize,
    /// Lets one request of the run wait at a time, so that a run has one place in the line.
    turn: tokio::sync::Mutex<()>,
}

/// One of them, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Held(Arc<RunShare>);

impl Shares {
    /// So many, for up to `runs` runs at a time.
    pub(super) fn new(total: usize, runs: usize) -> Arc<Self> {
        Arc::new(Self {
            expected: (total / runs.max(1) / 2).max(1),
            state: Mutex::new(State {
                free: total,
                queues: Vec::new(),
                waiting: VecDeque::new(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a queue known, for which the others leave something from now on.
    #[must_use]
    pub(super) fn add_queue(self: &Arc<Self>, name: &str) -> KnownQueue {
        let mut state = self.lock();
        let known = state.queues.iter().position(|queue| queue.name == name);
        let index = known.unwrap_or_else(|| state.new_queue(name));
        state.queues[index].known += 1;
        KnownQueue {
            shares: Arc::clone(self),
            index,
        }
    }

    /// The share of a new run of this queue.
    pub(super) fn run_of(self: &Arc<Self>, queue: &str) -> Arc<RunShare> {
        Arc::new(RunShare {
            queue: self.add_queue(queue),
            held: AtomicUsize::new(0),
            unserved: AtomicUsize::new(0),
            turn: tokio::sync::Mutex::new(()),
        })
    }

    /// Serves whoever may have one now.
    fn serve(&self) {
        let mut granted = Vec::new();
        // The last of a run locks the state itself, so they are dropped after it.
        let mut gone = Vec::new();
        {
            let mut state = self.lock();
            let is_gone = |one: &Waiting| one.grant.is_closed();
            while let Some(place) = state.waiting.iter().position(is_gone) {
                gone.extend(state.waiting.remove(place));
            }
            while let Some(next) = state.next() {
                let held = state.give(&next.run);
                granted.push((next.grant, held));
            }
        }
        for (grant, held) in granted {
            // Whoever has gone away meanwhile gives it back by dropping it here.
            let _ = grant.send(held);
        }
    }
}

impl State {
    /// A place for a queue: one that is free, or a new one.
    fn new_queue(&mut self, name: &str) -> usize {
        let new = QueueShare {
            name: name.to_owned(),
            held: 0,
            known: 0,
        };
        if let Some(free) = self.queues.iter().position(|queue| queue.known == 0) {
            self.queues[free] = new;
            free
        } else {
            self.queues.push(new);
            self.queues.len() - 1
        }
    }

    fn may_have(&self, run: &RunShare) -> bool {
        let mut others = self.queues.iter().enumerate();
        let is_alone = !others.any(|(at, one)| at != run.queue.index && one.known > 0);
        let room = if is_alone {
            self.free
        } else {
            self.free.saturating_sub(self.queues[run.queue.index].held)
        };
        run.held.load(Ordering::Relaxed) < room
    }

    /// Takes the next out of the line: of those that may have one, the first of the queue that holds
    /// the fewest.
    fn next(&mut self) -> Option<Waiting> {
        let line = self.waiting.iter().enumerate();
        let served = line.filter(|(_, one)| self.may_have(&one.run));
        let (place, _) = served.min_by_key(|(_, one)| {
            let held = one.run.held.load(Ordering::Relaxed);
            (self.queues[one.run.queue.index].held, held)
        })?;
        self.waiting.remove(place)
    }

    fn give(&mut self, run: &Arc<RunShare>) -> Held {
        self.free -= 1;
        self.queues[run.queue.index].held += 1;
        run.held.fetch_add(1, Ordering::Relaxed);
        Held(Arc::clone(run))
    }
}

impl RunShare {
    /// One of them, as soon as the run may have it.
    pub(super) async fn take(self: &Arc<Self>) -> Held {
        let _turn = self.turn.lock().await;
        let (held, granted) = {
            let mut state = self.queue.shares.lock();
            if state.may_have(self) {
                return state.give(self);
            }
            let (grant, granted) = oneshot::channel();
            state.waiting.push_back(Waiting {
                run: Arc::clone(self),
                grant,
            });
            (self.held.load(Ordering::Relaxed), granted)
        };
        let is_short = usize::from(held < self.queue.shares.expected);
        self.unserved.fetch_add(is_short, Ordering::Relaxed);
        let Ok(held) = granted.await else {
            // The line outlives those who wait in it.
            std::future::pending().await
        };
        self.unserved.fetch_sub(is_short, Ordering::Relaxed);
        held
    }

    /// True if the host has not provided what the run can expect. What a run holds beyond that, and
    /// what it waits for meanwhile, is its own affair: otherwise it could fail for nothing.
    pub(super) fn was_short(&self) -> bool {
        self.unserved.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let KnownQueue { shares, index } = &self.0.queue;
        {
            let mut state = shares.lock();
            state.free += 1;
            state.queues[*index].held -= 1;
            self.0.held.fetch_sub(1, Ordering::Relaxed);
        }
        shares.serve();
    }
}

impl Drop for KnownQueue {
    fn drop(&mut self) {
        let is_gone = {
            let mut state = self.shares.lock();
            let queue = &mut state.queues[self.index];
            queue.known -= 1;
            queue.known == 0
        };
        if is_gone {
            // The others need to leave nothing for it.
            self.shares.serve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Takes until there are no more.
    fn take_all(run: &Arc<RunShare>) -> Vec<Held> {
        std::iter::from_fn(|| run.take().now_or_never()).collect()
    }

    #[test]
    fn a_queue_leaves_as_many_to_others_as_it_holds_however_many_runs_it_has() {
        let shares = Shares::new(256, 16);
        let _quiet = shares.add_queue("quiet");
        let runs: Vec<_> = (0..64).map(|_| shares.run_of("greedy")).collect();
        let held: Vec<Held> = runs.iter().flat_map(take_all).collect();
        assert!((120..=128).contains(&held.len()), "{}", held.len());
        // A third queue finds its share as well, and so does the next run of each.
        let second = shares.run_of("second");
        let of_second = take_all(&second);
        assert!(of_second.len() >= 32, "{}", of_second.len());
        assert!(!take_all(&shares.run_of("quiet")).is_empty());
        drop((held, of_second));
        assert_eq!(shares.lock().free, 256);
    }

    #[test]
    fn a_run_leaves_others_of_its_queue_a_share_and_one_queue_alone_has_all() {
        for queues in [1, 2] {
            let shares = Shares::new(32, 16);
            let names = &["alone", "other"][..queues];
            let _known: Vec<_> = names.iter().map(|name| shares.add_queue(name)).collect();
            let first = take_all(&shares.run_of("alone"));
            assert_eq!(first.len(), if queues == 1 { 16 } else { 11 });
            let next = take_all(&shares.run_of("alone"));
            assert!(!next.is_empty());
        }
        // One for each run, as far as they go.
        let shares = Shares::new(4, 16);
        let runs: Vec<_> = (0..5).map(|_| shares.run_of("alone")).collect();
        let held: Vec<_> = runs.iter().map(|run| run.take().now_or_never()).collect();
        let served: Vec<bool> = held.iter().map(Option::is_some).collect();
        assert_eq!(served, [true, true, true, true, false]);
    }

    #[tokio::test]
    async fn whoever_holds_the_fewest_is_served_first_and_then_who_came_first() {
        let shares = Shares::new(3, 16);
        let _known = ["greedy", "second", "quiet"].map(|name| shares.add_queue(name));
        let [one, two] = [(); 2].map(|()| shares.run_of("greedy"));
        let held = one.take().await;
        let of_second = shares.run_of("second").take().await;
        let (early, late, quiet) = (
            shares.run_of("second"),
            shares.run_of("second"),
            shares.run_of("quiet"),
        );
        let (mut two, mut early) = (Box::pin(two.take()), Box::pin(early.take()));
        let mut late = Box::pin(late.take());
        for waits in [&mut two, &mut early, &mut late] {
            assert!(waits.as_mut().now_or_never().is_none());
        }
        // There is one for the queue that holds none.
        let of_quiet = quiet.take().now_or_never().unwrap();
        assert!(early.as_mut().now_or_never().is_none());
        drop(of_second);
        assert!(two.as_mut().now_or_never().is_none());
        let of_second = early.await;
        assert!(late.as_mut().now_or_never().is_none());
        drop(of_second);
        drop((late.await, held, of_quiet, two));
        assert_eq!(shares.lock().free, 3);
        assert!(
            shares
                .lock()
                .waiting
                .iter()
                .all(|one| one.grant.is_closed())
        );
    }

    #[test]
    fn nothing_is_left_for_a_queue_that_is_gone() {
        let shares = Shares::new(32, 16);
        let other = shares.add_queue("other");
        let again = shares.add_queue("other");
        let run = shares.run_of("alone");
        let held = take_all(&run);
        assert_eq!(held.len(), 11);
        let mut waits = Box::pin(run.take());
        drop(other);
        assert!(waits.as_mut().now_or_never().is_none());
        drop(again);
        let next = waits.as_mut().now_or_never().unwrap();
        assert_eq!(held.len() + 1 + take_all(&run).len(), 16);
        drop(next);
    }

    #[test]
    fn the_place_of_a_queue_is_free_when_its_last_run_has_gone_while_it_waited() {
        let shares = Shares::new(1, 16);
        let held = shares.run_of("first").take().now_or_never();
        assert!(held.is_some());
        assert!(shares.run_of("gone").take().now_or_never().is_none());
        assert_eq!(shares.lock().queues.len(), 2);
        drop(held);
        for n in 0..100 {
            drop(shares.add_queue(&n.to_string()));
        }
        assert_eq!(shares.lock().queues.len(), 2);
        assert_eq!(shares.lock().free, 1);
    }

    #[test]
    fn only_a_run_that_holds_less_than_half_of_its_equal_part_was_short() {
        let shares = Shares::new(8, 2);
        let runs: Vec<_> = (0..5).map(|_| shares.run_of("q")).collect();
        let held: Vec<Vec<Held>> = runs.iter().map(take_all).collect();
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [4, 2, 1, 1, 0]);
        let short: Vec<bool> = runs.iter().map(|run| run.was_short()).collect();
        assert_eq!(short, [false, false, true, true, true]);
        drop(held);
        let served = shares.run_of("q");
        assert!(served.take().now_or_never().is_some());
        assert!(!served.was_short());
    }

    #[test]
    fn runs_that_all_want_more_cannot_say_that_they_had_too_few() {
        for greedy in 1..=7 {
            let shares = Shares::new(256, 16);
            let _quiet = shares.add_queue("quiet");
            let names: Vec<String> = (0..greedy).map(|n| n.to_string()).collect();
            let runs = 16_usize.div_ceil(greedy + 1);
            let of = |name: &String| (0..runs).map(|_| shares.run_of(name)).collect::<Vec<_>>();
            let all: Vec<Arc<RunShare>> = names.iter().flat_map(of).collect();
            let mut held = Vec::new();
            loop {
                let before = held.len();
                held.extend(all.iter().filter_map(|run| run.take().now_or_never()));
                if held.len() == before {
                    break;
                }
            }
            assert!(all.iter().all(|run| !run.was_short()), "{greedy}");
        }
    }
}
