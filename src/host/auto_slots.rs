//! How many handlers of a queue run at a time if nobody has set a number.
//!
//! The controller is TCP Vegas (Brakmo, O'Malley and Peterson, "TCP Vegas: New Techniques for Congestion
//! Detection and Avoidance", SIGCOMM 1994), as Netflix's concurrency-limits applies it to requests. A window
//! grows while there is no queue at the bottleneck, and shrinks by what is too much in it. Vegas
//! guesses the queue from round trips. A host measures it: runs that wait for a core.
//!
//! The store, and what handlers wait for outside, are judged as Vegas judges a network: by their times, against the
//! shortest known. Handlers may also take longer for reasons of their own. So half of the slots are tried for a
//! while: if they do as much, half is enough (Little's law).
//!
//! It is a state machine without a clock. `slot_keeper.rs` feeds it ten times a second.

use std::time::Duration;

use self::cycle::{Cycle, Measured};
pub use self::reason::SlotsReason;

mod cycle;
mod reason;

/// Slots of a queue at first: enough for the round trips of most stores.
pub(super) const FIRST: usize = 16;

/// Until a run has ended, nobody knows what it does: it may compute for long at its end.
const UNPROVEN_MAX: usize = 8 * FIRST;

/// A run may wait so long for a core: it costs nobody much, and more messages go in each batch.
const WAIT_MAX: f64 = 0.005;

/// Runs that may wait for each core, however long they compute.
const WAITING_PER_CORE: f64 = 2.0;

/// With this part of the cores' time in use, there is nothing to gain.
const CORES_FULL: f64 = 0.95;

/// The store counts as slow at so many times its shortest time, and this many seconds.
const STORE_TIMES: f64 = 3.0;
const STORE_SLACK: f64 = 0.025;

/// A shortest time that is never seen again is forgotten: twice as long after 14 s.
const STORE_DRIFT: f64 = 1.005;

/// The same for what handlers wait for.
const OUTSIDE_TIMES: f64 = 2.0;
const OUTSIDE_SLACK: f64 = 0.005;

/// Half of the slots are enough if they do this part of the work.
const ENOUGH: f64 = 0.9;

/// Intervals after which slots grow even if no run has ended, and after which unused ones are given up.
const GROW_AFTER: u32 = 5;
const UNUSED_AFTER: u32 = 10;

/// Intervals for which what a trial has shown holds.
const HALF_HOLDS: u32 = 100;
const ALL_HOLDS: u32 = 300;

/// What happened in one interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sample {
    pub elapsed: Duration,
    /// Messages waited that had no slot.
    pub is_short: bool,
    /// The most slots in use.
    pub used: usize,
    /// Handlers that run at the end of it.
    pub running: usize,
    /// How long handlers of the queue computed, all together.
    pub computed: Duration,
    /// How long they waited for a core.
    pub queued: Duration,
    /// Runs that ended.
    pub finished: u64,
    /// How long those neither computed nor waited for a core.
    pub outside: Duration,
    /// How long a request to the store took, if there was one.
    pub store: Option<Duration>,
    /// Memory of a run, bytes, as far as it is known.
    pub memory: usize,
    /// Bytes that the runs of the queue may have together.
    pub memory_max: usize,
    /// The most slots that it may have for other reasons.
    pub most: usize,
}

/// The controller of one queue.
#[derive(Debug, Clone)]
pub(super) struct AutoSlots {
    cores: f64,
    limit: usize,
    reason: SlotsReason,
    /// Runs that end in a second, lately.
    rate: f64,
    /// Runs that waited for a core, in the interval before.
    queue_before: f64,
    /// Seconds of a request when the store had little to do.
    store_shortest: Option<f64>,
    was_store_slow: bool,
    /// Bytes of a run.
    memory: f64,
    /// Seconds that handlers wait outside when few of them run.
    outside_shortest: Option<f64>,
    cycle: Cycle,
    last: Option<Measured>,
    trial: Option<Trial>,
    /// Intervals that are left until slots may grow, and until half may be tried.
    no_growth: u32,
    no_trial: u32,
    /// Runs that ended, and intervals, since the slots have grown.
    finished: u64,
    intervals: u32,
    is_proven: bool,
    /// Half was enough once, so each step is measured before the next.
    is_wary: bool,
    unused: u32,
}

