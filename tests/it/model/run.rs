//! A script, run against a store and the reference side by side.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use dqhost::message::expiry::EXPIRES_AT;
use dqhost::message::{
    Delivery, Due, HistoryEntry, MessageId, NewMessage, Outgoing, QueueName, Record, State,
};
use dqhost::store::{
    Advanced, Audit, AuditReport, First, HostInfo, LimitedReservation, Limits, NextAllowed, Page,
    Peer, Rate, Redrive, Redriven, Rescheduled, Reservation, Settled, Settlement, Store,
};

use super::reference::{Given, Reference, Settle, Span};
use super::script::{How, Step};
use crate::contract::tools::attempt;

/// Hosts that are silent for longer are forgotten.
const SILENCE: Duration = Duration::from_mins(90);

/// So long the id of a tick counts as sent.
const TICK_WINDOW: Duration = Duration::from_hours(2);

/// A store whose time can be moved.
pub(crate) trait World {
    fn store(&self) -> Arc<dyn Store>;

    /// Lets time pass for everything in the queues.
    fn pass(&self, queues: &[QueueName], by: Duration) -> impl Future<Output = ()>;

    /// The time that this world counts, in ms: what has passed included.
    fn now_ms(&self) -> u64;

    /// A time as the store tells it, in this world's count.
    fn told(&self, at_ms: u64) -> u64;
}

/// What went wrong, in words.
type Checked<T = ()> = Result<T, String>;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, expected: &T) -> Checked {
    if is == expected {
        Ok(())
    } else {
        Err(format!("{what}: is {is:?}, must be {expected:?}"))
    }
}

pub(crate) struct Run<'w, W> {
    world: &'w W,
    store: Arc<dyn Store>,
    queue: QueueName,
    reference: Reference,
    /// In the order in which they were first seen.
    ids: Vec<MessageId>,
    given: Vec<Given>,
    other: Side,
}

/// A queue beside the one at hand, and what there is to know of it.
struct Side {
    queue: QueueName,
    reference: Reference,
    ids: Vec<MessageId>,
    given: Vec<Given>,
}

/// Runs a script to its end, or to the first difference.
pub(crate) async fn run<W: World>(world: &W, queue: QueueName, script: &[Step]) -> Checked {
    let other: QueueName = format!("{queue}-other").parse().unwrap();
    let queues = [queue.clone(), other.clone()];
    let mut run = Run {
        world,
        store: world.store(),
        queue,
        other: Side {
            queue: other,
            reference: Reference::default(),
            ids: Vec::new(),
            given: Vec::new(),
        },
        reference: Reference::default(),
        ids: Vec::new(),
        given: Vec::new(),
    };
    for (number, step) in script.iter().enumerate() {
        run.step(step)
            .await
            .map_err(|error| format!("step {number}, {step:?}: {error}"))?;
        // Two steps are never within one millisecond, so their order is that of their times.
        world.pass(&queues, Duration::from_millis(2)).await;
    }
    for _ in 0..2 {
        run.overview().await?;
        run.everything().await?;
        run.turn();
    }
    run.audit().await
}

