//! Stores with a deliberate mistake each, which the search must find and show by a short script.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dqhost::clock::ManualClock;
use dqhost::message::{
    Claim, Delivery, Due, MessageId, NewMessage, Outgoing, QueueName, Record, Sent, State,
    TopicName,
};
use dqhost::store::prelude::*;
use dqhost::store::{
    Advanced, Audit, AuditReport, Cancelled, Counts, DueAhead, Ended, EventBuffer, EventStream,
    HostInfo, LimitedReservation, Limits, Overview, Page, Peer, Redrive, Redriven, ReportCounts,
    Rescheduled, Reservation, Retention, ScheduleState, SeenHost, Settled, Settlement, StoreResult,
    Subscription, Tick, TickSent, TopicSent,
};

use super::run::World;
use super::{SqliteWorld, runtime, search, search_keys};
use crate::contract::tools::attempt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    /// An ack with an old token ends the current delivery.
    UnfencedAck,
    /// A nack that comes after the ack puts the message back.
    LateNackRevives,
    /// Due times are cut to whole seconds, so messages come early.
    SecondsTruncated,
    /// A failed attempt counts as two.
    AttemptCountedTwice,
    /// Burying keeps the id and drops the payload.
    GarbageDropsThePayload,
    /// What is given back has cost an attempt.
    ReleaseCostsAnAttempt,
    /// What a host has in flight is cancelled all the same.
    CancelTakesWhatIsInHand,
    /// What a host has in flight stays there when it is killed.
    KillSparesWhatRuns,
    /// What was redriven as often as that may be is redriven once more.
    RedrivesWithoutEnd,
    /// An extension with an old token keeps the current delivery alive.
    UnfencedExtend,
    /// The last in line comes first.
    NewestFirst,
    /// A paused queue says so and gives all the same.
    PausedGivesAllTheSame,
    /// What is put off is due a second late.
    PutOffTooLong,
    /// What goes with an ack is accepted also when the ack is not.
    OutboxOfAStaleAck,
    /// The time of a rate is forgotten.
    RateForgotten,
    /// What runs does not count.
    RunningForgotten,
    /// What has expired runs all the same.
    ExpiredRuns,
    /// The id of a tick is forgotten once its message is gone.
    TickTwice,
    /// A tick counts as sent, and is not.
    TickLost,
    /// The messages of another key count for a key.
    KeysCountTogether,
    /// The oldest messages go first, whoever else waits.
    NoTurns,
}

/// Those that show by limits for each key, or by turns.
const OF_KEYS: [Mistake; 4] = [
    Mistake::RateForgotten,
    Mistake::RunningForgotten,
    Mistake::KeysCountTogether,
    Mistake::NoTurns,
];

const MISTAKES: [Mistake; 19] = [
    Mistake::UnfencedAck,
    Mistake::LateNackRevives,
    Mistake::SecondsTruncated,
    Mistake::AttemptCountedTwice,
    Mistake::GarbageDropsThePayload,
    Mistake::ReleaseCostsAnAttempt,
    Mistake::CancelTakesWhatIsInHand,
    Mistake::KillSparesWhatRuns,
    Mistake::RedrivesWithoutEnd,
    Mistake::UnfencedExtend,
    Mistake::NewestFirst,
    Mistake::PausedGivesAllTheSame,
    Mistake::PutOffTooLong,
    Mistake::OutboxOfAStaleAck,
    Mistake::RateForgotten,
    Mistake::RunningForgotten,
    Mistake::ExpiredRuns,
    Mistake::TickTwice,
    Mistake::TickLost,
];

struct Mistaken {
    inner: Arc<dyn Store>,
    mistake: Mistake,
    clock: ManualClock,
    /// The latest claim of each message.
    latest: Mutex<HashMap<MessageId, Claim>>,
}