/// Half of the slots, tried.
#[derive(Debug, Clone)]
struct Trial {
    before: usize,
    with_all: Measured,
    /// Runs beyond the half have ended.
    has_begun: bool,
}

impl AutoSlots {
    pub(super) fn new(cores: usize) -> Self {
        Self {
            cores: count(cores.max(1)),
            limit: FIRST,
            reason: SlotsReason::default(),
            rate: 0.0,
            queue_before: 0.0,
            store_shortest: None,
            was_store_slow: false,
            memory: 0.0,
            outside_shortest: None,
            cycle: Cycle::default(),
            last: None,
            trial: None,
            no_growth: 0,
            no_trial: 0,
            finished: 0,
            intervals: 0,
            is_proven: false,
            is_wary: false,
            unused: 0,
        }
    }

    /// The slots after this interval.
    pub(super) fn next(&mut self, seen: &Sample) -> usize {
        let queue = self.learn(seen);
        let most = seen.most.max(1);
        let in_memory = self.fit_in_memory(seen);
        let (wanted, reason) = self
            .too_many(seen, queue)
            .or_else(|| self.tried(seen))
            .unwrap_or_else(|| self.enough_or_more(seen, queue));
        let (wanted, reason) = match wanted {
            all if all > most.min(in_memory) && in_memory < most => {
                (in_memory, SlotsReason::Memory)
            }
            all if all > most => (most, SlotsReason::Most),
            all => (all.max(1), reason),
        };
        if wanted != self.limit && self.outside_shortest.is_some() {
            // What comes is of another number of slots.
            (self.cycle, self.last) = (Cycle::default(), None);
        }
        if wanted > self.limit {
            (self.finished, self.intervals) = (0, 0);
        }
        (self.limit, self.reason) = (wanted, reason);
        wanted
    }

    /// Why there are so many.
    pub(super) fn reason(&self) -> SlotsReason {
        self.reason
    }

    /// Nothing runs, and what comes next may be unlike what was there.
    pub(super) fn rest(&mut self) -> usize {
        if self.limit > FIRST {
            (self.limit, self.reason) = (FIRST, SlotsReason::Unused);
        }
        self.trial = None;
        (self.cycle, self.last) = (Cycle::default(), None);
        (self.is_proven, self.is_wary) = (false, false);
        (self.finished, self.intervals, self.unused) = (0, 0, 0);
        self.limit
    }

    /// Takes note of an interval. Returns the runs that waited for a core, on average.
    fn learn(&mut self, seen: &Sample) -> f64 {
        let seconds = seen.elapsed.as_secs_f64().max(0.001);
        self.rate = f64::midpoint(self.rate, real(seen.finished) / seconds);
        self.finished = self.finished.saturating_add(seen.finished);
        self.intervals = self.intervals.saturating_add(1);
        self.is_proven |= seen.finished > 0;
        self.no_growth = self.no_growth.saturating_sub(1);
        self.no_trial = self.no_trial.saturating_sub(1);
        // At once when it rises, and slowly when it falls.
        self.memory = count(seen.memory).max(self.memory * 0.97);
        self.learn_outside(seen);
        seen.queued.as_secs_f64() / seconds
    }

    /// The shortest is that of the first runs, when few ran, or that of a later cycle.
    fn learn_outside(&mut self, seen: &Sample) {
        let measured = self.cycle.add(seen.elapsed, seen.finished, seen.outside);
        if measured.is_some() {
            self.last = measured;
        }
        let mean = measured.map(|measured| measured.outside);
        self.outside_shortest = match self.outside_shortest {
            Some(known) => Some(mean.map_or(known, |mean| known.min(mean))),
            None => mean.or_else(|| self.cycle.mean()),
        };
    }

    fn fit_in_memory(&self, seen: &Sample) -> usize {
        if self.memory < 1.0 {
            return usize::MAX;
        }
        whole(count(seen.memory_max) / self.memory).max(1)
    }

    /// Runs that may wait for a core.
    fn may_wait(&self) -> f64 {
        self.cores * WAITING_PER_CORE + self.rate * WAIT_MAX
    }