/// Numbers that count back from the latest, each once.
fn picked<T: Clone>(from: &[T], numbers: impl IntoIterator<Item = usize>) -> Vec<T> {
    let mut places: Vec<usize> = Vec::new();
    for number in numbers {
        if !from.is_empty() {
            let place = from.len() - 1 - number % from.len();
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
        .into_iter()
        .map(|place| from[place].clone())
        .collect()
}

fn new_messages(first: usize, count: usize, delay: Duration, retries: u32) -> Vec<NewMessage> {
    (0..count)
        .map(|n| NewMessage {
            due: Due::In(delay),
            retries,
            headers: vec![("n".to_owned(), n.to_string()); n % 2],
            ..NewMessage::new(format!("payload {}", first + n))
        })
        .collect()
}

fn same_advance(advanced: Advanced, expected: Advanced) -> Checked {
    let expected = Advanced {
        next_in: advanced.next_in,
        // It may say so without need.
        waiting: advanced.waiting | expected.waiting,
        ..expected
    };
    same("advance", &advanced, &expected)
}

fn next_in(told: Option<Duration>, at: Option<Span>, now: Span) -> Checked {
    let told = told.map(|told| u64::try_from(told.as_millis()).unwrap());
    match (told, at) {
        (None, None) => Ok(()),
        // The rest of a millisecond is not kept here.
        (Some(next), Some(at))
            if at.from.saturating_sub(now.to + 1) <= next
                && next <= at.to.saturating_sub(now.from) =>
        {
            Ok(())
        }
        _ => Err(format!(
            "next in {told:?} ms, must be at {at:?}, now {now:?}"
        )),
    }
}

impl<W: World> Run<'_, W> {
    async fn step(&mut self, step: &Step) -> Checked {
        match step {
            Step::Send {
                count,
                in_hours,
                retries,
            } => {
                self.send(*count, Duration::from_hours(*in_hours), *retries)
                    .await?;
            }
            Step::SendAgain(which) => self.send_again(*which).await?,
            Step::SendExpired => self.send_expired().await?,
            Step::SendTick(number) => self.send_tick(*number).await?,
            Step::Advance => self.advance().await?,
            Step::Reserve {
                max,
                lease_hours,
                retries_first,
                advancing,
            } => {
                let wanted = Reservation {
                    max: *max,
                    lease: Duration::from_hours(*lease_hours),
                    first: if *retries_first {
                        First::Retry
                    } else {
                        First::Ready
                    },
                    retries_default: 7,
                };
                if *advancing {
                    self.advance_and_reserve(wanted).await?;
                } else {
                    self.reserve(wanted).await?;
                }
            }
            Step::ReserveLimited { max, max_running } => {
                self.reserve_limited(*max, *max_running).await?;
            }
            Step::Settle(which) => self.settle(which).await?,
            Step::Extend(which, hours) => {
                self.extend(which, Duration::from_hours(*hours)).await?;
            }
            Step::Release(which) => self.release(which).await?,
            Step::Cancel(which) => self.cancel(which).await?,
            Step::Kill(which) => self.kill(which).await?,
            Step::Redrive(which, retries, max_redrives) => {
                let how = Redrive {
                    retries: *retries,
                    max_redrives: *max_redrives,
                };
                self.redrive(which, how).await?;
            }
            Step::Delete(which) => self.delete(which).await?,
            Step::Beat(host) => self.beat(*host).await?,
            Step::Leave(host) => self.leave(*host).await?,
            Step::AwayAndBack(max) => self.away_and_back(*max).await?,
            Step::Reschedule(which, hours) => {
                self.reschedule(which, Duration::from_hours(*hours)).await?;
            }
            Step::Pause(paused) => self.pause(*paused).await?,
            Step::Pass(hours) => {
                let by = Duration::from_hours(*hours) + Duration::from_mins(1);
                let queues = [self.queue.clone(), self.other.queue.clone()];
                self.world.pass(&queues, by).await;
            }
            Step::Turn => self.turn(),
        }
        self.overview().await
    }

    async fn pause(&mut self, paused: bool) -> Checked {
        let paused_now = self.store.set_paused(&self.queue, paused).await;
        paused_now.map_err(|error| error.to_string())?;
        self.reference.paused = paused;
        Ok(())
    }

    async fn leave(&mut self, host: usize) -> Checked {
        let host = format!("host-{host}");
        let left = self.store.leave(&self.queue, &host).await;
        left.map_err(|error| error.to_string())?;
        self.reference.hosts.remove(&host);
        Ok(())
    }

    /// Goes on with the other queue.
    fn turn(&mut self) {
        let other = &mut self.other;
        std::mem::swap(&mut self.queue, &mut other.queue);
        std::mem::swap(&mut self.reference, &mut other.reference);
        std::mem::swap(&mut self.ids, &mut other.ids);
        std::mem::swap(&mut self.given, &mut other.given);
    }

    /// Compares what is told of the whole queue.
    async fn overview(&self) -> Checked {
        let counts = self.store.counts(&self.queue).await;
        let counts = counts.map_err(|error| error.to_string())?;
        same("counts", &counts, &self.reference.counts())?;
        let (overview, now) = self.timed(self.store.overview(&self.queue)).await?;
        same("overview", &overview.counts, &counts)?;
        same("paused", &overview.paused, &self.reference.paused)?;
        self.time("now", &mut Some(now), Some(overview.now_ms))?;
        let mut next = self.reference.next_due();
        self.time("next due", &mut next, overview.next_due_ms)?;
        if let Some(failed) = self.reference.failed() {
            same("failed", &overview.failed, &failed)?;
        }
        Ok(())
    }

    /// A call of the store, with the time that it may have read.
    async fn timed<T>(
        &self,
        call: impl Future<Output = dqhost::store::StoreResult<T>>,
    ) -> Checked<(T, Span)> {
        let from = self.world.now_ms();
        let answer = call.await.map_err(|error| error.to_string())?;
        let to = self.world.now_ms();
        Ok((answer, Span { from, to }))
    }

    /// A time as the store tells it must be the one that is known, and is known exactly from then.
    fn time(&self, what: &str, known: &mut Option<Span>, told: Option<u64>) -> Checked {
        let told = told.map(|at_ms| self.world.told(at_ms));
        match (&known, told) {
            (None, None) => Ok(()),
            (Some(span), Some(at)) if span.from <= at && at <= span.to => {
                *known = Some(Span { from: at, to: at });
                Ok(())
            }
            _ => Err(format!("{what}: is {told:?}, must be {known:?}")),
        }
    }

    async fn send(&mut self, count: usize, delay: Duration, retries: u32) -> Checked {
        let batch = new_messages(self.ids.len(), count, delay, retries);
        let (sent, now) = self.timed(self.store.send(&self.queue, &batch)).await?;
        for (message, sent) in batch.iter().zip(sent) {
            same("sent id", &sent.id, &message.id)?;
            self.ids.push(message.id.clone());
            self.reference.send(message, delay, now);
            let mut due = Some(if delay.is_zero() {
                now
            } else {
                now.plus(delay)
            });
            self.time("due", &mut due, sent.due_at_ms)?;
            let known = self.reference.messages.get_mut(&message.id).unwrap();
            known.at = known.at.and(due);
        }
        Ok(())
    }

    async fn send_again(&mut self, which: usize) -> Checked {
        let Some(id) = picked(&self.ids, [which]).pop() else {
            return Ok(());
        };
        if !self.reference.messages.contains_key(&id) {
            return Ok(());
        }
        let message = NewMessage {
            id,
            ..NewMessage::new("other")
        };
        let sent = self.store.send(&self.queue, &[message]).await;
        let sent = sent.map_err(|error| error.to_string())?;
        same("a repeat", &sent[0].due_at_ms, &None)
    }

    async fn send_expired(&mut self) -> Checked {
        let message = NewMessage {
            headers: vec![(EXPIRES_AT.to_owned(), "1".to_owned())],
            ..NewMessage::new("expired")
        };
        self.send_one(message).await
    }

    /// What all hosts do at a tick: only the first adds a message, also if that is gone.
    async fn send_tick(&mut self, number: usize) -> Checked {
        let now = Span {
            from: self.world.now_ms(),
            to: self.world.now_ms(),
        };
        let known = self.reference.ticks.get(&number);
        let known = known.filter(|id| self.reference.counts_as_sent(id, now));
        // Of equal times, stores give the order of ids or of sends: so both have to be the same.
        let id = known.cloned().unwrap_or_else(MessageId::new);
        self.reference.ticks.insert(number, id.clone());
        let message = NewMessage {
            id,
            dedup_window: TICK_WINDOW,
            ..NewMessage::new("tick")
        };
        self.send_one(message).await
    }

    /// Sends a message that is due, and may be known.
    async fn send_one(&mut self, message: NewMessage) -> Checked {
        let batch = std::slice::from_ref(&message);
        let (sent, now) = self.timed(self.store.send(&self.queue, batch)).await?;
        let accepted = self.reference.send(&message, Duration::ZERO, now);
        if accepted && !self.ids.contains(&message.id) {
            self.ids.push(message.id);
        }
        let mut due = accepted.then_some(now);
        self.time("due", &mut due, sent[0].due_at_ms)
    }

    async fn advance(&mut self) -> Checked {
        let (advanced, now) = self.timed(self.store.advance(&self.queue)).await?;
        same_advance(advanced, self.reference.advance(now))?;
        next_in(advanced.next_in, self.reference.next(), now)
    }

    async fn reserve(&mut self, wanted: Reservation) -> Checked {
        let (deliveries, now) = self.timed(self.store.reserve(&self.queue, wanted)).await?;
        self.reserved(deliveries, wanted, now)?;
        Ok(())
    }

    async fn advance_and_reserve(&mut self, wanted: Reservation) -> Checked {
        let work = self.store.advance_and_reserve(&self.queue, wanted);
        let ((advanced, deliveries), now) = self.timed(work).await?;
        let promoted = self.reference.promote(now);
        let new = self.reserved(deliveries, wanted, now)?;
        same_advance(advanced, self.reference.after_promotion(promoted, now))?;
        let (with, without) = (self.reference.next(), self.reference.next_but_for(&new));
        next_in(advanced.next_in, with, now).or_else(|_| next_in(advanced.next_in, without, now))
    }

    async fn reserve_limited(&mut self, max: usize, max_running: u32) -> Checked {
        let rate = "2/h".parse::<Rate>().and_then(|rate| rate.with_burst(2));
        let limits = Limits {
            rate: Some(rate.map_err(|error| error.to_string())?),
            max_running: NonZeroU32::new(max_running),
            by: None,
            fair_by: None,
            fair_weights: dqhost::store::FairWeights::EQUAL,
        };
        let wanted = Reservation {
            max,
            lease: Duration::from_hours(1),
            first: First::Ready,
            retries_default: 7,
        };
        let work = self.store.reserve_limited(&self.queue, wanted, &limits);
        let (LimitedReservation { deliveries, next }, now) = self.timed(work).await?;
        let running = self.reference.counts().unack;
        let free = match max_running {
            0 => usize::MAX,
            max => usize::try_from(u64::from(max).saturating_sub(running)).unwrap(),
        };
        let waiting = self.reference.waiting();
        let [least, most] = [now.from, now.to].map(|at_ms| {
            let by_rate = self.reference.bucket.tokens(at_ms);
            by_rate.min(free).min(max).min(waiting)
        });
        let number = deliveries.len();
        if !(least..=most).contains(&number) {
            return Err(format!("limited: is {number}, must be {least} to {most}"));
        }
        self.reference.bucket.take(number, now.to);
        let left = waiting - number;
        match next {
            NextAllowed::Now if left > 0 && number < max => Err("held back for nothing"),
            NextAllowed::In(_) | NextAllowed::WhenSettled if left == 0 || number == max => {
                Err("nothing is held back")
            }
            NextAllowed::WhenSettled if number < free => Err("room for another"),
            _ => Ok(()),
        }?;
        let wanted = Reservation {
            max: number,
            ..wanted
        };
        self.reserved(deliveries, wanted, now)?;
        Ok(())
    }

    fn reserved(
        &mut self,
        deliveries: Vec<Delivery>,
        wanted: Reservation,
        now: Span,
    ) -> Result<Vec<MessageId>, String> {
        let Reservation {
            max, lease, first, ..
        } = wanted;
        let ids = self.reference.reserve(max, lease, first, now);
        let got: Vec<MessageId> = deliveries.iter().map(|d| d.claim.id.clone()).collect();
        same("reserved", &got, &ids)?;
        for delivery in deliveries {
            self.delivered(delivery)?;
        }
        Ok(got)
    }

    fn delivered(&mut self, delivery: Delivery) -> Checked {
        let id = delivery.claim.id.clone();
        let known = &self.reference.messages[&id];
        same("payload", &delivery.payload, &Some(known.payload.clone()))?;
        same("headers", &delivery.headers, &known.headers)?;
        let is_expired = known.headers.iter().any(|(name, _)| name == EXPIRES_AT);
        same("expired", &delivery.expired, &is_expired)?;
        same("attempt", &delivery.attempt, &(known.failed + 1))?;
        let last = known.failed + 1 + known.retries_left;
        same("attempts at most", &delivery.attempts_max, &last)?;
        let mut due = known.due;
        self.time("became due", &mut due, delivery.due_at_ms)?;
        self.reference.messages.get_mut(&id).unwrap().due = None;
        self.given.push(Given {
            claim: delivery.claim,
            delivery: self.reference.delivery(&id),
        });
        Ok(())
    }

    async fn settle(&mut self, which: &[(usize, How)]) -> Checked {
        let claims = picked(&self.given, which.iter().map(|(number, _)| *number));
        let pairs: Vec<(Given, How)> = claims
            .into_iter()
            .zip(which.iter().map(|(_, how)| *how))
            .collect();
        let batch: Vec<_> = pairs
            .iter()
            .map(|(given, how)| {
                let attempt = attempt("why");
                let how = match how {
                    How::Ack => Settlement::ACK,
                    How::AckAndSend { .. } => Settlement::Ack {
                        outbox: self.outbox(*how),
                    },
                    How::NackNow => Settlement::Nack {
                        delay: None,
                        attempt,
                    },
                    How::NackFor(hours) => Settlement::Nack {
                        delay: Some(Duration::from_hours(*hours)),
                        attempt,
                    },
                    How::Reject => Settlement::Reject { attempt },
                };
                (given.claim.clone(), how)
            })
            .collect();
        let (answers, now) = self.timed(self.store.settle(&self.queue, &batch)).await?;
        let mut expected = Vec::new();
        for ((given, how), (_, settlement)) in pairs.iter().zip(&batch) {
            let how = match how {
                How::Ack | How::AckAndSend { .. } => Settle::Ack,
                How::NackNow => Settle::Nack(None),
                How::NackFor(hours) => Settle::Nack(Some(Duration::from_hours(*hours))),
                How::Reject => Settle::Reject,
            };
            let settled = self.reference.settle(given, &how, now);
            if let Settlement::Ack { outbox } = settlement {
                self.sent_along(outbox, settled, now);
            }
            expected.push(settled);
        }
        same("settled", &answers, &expected)
    }

    fn outbox(&self, how: How) -> Vec<Outgoing> {
        let How::AckAndSend {
            count,
            in_hours,
            elsewhere,
        } = how
        else {
            return Vec::new();
        };
        let queue = if elsewhere {
            &self.other.queue
        } else {
            &self.queue
        };
        new_messages(0, count, Duration::from_hours(in_hours), 1)
            .into_iter()
            .map(|message| Outgoing {
                queue: queue.clone(),
                message,
            })
            .collect()
    }

    /// What went with an ack is there when the ack was done, and nowhere when it was not.
    fn sent_along(&mut self, outbox: &[Outgoing], settled: Settled, now: Span) {
        for Outgoing { queue, message } in outbox {
            let (reference, ids) = if *queue == self.queue {
                (&mut self.reference, &mut self.ids)
            } else {
                (&mut self.other.reference, &mut self.other.ids)
            };
            ids.push(message.id.clone());
            let Due::In(delay) = message.due else {
                panic!("{message:?}")
            };
            if settled == Settled::Done {
                reference.send(message, delay, now);
            }
        }
    }

    async fn extend(&mut self, which: &[usize], lease: Duration) -> Checked {
        let given = picked(&self.given, which.iter().copied());
        let claims: Vec<_> = given.iter().map(|given| given.claim.clone()).collect();
        let (answers, now) = self
            .timed(self.store.extend(&self.queue, &claims, lease))
            .await?;
        let expected: Vec<Settled> = given
            .iter()
            .map(|given| self.reference.extend(given, lease, now))
            .collect();
        same("extended", &answers, &expected)
    }

    async fn release(&mut self, which: &[usize]) -> Checked {
        let given = picked(&self.given, which.iter().copied());
        let claims: Vec<_> = given.iter().map(|given| given.claim.clone()).collect();
        let (answers, _) = self.timed(self.store.release(&self.queue, &claims)).await?;
        let expected: Vec<Settled> = given
            .iter()
            .map(|given| self.reference.release(given))
            .collect();
        same("released", &answers, &expected)
    }

    async fn cancel(&mut self, which: &[usize]) -> Checked {
        let ids = picked(&self.ids, which.iter().copied());
        let (answers, _) = self.timed(self.store.cancel(&self.queue, &ids)).await?;
        let expected: Vec<_> = ids.iter().map(|id| self.reference.cancel(id)).collect();
        same("cancelled", &answers, &expected)
    }

    async fn kill(&mut self, which: &[usize]) -> Checked {
        let ids = picked(&self.ids, which.iter().copied());
        let (answers, _) = self.timed(self.store.kill(&self.queue, &ids)).await?;
        let expected: Vec<_> = ids.iter().map(|id| self.reference.kill(id)).collect();
        same("killed", &answers, &expected)
    }

    async fn reschedule(&mut self, which: &[usize], delay: Duration) -> Checked {
        let ids = picked(&self.ids, which.iter().copied());
        let (answers, now) = self
            .timed(self.store.reschedule(&self.queue, &ids, Due::In(delay)))
            .await?;
        same("rescheduled", &answers.len(), &ids.len())?;
        for (id, answer) in ids.iter().zip(answers) {
            let told = match answer {
                Rescheduled::At(at_ms) => Some(at_ms),
                _ => None,
            };
            let mut due = self.reference.reschedule(id, delay, now);
            self.time("due again", &mut due, told)?;
            let known = self.reference.messages.get_mut(id);
            let is_in_hand = known.as_ref().is_some_and(|k| k.state == State::Unack);
            same("in flight", &(answer == Rescheduled::InFlight), &is_in_hand)?;
            if let (Some(known), Some(_)) = (known, due) {
                known.at = known.at.and(due);
            }
        }
        Ok(())
    }

    async fn redrive(&mut self, which: &[usize], how: Redrive) -> Checked {
        let ids = picked(&self.ids, which.iter().copied());
        let (answers, _) = self
            .timed(self.store.redrive(&self.queue, &ids, how))
            .await?;
        for (id, answer) in ids.iter().zip(answers) {
            let refused = self.reference.refuses_redrive(id, how);
            let (new, told) = match &answer {
                Redriven::As(new) => (Some(new), None),
                Redriven::TooOften(redrives) => (None, Some(*redrives)),
                _ => (None, None),
            };
            same("redriven too often", &told, &refused)?;
            if refused.is_none() {
                let was_dead = self.reference.redrive(id, new, how.retries);
                same("redriven", &new.is_some(), &was_dead)?;
                self.ids.extend(new.cloned());
            }
        }
        Ok(())
    }

    async fn delete(&mut self, which: &[usize]) -> Checked {
        let ids = picked(&self.ids, which.iter().copied());
        let (answers, _) = self
            .timed(self.store.delete_dead(&self.queue, &ids))
            .await?;
        let expected: Vec<_> = ids.iter().map(|id| self.reference.delete(id)).collect();
        same("deleted", &answers, &expected)
    }

    async fn beat(&mut self, host: usize) -> Checked {
        let host = HostInfo {
            id: format!("host-{host}"),
            version: "1".to_owned(),
            handler: "ab".to_owned(),
            slots: 1,
            in_flight: 0,
        };
        let ((), now) = self
            .timed(self.store.heartbeat(&self.queue, &host, SILENCE))
            .await?;
        let silence = u64::try_from(SILENCE.as_millis()).unwrap();
        self.reference
            .hosts
            .retain(|_, beat| beat.to + silence > now.from);
        self.reference.hosts.insert(host.id, now);
        let hosts = self.store.hosts(&self.queue, SILENCE).await;
        let hosts: Vec<String> = hosts
            .unwrap()
            .into_iter()
            .map(|host| host.info.id)
            .collect();
        same(
            "hosts",
            &hosts,
            &self.reference.hosts.keys().cloned().collect(),
        )
    }

    async fn away_and_back(&mut self, max: usize) -> Checked {
        // Else those that go are known more exactly than others of the same time.
        self.records().await?;
        let peer = Peer {
            name: "elsewhere".to_owned(),
            renamed: false,
            run: "1".to_owned(),
        };
        let met = self.store.begin_transfer(&self.queue, &peer).await;
        met.map_err(|error| error.to_string())?;
        let away = self.store.export(&self.queue, &peer.run, max).await;
        let away = away.map_err(|error| error.to_string())?;
        let counts = self.store.counts(&self.queue).await.unwrap();
        same("moving", &counts.moving, &(away.len() as u64))?;
        let again = self
            .store
            .export(&self.queue, &peer.run, max)
            .await
            .unwrap();
        same("exported again", &again.len(), &away.len())?;
        let waiting = self.reference.messages.len() - self.reference.in_order(State::Unack).len();
        same("exported", &away.len(), &max.min(waiting))?;
        let ids: Vec<MessageId> = away.iter().map(|record| record.id.clone()).collect();
        for mut record in away {
            let id = record.id.clone();
            let due = matches!(record.state, State::Ready | State::Retry);
            if due {
                let mut became_due = self.reference.messages[&id].due;
                self.time("became due", &mut became_due, record.at_ms.take())?;
            }
            self.known(&id, Some(record))
                .map_err(|error| format!("exported {id}: {error}"))?;
        }
        self.reference.send_to_the_end(&ids);
        let admitted = self.store.commit_import(&self.queue, &peer.run, &ids).await;
        admitted.map_err(|error| error.to_string())
    }

    /// Whatever was done, what is kept goes together.
    async fn audit(&self) -> Checked {
        let how = Audit {
            repair: false,
            settling: Duration::ZERO,
        };
        for queue in [&self.queue, &self.other.queue] {
            let report = self.store.audit(queue, how).await;
            let report = report.map_err(|error| error.to_string())?;
            same("audit", &report, &AuditReport::default())?;
        }
        Ok(())
    }

    /// Compares all that can be seen of the queue.
    async fn everything(&mut self) -> Checked {
        self.records().await?;
        let page = Page {
            offset: 0,
            limit: 1000,
            payload_max: 1000,
        };
        for state in [
            State::Pending,
            State::Ready,
            State::Unack,
            State::Retry,
            State::Dead,
        ] {
            let listed = self.store.list(&self.queue, state, page).await.unwrap();
            let ids: Vec<MessageId> = listed.into_iter().map(|record| record.id).collect();
            same(state.as_str(), &ids, &self.reference.in_order(state))?;
        }
        Ok(())
    }

    async fn records(&mut self) -> Checked {
        for id in self.ids.clone() {
            let record = self.store.get(&self.queue, &id).await;
            let record = record.map_err(|error| error.to_string())?;
            self.known(&id, record)
                .map_err(|error| format!("{id}: {error}"))?;
        }
        Ok(())
    }

    fn known(&mut self, id: &MessageId, record: Option<Record>) -> Checked {
        let known = self.reference.messages.get(id);
        same("there", &record.is_some(), &known.is_some())?;
        let (Some(record), Some(known)) = (record, known) else {
            return Ok(());
        };
        same("state", &record.state, &known.state)?;
        same("attempts", &record.attempts, &known.failed)?;
        same("retries left", &record.retries_left, &known.retries_left)?;
        same("payload", &record.payload, &Some(known.payload.clone()))?;
        same("headers", &record.headers, &known.headers)?;
        let history: Vec<String> = record
            .history
            .iter()
            .map(|entry| match entry {
                HistoryEntry::Attempt(attempt) => attempt.class.clone(),
                HistoryEntry::Redriven {
                    redriven_from,
                    redrives,
                    ..
                } => {
                    format!("redriven from {redriven_from}, {redrives}")
                }
            })
            .collect();
        same("history", &history, &known.history)?;
        let mut at = known.at;
        self.time("time", &mut at, record.at_ms)?;
        // Exact now, so that equal times can be told from different ones.
        self.reference.messages.get_mut(id).unwrap().at = at;
        Ok(())
    }
}