impl Mistaken {
    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn given_out(&self, mut deliveries: Vec<Delivery>) -> Vec<Delivery> {
        for delivery in &mut deliveries {
            let claim = delivery.claim.clone();
            self.latest.lock().unwrap().insert(claim.id.clone(), claim);
            if self.makes(Mistake::AttemptCountedTwice) {
                delivery.attempt += delivery.attempt - 1;
            }
            delivery.expired &= !self.makes(Mistake::ExpiredRuns);
        }
        if self.makes(Mistake::NewestFirst) {
            deliveries.reverse();
        }
        deliveries
    }

    fn latest(&self, claim: &Claim) -> Claim {
        let latest = self.latest.lock().unwrap();
        latest.get(&claim.id).unwrap_or(claim).clone()
    }

    fn without_payload(&self, mut record: Record) -> Record {
        if self.makes(Mistake::GarbageDropsThePayload) && record.state == State::Dead {
            record.payload = None;
        }
        record
    }
}

#[async_trait]
impl SendMessages for Mistaken {
    async fn send(&self, queue: &QueueName, messages: &[NewMessage]) -> StoreResult<Vec<Sent>> {
        let mut messages = messages.to_vec();
        let is_tick = !messages[0].dedup_window.is_zero();
        if self.makes(Mistake::TickLost) && is_tick {
            let id = messages[0].id.clone();
            return Ok(vec![Sent::new(id, None)]);
        }
        if self.makes(Mistake::TickTwice) && is_tick {
            messages[0].dedup_window = Duration::ZERO;
        }
        if self.makes(Mistake::SecondsTruncated) {
            for message in &mut messages {
                if let Due::In(delay) = message.due {
                    let at_ms = self.clock.now_ms() + u64::try_from(delay.as_millis()).unwrap();
                    message.due = Due::At(at_ms / 1000 * 1000);
                }
            }
        }
        self.inner.send(queue, &messages).await
    }
}

#[async_trait]
impl Advance for Mistaken {
    async fn advance(&self, queue: &QueueName) -> StoreResult<Advanced> {
        self.inner.advance(queue).await
    }
}

#[async_trait]
impl Deliver for Mistaken {
    async fn reserve(&self, queue: &QueueName, wanted: Reservation) -> StoreResult<Vec<Delivery>> {
        let mut deliveries = self.inner.reserve(queue, wanted).await?;
        if self.makes(Mistake::PausedGivesAllTheSame) && self.inner.overview(queue).await?.paused {
            self.inner.set_paused(queue, false).await?;
            deliveries = self.inner.reserve(queue, wanted).await?;
            self.inner.set_paused(queue, true).await?;
        }
        Ok(self.given_out(deliveries))
    }

    async fn advance_and_reserve(
        &self,
        queue: &QueueName,
        wanted: Reservation,
    ) -> StoreResult<(Advanced, Vec<Delivery>)> {
        let (advanced, deliveries) = self.inner.advance_and_reserve(queue, wanted).await?;
        Ok((advanced, self.given_out(deliveries)))
    }

    async fn reserve_limited(
        &self,
        queue: &QueueName,
        wanted: Reservation,
        limits: &Limits,
    ) -> StoreResult<LimitedReservation> {
        let mut limits = limits.clone();
        match self.mistake {
            Mistake::RateForgotten => limits.rate = None,
            Mistake::RunningForgotten => limits.max_running = None,
            Mistake::KeysCountTogether => limits.by = None,
            Mistake::NoTurns => limits.fair_by = None,
            _ => {}
        }
        let reserved = self.inner.reserve_limited(queue, wanted, &limits).await?;
        Ok(LimitedReservation {
            deliveries: self.given_out(reserved.deliveries),
            ..reserved
        })
    }

    async fn extend(
        &self,
        queue: &QueueName,
        claims: &[Claim],
        lease: Duration,
    ) -> StoreResult<Vec<Settled>> {
        let mut claims = claims.to_vec();
        if self.makes(Mistake::UnfencedExtend) {
            claims = claims.iter().map(|claim| self.latest(claim)).collect();
        }
        self.inner.extend(queue, &claims, lease).await
    }