    /// Fewer slots, because the store or the cores push back.
    fn too_many(&mut self, seen: &Sample, queue: f64) -> Option<(usize, SlotsReason)> {
        let is_slow = self.is_store_slow(seen);
        // One interval alone may be a burst.
        let waiting = queue.min(std::mem::replace(&mut self.queue_before, queue));
        let found = if waiting > self.may_wait() {
            // Those that do not wait, and three quarters of those that may.
            let used = count(seen.used.min(self.limit).max(seen.running));
            let left = (used - queue).max(0.0) + 0.75 * self.may_wait();
            Some((self.limit.min(whole(left.ceil())), SlotsReason::Cores))
        } else if is_slow {
            let fewer = self.limit * 9 / 10;
            Some((fewer.max(self.limit.min(FIRST)), SlotsReason::Store))
        } else {
            None
        };
        if found.is_some() {
            self.trial = None;
        }
        found
    }

    fn is_store_slow(&mut self, seen: &Sample) -> bool {
        // Nothing was asked: one slow request alone is no reason for fewer.
        let Some(took) = seen.store else { return false };
        let took = took.as_secs_f64();
        let shortest = self
            .store_shortest
            .map_or(took, |known| known * STORE_DRIFT);
        self.store_shortest = Some(shortest.min(took));
        let is_slow = took > shortest * STORE_TIMES + STORE_SLACK;
        std::mem::replace(&mut self.was_store_slow, is_slow) && is_slow
    }

    /// True if handlers wait for much longer than they did when they were few.
    fn is_stretched(&self) -> bool {
        let (Some(last), Some(shortest)) = (self.last, self.outside_shortest) else {
            return false;
        };
        last.outside > shortest * OUTSIDE_TIMES + OUTSIDE_SLACK
    }

    /// Goes on with the trial of half of the slots, and ends it when it is known what they do.
    fn tried(&mut self, seen: &Sample) -> Option<(usize, SlotsReason)> {
        let trial = self.trial.as_mut()?;
        if !trial.has_begun {
            trial.has_begun = seen.running <= self.limit;
            (self.cycle, self.last) = (Cycle::default(), None);
            return Some((self.limit, SlotsReason::Trial));
        }
        let Some(with_half) = self.last.take() else {
            return Some((self.limit, SlotsReason::Trial));
        };
        let Trial {
            before, with_all, ..
        } = self.trial.take()?;
        if with_half.rate >= with_all.rate * ENOUGH {
            (self.no_growth, self.is_wary) = (HALF_HOLDS, true);
            return Some((self.limit, SlotsReason::Outside));
        }
        // They take that long, however many there are.
        self.outside_shortest = Some(with_all.outside);
        (self.no_trial, self.is_wary) = (ALL_HOLDS, false);
        Some((before, SlotsReason::Grows))
    }

    /// As many slots as there are, or more if they would be used.
    fn enough_or_more(&mut self, seen: &Sample, queue: f64) -> (usize, SlotsReason) {
        let used = seen.used.max(seen.running);
        if !seen.is_short || used * 8 < self.limit * 7 {
            return self.unused(used);
        }
        self.unused = 0;
        // With few slots the shortest wait may be that of other messages, which were quick.
        if self.limit >= 2 * FIRST && self.is_stretched() {
            return self.stretched();
        }
        if self.no_growth > 0 || self.is_wary && self.last.is_none() {
            return (self.limit, self.reason);
        }
        let room = self.may_wait() / 2.0;
        if queue >= room {
            return (self.limit, SlotsReason::Cores);
        }
        if !self.has_evidence() {
            return (self.limit, self.reason);
        }
        let busy =
            seen.computed.as_secs_f64() / (seen.elapsed.as_secs_f64().max(0.001) * self.cores);
        if busy >= CORES_FULL {
            return (self.limit, SlotsReason::Cores);
        }
        // As long as the cores are not full, twice the slots keep them twice as busy.
        let times = (CORES_FULL / busy.max(0.01)).min(2.0);
        let times = if queue > room / 2.0 {
            times.min(1.125)
        } else {
            times
        };
        let more = whole((count(self.limit) * times).ceil());
        (more.max(self.limit + 1), SlotsReason::Grows)
    }

    /// What the slots of now do is seen: enough of those that began with them have ended, or none do for long.
    fn has_evidence(&self) -> bool {
        let enough = u64::try_from(self.limit / 4).unwrap_or(u64::MAX);
        self.finished >= enough.max(1)
            || self.intervals >= GROW_AFTER && (self.is_proven || self.limit < UNPROVEN_MAX)
    }

