//! What a trial does, and when: all of it follows from a seed, so that a trial can be repeated.

use std::time::Duration;

use fastrand::Rng;

use crate::history::{Limits, Verdict};
use crate::proxy::{CUTS, Cut};
use crate::witness::Order;

/// How long a host's delivery is its own. Short, so that a trial sees many leases expire.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// The delay after a first failed attempt.
pub(crate) const BACKOFF: Duration = Duration::from_millis(10);

/// The longest delay after a failed attempt.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// A run that takes so long needs its lease renewed.
const SLOW: Duration = Duration::from_millis(2600);

/// How much of everything.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape {
    pub messages: usize,
    pub hosts: usize,
    pub slots: usize,
    /// Messages are sent and faults happen for so long.
    pub lasts: Duration,
    /// Hosts killed, and started again at once.
    pub kills: usize,
    /// Hosts told to stop, and started again.
    pub stops: usize,
    /// Hosts frozen for longer than a lease.
    pub freezes: usize,
    /// The server killed, and started again on its data.
    pub server_kills: usize,
    /// Hosts that have a dashboard in a terminal, of all hosts.
    pub terminals: usize,
    /// Times in which nobody reads one of these terminals.
    pub stalls: usize,
    /// Terminals that go away, and with them their hosts, which are started again.
    pub hang_ups: usize,
    /// Hosts told to read their settings again, which have changed.
    pub reloads: usize,
    /// Handlers replaced by another build, of which a host is told.
    pub swaps: usize,
    /// Time between two ticks of a schedule; none if there is no schedule.
    pub ticks_every: Option<Duration>,
    pub limits: Option<Limits>,
    /// Keys take turns. One of them has nine of ten messages.
    pub turns: bool,
    /// Connections cut.
    pub cuts: usize,
    /// Scripts flushed.
    pub flushes: usize,
    /// Times in which the server has no memory left.
    pub full: usize,
    /// Times in which the server is somebody's replica.
    pub read_only: usize,
    /// Times in which packets of one host vanish.
    pub holes: usize,
    /// Times in which every request of one host takes longer.
    pub delays: usize,
    /// How often each host is held up between the end of a run and its settlement, until the lease is
    /// over and another host has the message.
    pub late_results: usize,
    /// Payloads deleted.
    pub removed: usize,
    /// Times in which another program writes to the file.
    pub locks: usize,
    /// Of 1,000 messages, how many fail at first.
    pub flaky: u32,
    /// Of 1,000 messages, how many need their lease renewed.
    pub slow: u32,
    /// How long those take; as long as a lease and a little more if none.
    pub slow_for: Option<Duration>,
    /// Of 1,000 messages, how many take so long only when they come again.
    pub slow_again: u32,
    /// Of 1,000 messages, how many are never acked, and how many rejected.
    pub bad: u32,
    /// Of 1,000 messages, how many tear down the host that handles them.
    pub deadly: u32,
    /// Of 1,000 messages, how many have expired when they are sent.
    pub expired: u32,
    /// Every message that could be acked has so many retries that it is.
    pub patient: bool,
    /// All messages are due in one moment.
    pub due_together: bool,
}

/// One thing that goes wrong, or ends doing so. Hosts by their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill(usize),
    Stop(usize),
    Freeze(usize),
    Thaw(usize),
    /// The terminal of a host is not read, or is again.
    Stall(usize, bool),
    HangUp(usize),
    /// The settings change, and a host is told.
    Reload(usize),
    /// The handler's file changes, and a host is told.
    Swap(usize),
    /// With how long it stays away.
    KillServer(Duration),
    /// Of a host, or with their number of the producers.
    Cut(usize, Cut),
    Flush,
    Full(bool),
    ReadOnly(bool),
    Hole(usize, bool),
    Delay(usize, Duration),
    RemovePayload,
    Lock(bool),
}

/// A message to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub at: Duration,
    pub due_in: Duration,
    pub payload: Vec<u8>,
    pub retries: u32,
    /// Among messages of a queue with limits.
    pub key: usize,
    character: Character,
    slow_for: Duration,
}

/// How the handler takes a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Character {
    /// Acked at once.
    Good,
    /// Acked after a time for which its lease has to be renewed.
    Slow,
    /// The same, but for the first attempt.
    SlowAgain,
    /// Fails so often, then is acked.
    Flaky(u32),
    /// Never acked.
    Bad,
    /// Rejected.
    Hopeless,
    /// Tears down the process that handles it.
    Deadly,
    /// Never begun: it has expired.
    Expired,
}