    async fn release(&self, queue: &QueueName, claims: &[Claim]) -> StoreResult<Vec<Settled>> {
        if self.makes(Mistake::ReleaseCostsAnAttempt) {
            let nack = |claim: &Claim| {
                let attempt = attempt("released");
                (
                    claim.clone(),
                    Settlement::Nack {
                        delay: None,
                        attempt,
                    },
                )
            };
            let nacks: Vec<_> = claims.iter().map(nack).collect();
            return self.inner.settle(queue, &nacks).await;
        }
        self.inner.release(queue, claims).await
    }

    fn reservation_worth(&self) -> usize {
        self.inner.reservation_worth()
    }

    fn subscribe(&self, queues: &[QueueName]) -> Subscription {
        self.inner.subscribe(queues)
    }
}

#[async_trait]
impl Settle for Mistaken {
    async fn settle(
        &self,
        queue: &QueueName,
        settlements: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>> {
        let mut settlements = settlements.to_vec();
        if self.makes(Mistake::UnfencedAck) {
            for (claim, how) in &mut settlements {
                if matches!(how, Settlement::Ack { .. }) {
                    *claim = self.latest(claim);
                }
            }
        }
        let answers = self.inner.settle(queue, &settlements).await?;
        for ((claim, how), answer) in settlements.iter().zip(&answers) {
            let is_nack = matches!(how, Settlement::Nack { .. });
            if self.makes(Mistake::LateNackRevives) && is_nack && *answer == Settled::LeaseLost {
                let revived = NewMessage {
                    id: claim.id.clone(),
                    ..NewMessage::new("revived")
                };
                self.inner.send(queue, &[revived]).await?;
            }
            if let Settlement::Ack { outbox } = how
                && self.makes(Mistake::OutboxOfAStaleAck)
                && *answer == Settled::LeaseLost
            {
                for Outgoing { queue, message } in outbox {
                    self.inner
                        .send(queue, std::slice::from_ref(message))
                        .await?;
                }
            }
        }
        Ok(answers)
    }

    async fn keep_ended(
        &self,
        queue: &QueueName,
        ended: &[(Ended, Duration)],
        keep: usize,
    ) -> StoreResult<()> {
        self.inner.keep_ended(queue, ended, keep).await
    }

    async fn keep_results(
        &self,
        queue: &QueueName,
        results: &[(MessageId, Vec<u8>)],
        bytes_max: usize,
    ) -> StoreResult<()> {
        self.inner.keep_results(queue, results, bytes_max).await
    }

    fn can_send_along(&self, from: &QueueName, to: &QueueName) -> bool {
        self.inner.can_send_along(from, to)
    }
}

#[async_trait]
impl Events for Mistaken {
    fn events(&self) -> &Arc<EventBuffer> {
        self.inner.events()
    }

    async fn listened(&self, queues: &[QueueName]) -> StoreResult<Vec<QueueName>> {
        self.inner.listened(queues).await
    }

    async fn publish_events(&self, queue: &QueueName, batches: &[String]) -> StoreResult<()> {
        self.inner.publish_events(queue, batches).await
    }

    async fn report_events(&self, queue: &QueueName, counts: ReportCounts) -> StoreResult<()> {
        self.inner.report_events(queue, counts).await
    }

    fn listen(self: Arc<Self>, queues: Vec<QueueName>, delayqueue: bool) -> EventStream {
        Arc::clone(&self.inner).listen(queues, delayqueue)
    }
}

#[async_trait]
impl Hosts for Mistaken {
    async fn heartbeat(
        &self,
        queue: &QueueName,
        host: &HostInfo,
        silence: Duration,
    ) -> StoreResult<()> {
        self.inner.heartbeat(queue, host, silence).await
    }

    async fn leave(&self, queue: &QueueName, host_id: &str) -> StoreResult<()> {
        self.inner.leave(queue, host_id).await
    }

    async fn hosts(&self, queue: &QueueName, silence: Duration) -> StoreResult<Vec<SeenHost>> {
        self.inner.hosts(queue, silence).await
    }
}

#[async_trait]
impl Inspect for Mistaken {
    fn describe(&self) -> String {
        format!("{:?}", self.mistake)
    }