    fn unused(&mut self, used: usize) -> (usize, SlotsReason) {
        self.unused += 1;
        if self.unused < UNUSED_AFTER {
            return (self.limit, self.reason);
        }
        self.unused = 0;
        let fewer = (used + used / 2).max(self.limit * 3 / 4);
        let fewer = fewer.max(self.limit.min(FIRST)).min(self.limit);
        let reason = if self.reason == SlotsReason::First {
            self.reason
        } else {
            SlotsReason::Unused
        };
        (fewer, reason)
    }

    fn stretched(&mut self) -> (usize, SlotsReason) {
        let half = self.limit / 2;
        if self.no_trial > 0 || half < FIRST {
            return (self.limit, SlotsReason::Outside);
        }
        // A cycle begins anew when the slots change, so it is all of these slots.
        if let Some(with_all) = self.last.take() {
            self.trial = Some(Trial {
                before: self.limit,
                with_all,
                has_begun: false,
            });
            return (half, SlotsReason::Trial);
        }
        (self.limit, SlotsReason::Outside)
    }
}

#[expect(clippy::cast_precision_loss, reason = "no number here is that large")]
fn count(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "no number here is that large")]
fn real(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, and none is negative"
)]
fn whole(number: f64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const TICK: Duration = Duration::from_millis(100);
    const MOST: usize = 1024;
    const CORES: f64 = 2.0;

    /// What handlers of a queue do, and what is around them; in seconds.
    #[derive(Clone, Copy)]
    struct Work {
        compute: f64,
        outside: f64,
        /// So many can wait outside at a time; more wait in line there.
        outside_places: f64,
        /// The store's answer, and what each message adds to it.
        trip: f64,
        each: f64,
        memory: usize,
    }

    const NOTHING: Work = Work {
        compute: 0.000_01,
        outside: 0.0,
        outside_places: f64::INFINITY,
        trip: 0.000_5,
        each: 0.000_012,
        memory: 1 << 20,
    };

    const fn computes(compute: f64) -> Work {
        Work { compute, ..NOTHING }
    }

    const fn waits(outside: f64) -> Work {
        Work { outside, ..NOTHING }
    }

    /// A host with one queue that is never empty, in steps of a tick. It has no time but the ticks.
    struct World {
        auto: AutoSlots,
        slots: usize,
        memory_max: usize,
        /// Runs that end in each of the next ticks, of those that take longer than one.
        ending: VecDeque<f64>,
        /// Runs that wait for a place outside.
        line: f64,
    }

    impl World {
        fn new() -> Self {
            Self {
                auto: AutoSlots::new(2),
                slots: FIRST,
                memory_max: 6 << 30,
                ending: VecDeque::new(),
                line: 0.0,
            }
        }

        /// Asymptotic bounds: what so many slots do in a second (Denning and Buzen, "The operational
        /// analysis of queueing network models", 1978).
        fn rate(work: &Work, slots: f64) -> f64 {
            let cycle = work.trip + work.compute + work.outside;
            let all = [
                slots / cycle,
                CORES / work.compute,
                work.outside_places / work.outside.max(1e-9),
                slots / (work.trip + slots * work.each),
            ];
            all.into_iter().fold(f64::INFINITY, f64::min)
        }

        fn best(work: &Work) -> f64 {
            let all = (1..=MOST).map(|slots| Self::rate(work, count(slots)));
            all.fold(0.0, f64::max)
        }

        /// One tick, in which so many messages ended.
        fn tick(&mut self, work: &Work) -> f64 {
            let tick = TICK.as_secs_f64();
            let mut ended = self.ending.pop_front().unwrap_or(0.0);
            let served: f64 = self.ending.iter().sum();
            let free = (count(self.slots) - served - self.line).max(0.0);
            let (mut queue, mut short_runs) = (0.0, 0.0);
            if work.outside > tick {
                let ticks = whole((work.outside / tick).round());
                self.ending.resize(ticks.max(self.ending.len()), 0.0);
                self.line += free;
                let begin = self.line.min((work.outside_places - served).max(0.0));
                self.line -= begin;
                self.ending[ticks - 1] += begin;
            } else {
                let rate = Self::rate(work, free);
                ended += rate * tick;
                short_runs = free;
                if rate * work.compute > 0.99 * CORES {
                    queue = free - rate * (work.trip + work.compute + work.outside);
                }
                ended += std::mem::take(&mut self.line);
            }
            let running = self.ending.iter().sum::<f64>() + self.line + short_runs;
            let outside = work.outside * (running / work.outside_places).max(1.0);
            let time = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
            self.slots = self.auto.next(&Sample {
                elapsed: TICK,
                is_short: true,
                used: self.slots,
                running: whole(running),
                computed: time(ended * work.compute),
                queued: time(queue * tick),
                finished: whole(ended) as u64,
                outside: time(outside * ended),
                store: Some(time(work.trip + free * work.each)),
                memory: work.memory,
                memory_max: self.memory_max,
                most: MOST,
            });
            ended
        }

        fn run(&mut self, work: &Work, ticks: usize) -> f64 {
            (0..ticks).map(|_| self.tick(work)).sum()
        }

        /// What is done in a second, after some time for finding out.
        fn settled(&mut self, work: &Work) -> f64 {
            self.run(work, 150);
            self.run(work, 200) / 20.0
        }
    }

    const ALL: [Work; 6] = [
        NOTHING,
        computes(0.001),
        computes(0.02),
        waits(0.005),
        waits(0.1),
        waits(2.0),
    ];

    #[track_caller]
    fn assert_good(world: &mut World, work: &Work) {
        let (got, best) = (world.settled(work), World::best(work));
        let (slots, reason) = (world.slots, world.auto.reason());
        assert!(
            got >= 0.9 * best,
            "{got} of {best} a second with {slots} slots: {reason:?}"
        );
    }

    #[test]
    fn it_gets_as_much_done_as_the_best_number_whatever_handlers_do() {
        for work in &ALL {
            assert_good(&mut World::new(), work);
        }
    }

    #[test]
    fn when_handlers_change_it_finds_the_number_anew() {
        for before in &ALL {
            for after in &ALL {
                let mut world = World::new();
                world.settled(before);
                assert_good(&mut world, after);
            }
        }
    }

    #[test]
    fn before_a_run_has_ended_it_grows_little_and_then_to_all() {
        let mut world = World::new();
        let slots: Vec<usize> = (0..60)
            .map(|_| {
                world.tick(&waits(2.0));
                world.slots
            })
            .collect();
        assert_eq!(slots[..20].iter().max(), Some(&UNPROVEN_MAX));
        assert!(
            slots.is_sorted() && slots[0] == FIRST && slots[59] == MOST,
            "{slots:?}"
        );
    }

    #[test]
    fn a_store_that_slows_is_given_less_and_more_again_when_it_is_quick() {
        let (quick, mut world) = (waits(0.1), World::new());
        let slow = Work { trip: 0.5, ..quick };
        world.run(&quick, 30);
        assert_eq!(world.slots, MOST);
        world.run(&slow, 60);
        assert_eq!(
            (world.slots, world.auto.reason()),
            (FIRST, SlotsReason::Store)
        );
        world.run(&quick, 30);
        assert_eq!(world.slots, MOST);
        // One that was never quicker is no reason.
        let mut far = World::new();
        far.run(&slow, 60);
        assert_eq!(far.slots, MOST);
    }

    #[test]
    fn handlers_have_no_more_memory_than_they_may() {
        let mut world = World::new();
        world.memory_max = 1 << 30;
        let work = |mib: usize| Work {
            memory: mib << 20,
            ..waits(0.1)
        };
        for (mib, slots) in [(8, 128), (64, 16), (100, 10), (4096, 1)] {
            world.run(&work(mib), 30);
            assert_eq!(
                (world.slots, world.auto.reason()),
                (slots, SlotsReason::Memory)
            );
        }
        world.run(&work(1), 400);
        assert_eq!(
            (world.slots, world.auto.reason()),
            (MOST, SlotsReason::Most)
        );
    }

    #[test]
    fn more_than_others_can_serve_are_taken_back() {
        for outside in [0.05, 0.2] {
            let work = Work {
                outside_places: 64.0,
                ..waits(outside)
            };
            let mut world = World::new();
            assert_good(&mut world, &work);
            assert!(world.slots <= 512, "{}", world.slots);
            // Those that are more than others serve wait there, about as many as are served.
            world.run(&work, 300);
            let most = (0..300).map(|_| {
                world.tick(&work);
                world.slots
            });
            assert!(most.max() <= Some(256));
        }
    }

    #[test]
    fn handlers_that_take_longer_for_their_own_reasons_keep_their_slots() {
        let mut world = World::new();
        world.settled(&waits(0.1));
        let all = world.run(&waits(0.5), 1000) / 100.0;
        assert!(all > 0.95 * World::best(&waits(0.5)), "{all}");
        assert_eq!(world.slots, MOST);
    }

    #[test]
    fn slots_that_nothing_uses_are_given_up_and_rest_ends_at_few() {
        let mut world = World::new();
        world.run(&waits(0.1), 30);
        let quiet = Sample {
            elapsed: TICK,
            used: 100,
            running: 100,
            finished: 50,
            outside: Duration::from_secs(5),
            memory_max: 6 << 30,
            most: MOST,
            ..Sample::default()
        };
        let after = |world: &mut World, ticks, sample: &Sample| {
            (0..ticks).fold(0, |_, _| world.auto.next(sample))
        };
        assert_eq!(after(&mut world, 200, &quiet), 150);
        assert_eq!(world.auto.reason(), SlotsReason::Unused);
        assert_eq!(world.auto.rest(), FIRST);
        let empty = Sample {
            used: 0,
            running: 0,
            finished: 0,
            ..quiet
        };
        assert_eq!(after(&mut world, 200, &empty), FIRST);
        // Few that compute stay few.
        let mut world = World::new();
        world.run(&computes(0.02), 30);
        let few = world.slots;
        assert!(few < FIRST);
        assert_eq!(after(&mut world, 200, &empty), few);
        assert_eq!(world.auto.rest(), few);
    }

    /// All slots are in use, more messages wait, and each run ends within the tick.
    fn full(slots: usize) -> Sample {
        Sample {
            elapsed: TICK,
            is_short: true,
            used: slots,
            running: slots,
            finished: slots as u64,
            memory_max: 6 << 30,
            most: MOST,
            ..Sample::default()
        }
    }

    #[test]
    fn one_interval_alone_is_no_reason_for_fewer() {
        let mut auto = AutoSlots::new(2);
        let store = |ms| Some(Duration::from_millis(ms));
        let mut next = |sample: &Sample| auto.next(sample);
        let quick = |slots| Sample {
            store: store(1),
            ..full(slots)
        };
        assert_eq!([16, 32, 64].map(|slots| next(&quick(slots))), [32, 64, 128]);
        let slow = Sample {
            store: store(500),
            ..full(128)
        };
        assert!(next(&slow) >= 128);
        assert!(next(&slow) < 256);
        let mut auto = AutoSlots::new(2);
        let waits = Sample {
            queued: TICK * 12,
            ..full(FIRST)
        };
        assert_eq!([auto.next(&waits), auto.next(&waits)], [16, 8]);
    }

    #[test]
    fn while_cores_are_in_use_slots_grow_by_what_is_left_of_them() {
        let next = |slots: usize, computed: f64, queued: u32| {
            let mut auto = AutoSlots::new(2);
            auto.limit = slots;
            let found = auto.next(&Sample {
                computed: TICK.mul_f64(computed * CORES),
                queued: TICK * queued,
                ..full(slots)
            });
            (found, auto.reason())
        };
        assert_eq!(next(100, 0.1, 0), (200, SlotsReason::Grows));
        assert_eq!(next(100, 0.76, 0), (125, SlotsReason::Grows));
        assert_eq!(next(100, 0.96, 0), (100, SlotsReason::Cores));
        // With the cores in use by others: a few wait, and then as many as may.
        assert_eq!(next(100, 0.1, 2), (113, SlotsReason::Grows));
        assert_eq!(next(100, 0.1, 4), (100, SlotsReason::Cores));
    }

    #[test]
    fn what_a_trial_has_shown_holds_for_ten_seconds() {
        let work = Work {
            outside_places: 64.0,
            ..waits(0.05)
        };
        let mut world = World::new();
        world.settled(&work);
        let mut grown = 0;
        for _ in 0..600 {
            let before = world.slots;
            world.tick(&work);
            grown += usize::from(world.slots > before);
        }
        assert!((1..=6).contains(&grown), "{grown}");
    }
}