impl Character {
    fn any(random: &mut Rng, shape: &Shape) -> Self {
        let fails = random.u32(1..=2);
        let shares = [
            (Self::Slow, shape.slow),
            (Self::SlowAgain, shape.slow_again),
            (Self::Flaky(fails), shape.flaky),
            (Self::Bad, shape.bad),
            (Self::Hopeless, shape.bad),
            (Self::Deadly, shape.deadly),
            (Self::Expired, shape.expired),
        ];
        let mut of = random.u32(..1000);
        for (character, share) in shares {
            if of < share {
                return character;
            }
            of -= share;
        }
        Self::Good
    }
}

impl Planned {
    fn any(random: &mut Rng, at: Duration, shape: &Shape) -> Self {
        let character = Character::any(random, shape);
        // Sizes below and above what a sorted set, a list and a page of the file keep in place.
        let size = match random.u8(..100) {
            0 => random.usize(..40_000),
            1..=20 => random.usize(..2000),
            _ => random.usize(..100),
        };
        Self {
            at,
            due_in: match random.u8(..10) {
                _ if shape.due_together => {
                    (shape.lasts + Duration::from_secs(1)).saturating_sub(at)
                }
                0..=3 => Duration::ZERO,
                _ => Duration::from_millis(random.u64(600..3000)),
            },
            payload: std::iter::repeat_with(|| random.u8(..))
                .take(size)
                .collect(),
            retries: match (character, random.u8(..10)) {
                // Nothing that goes wrong in a trial may use them up.
                (Character::Slow | Character::SlowAgain, _) => 1000,
                // The rest ends soon after the last fault, however often it fails.
                (Character::Bad, _) => random.u32(..7),
                (Character::Deadly, _) => random.u32(..4),
                (_, 0) if !shape.patient => random.u32(..4),
                _ => 20,
            },
            key: 0,
            character,
            slow_for: shape.slow_for.unwrap_or(SLOW),
        }
    }

    /// Which key the message of this number has.
    fn key_of(&self, number: usize, shape: &Shape) -> usize {
        if shape.turns {
            return if number.is_multiple_of(10) {
                1 + number / 10 % 2
            } else {
                0
            };
        }
        match self.character {
            // What takes long is of one key, and keeps no other waiting.
            Character::Slow => 0,
            _ => 1 + number % 4,
        }
    }

    /// It tears down each host that handles it.
    pub(crate) fn is_deadly(&self) -> bool {
        self.character == Character::Deadly
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.character == Character::Expired
    }

    /// What the run of this number is to do.
    pub(crate) fn order(&self, attempt: u32) -> Order {
        let verdict = match self.character {
            Character::Good
            | Character::Slow
            | Character::SlowAgain
            | Character::Deadly
            | Character::Expired => Verdict::Ack,
            Character::Flaky(fails) if attempt > fails => Verdict::Ack,
            Character::Flaky(_) | Character::Bad => Verdict::Nack,
            Character::Hopeless => Verdict::Reject,
        };
        let lasts = match self.character {
            Character::Slow => self.slow_for,
            Character::SlowAgain if attempt > 1 => self.slow_for,
            // From what it is made of, so that it is the same each time. Those that fail take longer,
            // so that what is said twice of one run may come during the next.
            character => {
                let ms = u64::from(self.payload.first().copied().unwrap_or(0));
                let share = if character == Character::Good { 13 } else { 3 };
                Duration::from_millis(ms / share)
            }
        };
        Order {
            lasts,
            verdict,
            kills: self.is_deadly(),
        }
    }
}

/// What the run of a tick is to do.
pub(crate) const OF_TICK: Order = Order {
    lasts: Duration::ZERO,
    verdict: Verdict::Ack,
    kills: false,
};

pub(crate) struct Plan {
    /// By time.
    pub messages: Vec<Planned>,
    /// By time.
    pub faults: Vec<(Duration, Fault)>,
}

impl Plan {
    pub(crate) fn new(seed: u64, shape: &Shape) -> Self {
        let mut random = Rng::with_seed(seed);
        let spread = |random: &mut Rng| shape.lasts.mul_f64(random.f64());
        let mut messages: Vec<Planned> = (0..shape.messages)
            .map(|_| {
                let at = spread(&mut random);
                Planned::any(&mut random, at, shape)
            })
            .collect();
        messages.sort_by_key(|message| message.at);
        for (number, message) in messages.iter_mut().enumerate() {
            message.key = message.key_of(number, shape);
        }
        let mut faults = Faults {
            all: Vec::new(),
            lasts: shape.lasts,
            random,
        };
        faults.of_hosts(shape);
        faults.of_the_store(shape);
        faults.all.sort_by_key(|(at, _)| *at);
        Self {
            messages,
            faults: faults.all,
        }
    }
}

