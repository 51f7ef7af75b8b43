//! Sequences on a queue whose messages have keys: limits for each key, or keys that take turns. Compared is what is
//! promised of them. Which of several messages goes first, a store decides.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use dqhost::message::{Claim, Delivery, MessageId, NewMessage, QueueName};
use dqhost::store::{First, Limits, NextAllowed, Rate, Reservation, Settled, Settlement, Store};
use proptest::prelude::*;

use super::reference::Bucket;
use super::run::World;
use crate::contract::tools::nack;

const KEYS: usize = 3;

/// No lease ends within a script.
const LEASE: Duration = Duration::from_hours(1000);

/// A reservation may have to look again: at what was put back in line, and at what was cut off.
const LOOKS: usize = 4;

/// Calls that only sort: one takes 250 messages or more, and a script sends fewer.
const SORTS_MAX: usize = 50;

/// Between two of them.
const LOOK_AFTER: Duration = Duration::from_millis(150);

/// While a key waits, another gets at most so many more turns.
const AHEAD_MAX: i64 = 3;

/// What holds for the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One at a time of each, in order.
    InOrder,
    /// Two at a time of each.
    Running,
    /// Two an hour of each, in bursts of two.
    Rate,
    /// They take turns.
    Turns,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    Ack,
    Nack,
    Release,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Send {
        key: usize,
        count: usize,
    },
    Reserve(usize),
    /// Counts back from the latest delivery.
    Settle(usize, How),
    /// Hours and a minute.
    Pass(u64),
}

pub(crate) type Script = (Mode, Vec<Step>);

pub(crate) fn script() -> impl Strategy<Value = Script> {
    let mode = prop::sample::select(vec![Mode::InOrder, Mode::Running, Mode::Rate, Mode::Turns]);
    let how = prop::sample::select(vec![How::Ack, How::Ack, How::Nack, How::Release]);
    let step = prop_oneof![
        4 => (0..KEYS, 1_usize..8).prop_map(|(key, count)| Step::Send { key, count }),
        5 => (1_usize..6).prop_map(Step::Reserve),
        5 => (0_usize..5, how).prop_map(|(which, how)| Step::Settle(which, how)),
        1 => (1_u64..3).prop_map(Step::Pass),
    ];
    (mode, prop::collection::vec(step, 1..40))
}

impl Mode {
    fn limits(self) -> Result<Limits, String> {
        let by = "header:k".parse().ok();
        let rate = "2/h".parse::<Rate>().and_then(|rate| rate.with_burst(2));
        Ok(match self {
            Self::InOrder | Self::Running => Limits {
                max_running: NonZeroU32::new(if self == Self::InOrder { 1 } else { 2 }),
                by,
                ..Limits::NONE
            },
            Self::Rate => Limits {
                rate: Some(rate.map_err(|error| error.to_string())?),
                by,
                ..Limits::NONE
            },
            Self::Turns => Limits {
                fair_by: by,
                ..Limits::NONE
            },
        })
    }
}

/// What is known of a key.
#[derive(Debug, Default)]
struct Key {
    /// In order.
    waiting: VecDeque<MessageId>,
    running: usize,
    bucket: Bucket,
    /// How many turns each other key got, and this one did not, since it waits.
    ahead: [i64; KEYS],
}

impl Key {
    /// How many may go at a time.
    fn may_go(&self, mode: Mode, at_ms: u64) -> usize {
        let most = match mode {
            Mode::InOrder => 1_usize.saturating_sub(self.running),
            Mode::Running => 2_usize.saturating_sub(self.running),
            Mode::Rate => self.bucket.tokens(at_ms),
            Mode::Turns => usize::MAX,
        };
        most.min(self.waiting.len())
    }
}

struct Run<'w, W> {
    world: &'w W,
    store: Arc<dyn Store>,
    queue: QueueName,
    mode: Mode,
    limits: Limits,
    keys: [Key; KEYS],
    given: Vec<(Claim, usize)>,
}