    async fn result(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Vec<u8>>> {
        self.inner.result(queue, id).await
    }

    async fn overview(&self, queue: &QueueName) -> StoreResult<Overview> {
        self.inner.overview(queue).await
    }

    async fn due_ahead(
        &self,
        queue: &QueueName,
        span: Duration,
        spans: usize,
    ) -> StoreResult<DueAhead> {
        self.inner.due_ahead(queue, span, spans).await
    }

    async fn counts(&self, queue: &QueueName) -> StoreResult<Counts> {
        self.inner.counts(queue).await
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Record>> {
        let record = self.inner.get(queue, id).await?;
        Ok(record.map(|record| self.without_payload(record)))
    }

    async fn list(&self, queue: &QueueName, state: State, page: Page) -> StoreResult<Vec<Record>> {
        let records = self.inner.list(queue, state, page).await?;
        Ok(records
            .into_iter()
            .map(|record| self.without_payload(record))
            .collect())
    }

    async fn ended(
        &self,
        queue: &QueueName,
        offset: usize,
        limit: usize,
    ) -> StoreResult<Vec<Ended>> {
        self.inner.ended(queue, offset, limit).await
    }
}

#[async_trait]
impl Discover for Mistaken {
    async fn queues(&self) -> StoreResult<Vec<QueueName>> {
        self.inner.queues().await
    }
}

#[async_trait]
impl Manage for Mistaken {
    async fn cancel(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>> {
        let mut answers = self.inner.cancel(queue, ids).await?;
        if self.makes(Mistake::CancelTakesWhatIsInHand) {
            for (id, answer) in ids.iter().zip(&mut answers) {
                if *answer == Cancelled::InFlight {
                    let claim = self.latest.lock().unwrap()[id].clone();
                    self.inner
                        .settle(queue, &[(claim, Settlement::ACK)])
                        .await?;
                    *answer = Cancelled::Done;
                }
            }
        }
        Ok(answers)
    }

    async fn kill(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>> {
        if !self.makes(Mistake::KillSparesWhatRuns) {
            return self.inner.kill(queue, ids).await;
        }
        let mut answers = self.inner.cancel(queue, ids).await?;
        for answer in &mut answers {
            if *answer == Cancelled::InFlight {
                *answer = Cancelled::Killed;
            }
        }
        Ok(answers)
    }

    async fn reschedule(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        due: Due,
    ) -> StoreResult<Vec<Rescheduled>> {
        let due = match due {
            Due::In(delay) if self.makes(Mistake::PutOffTooLong) && !delay.is_zero() => {
                Due::In(delay + Duration::from_secs(1))
            }
            due => due,
        };
        self.inner.reschedule(queue, ids, due).await
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<()> {
        self.inner.set_paused(queue, paused).await
    }

    async fn redrive(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        mut how: Redrive,
    ) -> StoreResult<Vec<Redriven>> {
        if self.makes(Mistake::RedrivesWithoutEnd) {
            how.max_redrives = None;
        }
        self.inner.redrive(queue, ids, how).await
    }

    async fn redrive_edited(
        &self,
        queue: &QueueName,
        id: &MessageId,
        payload: &[u8],
        retries: Option<u32>,
    ) -> StoreResult<Redriven> {
        self.inner.redrive_edited(queue, id, payload, retries).await
    }

    async fn past_retention(
        &self,
        queue: &QueueName,
        retention: Retention,
    ) -> StoreResult<Vec<MessageId>> {
        self.inner.past_retention(queue, retention).await
    }

    async fn delete_dead(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<bool>> {
        self.inner.delete_dead(queue, ids).await
    }
}

#[async_trait]
impl SendTicks for Mistaken {
    async fn send_ticks(&self, queue: &QueueName, ticks: &[Tick]) -> StoreResult<Vec<TickSent>> {
        self.inner.send_ticks(queue, ticks).await
    }

    async fn set_schedule_paused(
        &self,
        queue: &QueueName,
        schedule: &str,
        paused: bool,
    ) -> StoreResult<()> {
        self.inner
            .set_schedule_paused(queue, schedule, paused)
            .await
    }

    async fn schedules(&self, queue: &QueueName) -> StoreResult<Vec<ScheduleState>> {
        self.inner.schedules(queue).await
    }
}

#[async_trait]
impl Transfer for Mistaken {
    async fn begin_transfer(&self, queue: &QueueName, peer: &Peer) -> StoreResult<()> {
        self.inner.begin_transfer(queue, peer).await
    }

    async fn export(&self, queue: &QueueName, run: &str, max: usize) -> StoreResult<Vec<Record>> {
        self.inner.export(queue, run, max).await
    }

    async fn import(&self, queue: &QueueName, run: &str, records: &[Record]) -> StoreResult<()> {
        self.inner.import(queue, run, records).await
    }

    async fn remove_exported(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        self.inner.remove_exported(queue, run, ids).await
    }

    async fn commit_import(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        self.inner.commit_import(queue, run, ids).await
    }

    async fn mark(&self, queue: &QueueName, mark: &str, is_put: bool) -> StoreResult<bool> {
        self.inner.mark(queue, mark, is_put).await
    }
}

#[async_trait]
impl AuditQueues for Mistaken {
    async fn audit(&self, queue: &QueueName, how: Audit) -> StoreResult<AuditReport> {
        self.inner.audit(queue, how).await
    }

    async fn audit_store(&self, repair: bool) -> StoreResult<AuditReport> {
        self.inner.audit_store(repair).await
    }
}

impl Close for Mistaken {}

#[async_trait]
impl Topics for Mistaken {
    async fn subscribe_queue(&self, topic: &TopicName, queue: &QueueName) -> StoreResult<bool> {
        self.inner.subscribe_queue(topic, queue).await
    }

    async fn unsubscribe_queue(&self, topic: &TopicName, queue: &QueueName) -> StoreResult<bool> {
        self.inner.unsubscribe_queue(topic, queue).await
    }

    async fn subscriptions(&self) -> StoreResult<Vec<(TopicName, QueueName)>> {
        self.inner.subscriptions().await
    }

    async fn send_to_topic(
        &self,
        topic: &TopicName,
        messages: &[NewMessage],
    ) -> StoreResult<TopicSent> {
        self.inner.send_to_topic(topic, messages).await
    }
}

struct MistakenWorld {
    inner: SqliteWorld,
    store: Arc<dyn Store>,
}

impl World for MistakenWorld {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn pass(&self, queues: &[QueueName], by: Duration) {
        self.inner.pass(queues, by).await;
    }

    fn now_ms(&self) -> u64 {
        self.inner.now_ms()
    }

    fn told(&self, at_ms: u64) -> u64 {
        self.inner.told(at_ms)
    }
}

impl MistakenWorld {
    fn new(runtime: &tokio::runtime::Runtime, mistake: Mistake) -> Self {
        let inner = runtime.block_on(SqliteWorld::new());
        let store = Arc::new(Mistaken {
            inner: inner.store(),
            mistake,
            clock: inner.clock.clone(),
            latest: Mutex::default(),
        });
        Self { inner, store }
    }
}

#[test]
fn each_deliberate_mistake_is_found_and_shown_by_a_short_script() {
    let runtime = runtime();
    for mistake in MISTAKES {
        let world = MistakenWorld::new(&runtime, mistake);
        let Err((reason, script)) = search(&runtime, &world, 2000) else {
            panic!("{mistake:?} was not found");
        };
        println!("{mistake:?}: {} steps: {reason}", script.len());
        assert!(script.len() <= 12, "{mistake:?}: {reason}: {script:#?}");
    }
}

#[test]
fn each_deliberate_mistake_with_keys_is_found_and_shown_by_a_short_script() {
    let runtime = runtime();
    for mistake in OF_KEYS {
        let world = MistakenWorld::new(&runtime, mistake);
        let Err((reason, (mode, script))) = search_keys(&runtime, &world, 2000) else {
            panic!("{mistake:?} was not found");
        };
        println!("{mistake:?}: {mode:?}, {} steps: {reason}", script.len());
        assert!(script.len() <= 6, "{mistake:?}: {reason}: {script:#?}");
    }
}
