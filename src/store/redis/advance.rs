//! Promotes what is due, takes back what leases have expired for, and dead-letters garbage.

use crate::store::Advance;
use async_trait::async_trait;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::args::FAIL_STEP;
use super::decode::{decode, unexpected};
use super::foreign::{adopt, payload_keys, persist};
use super::keys::Keys;
use super::{Advanced, QueueName, RedisStore, StoreResult, scripts};
use crate::store::Operation;

/// Messages that each script of an `advance` moves at most. Promoting 1,000 takes 4.6 ms when the
/// lists are a million long (`make bench`), and on a busy machine Redis may be kept from its core for
/// several more; a quarter of that leaves others their turn.
const ADVANCE_STEP: usize = 250;

pub(super) const ADVANCE: Operation = Operation::Advance;

/// `look_at` is the place at which it looks for payloads that expire, if it is to look.
pub(super) fn promote(k: &Keys, look_at: Option<u64>) -> Cmd {
    let mut command = scripts::PENDING_TO_READY.call(k, scripts::NO_MORE);
    command.arg(ADVANCE_STEP);
    match look_at {
        Some(place) => command.arg(place),
        None => command.arg(-1),
    };
    command
}

fn expire(k: &Keys) -> Cmd {
    let mut command = scripts::UNACK_TO_RETRY.call(k, scripts::NO_MORE);
    command.arg(FAIL_STEP);
    command
}

/// Dead-letters these, or what is found when there are none.
fn dead_letter(k: &Keys, ids: &[&[u8]]) -> Cmd {
    let payloads = payload_keys(k, ids.iter().copied());
    let mut command = scripts::COLLECT_GARBAGE.call(k, &payloads);
    command.arg(ADVANCE_STEP).arg(ids);
    command
}

/// The same, some time later.
pub(super) fn since(answered: Instant, advanced: Advanced) -> Advanced {
    let passed = answered.elapsed();
    Advanced {
        next_in: advanced.next_in.map(|next| next.saturating_sub(passed)),
        ..advanced
    }
}

/// Time from now on, of what a script said when it answered; none for what is not in sight.
fn from_now(us: i64, answered: Instant) -> Option<Duration> {
    let told = u64::try_from(us).ok().map(Duration::from_micros)?;
    Some(told.saturating_sub(answered.elapsed()))
}

fn ids(values: &[Value]) -> Vec<&[u8]> {
    let bytes = values.iter().filter_map(|value| match value {
        Value::BulkString(id) => Some(id.as_slice()),
        _ => None,
    });
    bytes.collect()
}

/// What `pending_to_ready` answers.
struct Promoted<'a> {
    moved: usize,
    /// Time until the next message is due, as the script says it.
    due: i64,
    lease_end: i64,
    to_dead_letter: bool,
    waiting: bool,
    /// The message that is due next.
    next: Option<String>,
    /// Where to look next for payloads that expire; none when it did not look.
    look_at: Option<u64>,
    /// Due, and still pending, since the due time is cut.
    cut: Vec<&'a [u8]>,
    /// In line; the payload may expire.
    expiring: Vec<&'a [u8]>,
}

impl<'a> Promoted<'a> {
    fn read(answer: &'a [Value]) -> Option<Self> {
        let [
            Value::Int(moved),
            Value::Int(due),
            Value::Int(lease_end),
            Value::Int(to_dead_letter),
            Value::Int(waiting),
            next,
            Value::Int(look_at),
            Value::Int(cut),
            foreign @ ..,
        ] = answer
        else {
            return None;
        };
        let (cut, expiring) = foreign.split_at_checked(usize::try_from(*cut).ok()?)?;
        let next = match next {
            Value::BulkString(next) => Some(String::from_utf8_lossy(next).into_owned()),
            _ => None,
        };
        Some(Self {
            moved: usize::try_from(*moved).unwrap_or(0),
            due: *due,
            lease_end: *lease_end,
            to_dead_letter: *to_dead_letter > 0,
            waiting: *waiting > 0,
            next: next.filter(|_| *waiting == 0),
            look_at: u64::try_from(*look_at).ok(),
            cut: ids(cut),
            expiring: ids(expiring),
        })
    }
}