/// Runs a script to its end and then until nothing is left, or to the first difference.
pub(crate) async fn run<W: World>(
    world: &W,
    queue: QueueName,
    (mode, script): &Script,
) -> Result<(), String> {
    let mut run = Run {
        world,
        store: world.store(),
        queue,
        mode: *mode,
        limits: mode.limits()?,
        keys: std::array::from_fn(|_| Key::default()),
        given: Vec::new(),
    };
    for (number, step) in script.iter().enumerate() {
        let step_done = run.step(step).await;
        step_done.map_err(|error| format!("step {number}, {step:?}: {error}"))?;
    }
    run.drain()
        .await
        .map_err(|error| format!("at the end: {error}"))
}

impl<W: World> Run<'_, W> {
    async fn pass(&self, by: Duration) {
        self.world.pass(std::slice::from_ref(&self.queue), by).await;
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Send { key, count } => self.send(key, count).await,
            Step::Reserve(max) => self.reserve(max).await,
            Step::Settle(which, how) => self.settle(which, how).await,
            Step::Pass(hours) => {
                self.pass(Duration::from_hours(hours) + Duration::from_mins(1))
                    .await;
                Ok(())
            }
        }
    }

    async fn send(&mut self, key: usize, count: usize) -> Result<(), String> {
        let message = |_| NewMessage {
            headers: vec![("k".to_owned(), key.to_string())],
            retries: 1000,
            ..NewMessage::new("x")
        };
        let batch: Vec<NewMessage> = (0..count).map(message).collect();
        let sent = self.store.send(&self.queue, &batch).await;
        let sent = sent.map_err(|error| error.to_string())?;
        let ids = sent.into_iter().map(|sent| sent.id);
        self.keys[key].waiting.extend(ids);
        Ok(())
    }

    /// Lets the store sort what is in line, as hosts do. Before, it promises no turns.
    async fn sort(&self) -> Result<(), String> {
        for _ in 0..SORTS_MAX {
            let none = Reservation {
                max: 0,
                lease: LEASE,
                first: First::Ready,
                retries_default: 7,
            };
            let sorted = self
                .store
                .reserve_limited(&self.queue, none, &self.limits)
                .await
                .map_err(|error| error.to_string())?;
            match sorted.next {
                NextAllowed::OtherKeys(Some(wait)) if wait <= Duration::from_micros(1) => {}
                _ => return Ok(()),
            }
        }
        Err("there is always more to sort".to_owned())
    }

    /// Reserves so many, in several calls if one does not bring all that may go.
    async fn reserve(&mut self, max: usize) -> Result<(), String> {
        if self.mode == Mode::Turns {
            self.sort().await?;
        }
        let allowed = |keys: &[Key; KEYS], mode, at_ms| {
            let each: [usize; KEYS] = std::array::from_fn(|key| keys[key].may_go(mode, at_ms));
            each
        };
        let least = allowed(&self.keys, self.mode, self.world.now_ms());
        let backlogged: [bool; KEYS] =
            std::array::from_fn(|key| !self.keys[key].waiting.is_empty());
        let reservation = |max| Reservation {
            max,
            lease: LEASE,
            first: First::Ready,
            retries_default: 7,
        };
        let mut deliveries = Vec::new();
        for _ in 0..LOOKS {
            if deliveries.len() >= max {
                break;
            }
            let advanced = self.store.advance(&self.queue).await;
            advanced.map_err(|error| error.to_string())?;
            let wanted = reservation(max - deliveries.len());
            let reserved = self
                .store
                .reserve_limited(&self.queue, wanted, &self.limits);
            let reserved = reserved.await.map_err(|error| error.to_string())?;
            deliveries.extend(reserved.deliveries);
            self.pass(LOOK_AFTER).await;
        }
        let now_ms = self.world.now_ms();
        let most = allowed(&self.keys, self.mode, now_ms);
        let mut got = [0; KEYS];
        for delivery in deliveries {
            got[self.delivered(delivery)?] += 1;
        }
        for (key, (got, most)) in got.into_iter().zip(most).enumerate() {
            if got > most {
                return Err(format!("{got} of key {key} go, {most} may"));
            }
            self.keys[key].bucket.take(got, now_ms);
        }
        let (all, expected) = (got.iter().sum::<usize>(), max.min(least.iter().sum()));
        if all < expected {
            return Err(format!(
                "{all} go, and {expected} might: {got:?} of {least:?}"
            ));
        }
        self.turns(backlogged, got)
    }

    fn delivered(&mut self, delivery: Delivery) -> Result<usize, String> {
        let id = &delivery.claim.id;
        let key: usize = delivery.headers[0].1.parse().unwrap();
        let known = &mut self.keys[key];
        let place = known.waiting.iter().position(|waiting| waiting == id);
        match place {
            None => return Err(format!("{id} of key {key} does not wait")),
            Some(place) if place > 0 && self.mode == Mode::InOrder => {
                return Err(format!("{id} of key {key} goes before {place} others"));
            }
            Some(place) => known.waiting.remove(place),
        };
        known.running += 1;
        self.given.push((delivery.claim, key));
        Ok(key)
    }

    /// While a key waits, no other gets many more turns.
    fn turns(&mut self, backlogged: [bool; KEYS], got: [usize; KEYS]) -> Result<(), String> {
        if self.mode != Mode::Turns {
            return Ok(());
        }
        let got = got.map(|number| i64::try_from(number).unwrap());
        for (key, known) in self.keys.iter_mut().enumerate() {
            if !backlogged[key] || known.waiting.is_empty() {
                known.ahead = [0; KEYS];
                continue;
            }
            for other in 0..KEYS {
                let ahead = (known.ahead[other] + got[other] - got[key]).max(0);
                known.ahead[other] = ahead;
                if ahead > AHEAD_MAX {
                    let words =
                        format!("key {other} got {ahead} turns more than {key}, which waits");
                    return Err(words);
                }
            }
        }
        Ok(())
    }

    async fn settle(&mut self, which: usize, how: How) -> Result<(), String> {
        if self.given.is_empty() {
            return Ok(());
        }
        let place = self.given.len() - 1 - which % self.given.len();
        let (claim, key) = self.given.remove(place);
        let (id, claims) = (claim.id.clone(), [claim.clone()]);
        let settled = match how {
            How::Ack => {
                self.store
                    .settle(&self.queue, &[(claim, Settlement::ACK)])
                    .await
            }
            How::Nack => self.store.settle(&self.queue, &[(claim, nack(None))]).await,
            How::Release => self.store.release(&self.queue, &claims).await,
        };
        let settled = settled.map_err(|error| error.to_string())?;
        if settled != [Settled::Done] {
            return Err(format!("{how:?} of {id}: {settled:?}"));
        }
        let known = &mut self.keys[key];
        known.running -= 1;
        if !matches!(how, How::Ack) {
            known.waiting.push_front(id);
        }
        Ok(())
    }

    /// Nothing is lost: all that is left comes, some each time.
    async fn drain(&mut self) -> Result<(), String> {
        loop {
            while !self.given.is_empty() {
                self.settle(0, How::Ack).await?;
            }
            let counts = self.store.counts(&self.queue).await;
            let counts = counts.map_err(|error| error.to_string())?;
            let left: usize = self.keys.iter().map(|key| key.waiting.len()).sum();
            if left == 0 && counts.is_drained() {
                return Ok(());
            }
            if left == 0 {
                return Err(format!("there is more than was sent: {counts:?}"));
            }
            self.pass(Duration::from_mins(61)).await;
            self.reserve(100).await?;
            if self.given.is_empty() {
                return Err(format!("{left} are left, and none comes"));
            }
        }
    }
}