struct Faults {
    all: Vec<(Duration, Fault)>,
    lasts: Duration,
    random: Rng,
}

impl Faults {
    fn some(&mut self, number: usize, fault: impl Fn(&mut Rng) -> Fault) {
        for _ in 0..number {
            let at = self.lasts.mul_f64(self.random.f64());
            let fault = fault(&mut self.random);
            self.all.push((at, fault));
        }
    }

    /// Something that begins and ends. Of one kind no two overlap when there is room.
    fn spans(
        &mut self,
        number: usize,
        ms: std::ops::Range<u64>,
        begin_end: impl Fn(&mut Rng) -> [Fault; 2],
    ) {
        for n in 0..number {
            let share = self.lasts / u32::try_from(number).unwrap();
            let lasts = Duration::from_millis(self.random.u64(ms.clone()));
            let room = share.saturating_sub(lasts).mul_f64(self.random.f64());
            let at = share * u32::try_from(n).unwrap() + room;
            let [begin, end] = begin_end(&mut self.random);
            self.all.push((at, begin));
            self.all.push((at + lasts, end));
        }
    }

    fn of_hosts(&mut self, shape: &Shape) {
        let hosts = shape.hosts;
        self.some(shape.kills, |r| Fault::Kill(r.usize(..hosts)));
        self.some(shape.stops, |r| Fault::Stop(r.usize(..hosts)));
        // Longer than a lease.
        self.spans(shape.freezes, 2500..3500, |r| {
            let host = r.usize(..hosts);
            [Fault::Freeze(host), Fault::Thaw(host)]
        });
        // The same, and before that the terminal has to be full.
        self.spans(shape.stalls, 3500..6000, |r| {
            let host = r.usize(..shape.terminals);
            [Fault::Stall(host, true), Fault::Stall(host, false)]
        });
        self.some(shape.hang_ups, |r| {
            Fault::HangUp(r.usize(..shape.terminals))
        });
        // To one with a terminal the same signal may say that the terminal is gone.
        self.some(shape.reloads, |r| {
            Fault::Reload(r.usize(shape.terminals..hosts))
        });
        self.some(shape.swaps, |r| {
            Fault::Swap(r.usize(shape.terminals..hosts))
        });
        self.some(shape.cuts, |r| {
            // One in so many is a producer's.
            Fault::Cut(r.usize(..=hosts), CUTS[r.usize(..CUTS.len())])
        });
        self.spans(shape.holes, 1000..5000, |r| {
            let host = r.usize(..hosts);
            [Fault::Hole(host, true), Fault::Hole(host, false)]
        });
        self.spans(shape.delays, 500..2000, |r| {
            let host = r.usize(..hosts);
            let delay = Duration::from_millis(r.u64(1..40));
            [
                Fault::Delay(host, delay),
                Fault::Delay(host, Duration::ZERO),
            ]
        });
    }

    fn of_the_store(&mut self, shape: &Shape) {
        self.some(shape.server_kills, |r| {
            Fault::KillServer(Duration::from_millis(r.u64(..1000)))
        });
        self.some(shape.flushes, |_| Fault::Flush);
        self.some(shape.removed, |_| Fault::RemovePayload);
        self.spans(shape.full, 200..1000, |_| {
            [Fault::Full(true), Fault::Full(false)]
        });
        self.spans(shape.read_only, 200..1500, |_| {
            [Fault::ReadOnly(true), Fault::ReadOnly(false)]
        });
        self.spans(shape.locks, 200..3500, |_| {
            [Fault::Lock(true), Fault::Lock(false)]
        });
    }
}

#[test]
fn a_plan_follows_from_its_seed() {
    let shape = Shape {
        messages: 100,
        hosts: 4,
        lasts: Duration::from_secs(10),
        kills: 5,
        freezes: 2,
        cuts: 9,
        ..Shape::default()
    };
    let [a, b, c] = [1, 1, 2].map(|seed| Plan::new(seed, &shape));
    assert_eq!((&a.faults, a.messages.len()), (&b.faults, 100));
    assert_ne!(a.faults, c.faults);
    assert!(
        a.messages
            .iter()
            .zip(&b.messages)
            .all(|(a, b)| a.payload == b.payload)
    );
    assert_eq!(a.faults.len(), 5 + 2 * 2 + 9);
}