#[async_trait]
impl Advance for RedisStore {
    async fn advance(&self, queue: &QueueName) -> StoreResult<Advanced> {
        let k = self.keys(queue);
        let command = promote(&k, self.walks.next(&k.wake));
        let promoted = self.one(&self.work, ADVANCE, command).await?;
        let answered = Instant::now();
        self.after_promotion(queue, &k, promoted, answered).await
    }
}

impl RedisStore {
    /// The rest of an advance: it asks again only when there is something to do.
    pub(super) async fn after_promotion(
        &self,
        queue: &QueueName,
        k: &Keys,
        answer: Vec<Value>,
        answered: Instant,
    ) -> StoreResult<Advanced> {
        let unexpected = || unexpected(&self.name, ADVANCE);
        let promoted = Promoted::read(&answer).ok_or_else(unexpected)?;
        let ends = promoted.lease_end == 0 || promoted.to_dead_letter;
        let mut commands = Vec::new();
        if ends {
            commands.extend([expire(k), dead_letter(k, &[])]);
        }
        if !promoted.cut.is_empty() {
            commands.push(adopt(k, &promoted.cut));
        }
        if !promoted.expiring.is_empty() {
            commands.push(persist(k, &promoted.expiring, false));
        }
        let mut answers = self.work.run(ADVANCE, &commands).await?.into_iter();
        // Each script counts from its own time.
        let (again, mut due_asked, mut lease_asked) = (Instant::now(), answered, answered);
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let (mut due, mut lease_end) = (promoted.due, promoted.lease_end);
        let (mut expired, mut dead_lettered, mut dropped, mut adopted) = (0, 0, 0, 0);
        let mut found_expiring = false;
        if ends {
            let repeats: i64;
            (expired, lease_end, repeats) = decode(&self.name, ADVANCE, next())?;
            lease_asked = again;
            if repeats > 0 {
                self.after_runs(ADVANCE, queue, Vec::new()).await;
            }
            (dead_lettered, dropped) = self.after_dead_lettering(queue, k, next()).await?;
        }
        if !promoted.cut.is_empty() {
            (adopted, due) = decode(&self.name, ADVANCE, next())?;
            due_asked = again;
        }
        if !promoted.expiring.is_empty() {
            let found: Vec<u64> = decode(&self.name, ADVANCE, next())?;
            found_expiring = found.iter().any(|found| *found > 0);
        }
        let hurries = found_expiring && promoted.look_at.is_some_and(|place| place > 0);
        if let Some(place) = promoted.look_at {
            self.walks.went_to(&k.wake, place, hurries);
        }
        if let Some(id) = &promoted.next {
            self.prefetch.note(&k.wake, id);
        }
        let found = promoted.moved + promoted.cut.len();
        Ok(Advanced {
            promoted: promoted.moved + adopted,
            adopted,
            expired,
            dead_lettered,
            more: found.max(dead_lettered + dropped) >= ADVANCE_STEP
                || expired >= FAIL_STEP
                || hurries,
            waiting: promoted.waiting || expired + adopted > 0,
            next_in: from_now(due, due_asked)
                .into_iter()
                .chain(from_now(lease_end, lease_asked))
                .min(),
        })
    }

    /// Dead-letters what `collect_garbage` has left, since it needs the payloads' keys. Returns how
    /// many became dead letters in all, and how many were dropped.
    async fn after_dead_lettering(
        &self,
        queue: &QueueName,
        k: &Keys,
        answer: Value,
    ) -> StoreResult<(usize, usize)> {
        let (mut dead_lettered, mut dropped) = (0, 0);
        let mut add = |answer: Value| -> StoreResult<Vec<Value>> {
            let mut answer: Vec<Value> = decode(&self.name, ADVANCE, answer)?;
            let &[Value::Int(more), Value::Int(empty), ..] = answer.as_slice() else {
                return Err(unexpected(&self.name, ADVANCE));
            };
            dead_lettered =
                usize::saturating_add(dead_lettered, usize::try_from(more).unwrap_or(0));
            dropped = usize::saturating_add(dropped, usize::try_from(empty).unwrap_or(0));
            Ok(answer.split_off(2))
        };
        let left = add(answer)?;
        let left = ids(&left);
        let commands: Vec<Cmd> = left
            .chunks(FAIL_STEP)
            .map(|ids| dead_letter(k, ids))
            .collect();
        for answer in self.work.run(ADVANCE, &commands).await? {
            add(answer)?;
        }
        super::foreign::log_dropped(queue, dropped);
        Ok((dead_lettered, dropped))
    }
}
