//! Finds and repairs inconsistencies in a queue.
//!
//! First everything is read in pages, which shows suspects: what moves meanwhile looks wrong as well.
//! It is read once more, and what is suspect both times is looked at by a script, which sees each id
//! at one moment. What is wrong then is repaired by another, which looks again before it writes.

mod elsewhere;
mod pages;
mod presence;

use crate::store::AuditQueues;
use crate::store::Operation;
use async_trait::async_trait;

use self::elsewhere::Others;
use self::presence::{DEAD, Presence, Repair};
use super::foreign::payload_keys;
use super::inspect::command;
use super::keys::Keys;
use super::{Audit, AuditReport, QueueName, RedisStore, StoreResult, scripts};
use crate::store::FindingKind;
use crate::store::report::Remedy;

const OPERATION: Operation = Operation::Audit;

/// Ids that a script looks at or repairs at most.
const STEP_MAX: usize = 100;

/// Entries of lists that it walks through at most, if that leaves one id: 3 ms.
const WALK_MAX: usize = 200_000;

/// How often a repair is tried again when the message was changed meanwhile.
const TRIES: usize = 10;

/// The bytes of an id, which need be no text.
type Id = Vec<u8>;

/// An id, what was found of it at one moment, and what is wrong with that.
type Found = (Id, Presence, FindingKind);

/// True for what a delayqueue producer or consumer may be in the middle of.
fn may_settle(kind: FindingKind) -> bool {
    matches!(kind, FindingKind::OrphanPayload | FindingKind::OrphanField)
}

/// What repairs it, as `audit_repair` takes it: the number of its only key from now on, class and
/// reason of a dead letter; none where nothing does.
fn repair_args(repair: Repair, kind: FindingKind) -> Option<(u32, &'static str, &'static str)> {
    match repair {
        Repair::Forget => Some((0, "", "")),
        Repair::Keep(place) => Some((place.trailing_zeros() + 1, "", "")),
        Repair::DeadLetter if kind == FindingKind::OrphanPayload => Some((
            DEAD.trailing_zeros() + 1,
            "orphan-payload",
            "an audit found its payload, and the message in no state",
        )),
        Repair::DeadLetter => Some((
            DEAD.trailing_zeros() + 1,
            "payload-missing",
            "an audit found that the payload is gone",
        )),
        Repair::Wait | Repair::None => None,
    }
}

/// What becomes of a finding that is repaired so.
fn remedy(repair: Repair) -> Remedy {
    match repair {
        Repair::Forget | Repair::Keep(_) => Remedy::Repaired,
        Repair::DeadLetter => Remedy::DeadLettered,
        Repair::Wait => Remedy::InFlight,
        Repair::None => Remedy::None,
    }
}

fn add(report: &mut AuditReport, k: &Keys, id: &[u8], kind: FindingKind, remedy: Remedy) {
    let id = String::from_utf8_lossy(id);
    if kind == FindingKind::WrongType {
        report.add(kind, &format!("{}{id}", k.message_prefix()), remedy);
    } else {
        report.add(kind, &id, remedy);
    }
}

#[async_trait]
impl AuditQueues for RedisStore {
    async fn audit(&self, queue: &QueueName, how: Audit) -> StoreResult<AuditReport> {
        let k = self.keys(queue);
        let mut report = AuditReport::default();
        let (first, wrong) = self.suspects(&k).await?;
        for key in wrong {
            report.add(FindingKind::WrongType, &key, Remedy::None);
        }
        if first.is_empty() {
            return Ok(report);
        }
        let (mut suspects, _) = self.suspects(&k).await?;
        suspects.retain(|id| first.contains(id));
        drop(first);

        let suspects = suspects.into_iter().collect();
        let found = self.findings(&k, suspects).await?;
        let (unsettled, mut found): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(.., kind)| may_settle(*kind));
        let mut others = Others::default();
        let unsettled = self.without_others(queue, unsettled, &mut others).await?;
        if !unsettled.is_empty() {
            tokio::time::sleep(how.settling).await;
            let ids = unsettled.into_iter().map(|(id, ..)| id).collect();
            let still = self.findings(&k, ids).await?;
            // Before and after: what others had then and have settled since was no orphan.
            found.extend(self.without_others(queue, still, &mut others).await?);
        }
        if how.repair {
            found.retain(|(id, _, kind)| {
                let is_unsure = *kind == FindingKind::OrphanPayload && others.is_unsure;
                if is_unsure {
                    add(&mut report, &k, id, *kind, Remedy::None);
                }
                !is_unsure
            });
            self.repair(&k, found, &mut report).await?;
        } else {
            for (id, marks, kind) in found {
                let remedy = match marks.repair() {
                    Repair::Wait => Remedy::InFlight,
                    _ => Remedy::None,
                };
                add(&mut report, &k, &id, kind, remedy);
            }
        }
        Ok(report)
    }

    async fn audit_store(&self, _repair: bool) -> StoreResult<AuditReport> {
        let mut report = AuditReport::default();
        let key = self.naming.queues();
        let kind: String = self
            .one(&self.work, OPERATION, command("TYPE", &key))
            .await?;
        if !matches!(kind.as_str(), "none" | "set") {
            report.add(FindingKind::WrongType, &key, Remedy::None);
        }
        Ok(report)
    }
}

impl RedisStore {
    /// How many ids a script can walk the lists for.
    async fn step(&self, k: &Keys) -> StoreResult<usize> {
        let lengths = [command("LLEN", &k.ready), command("LLEN", &k.retry)];
        // What is no list is not walked through.
        let answers = self.work.run_each(OPERATION, &lengths).await?;
        let entries: usize = answers
            .into_iter()
            .filter_map(|answer| redis::from_redis_value::<usize>(answer.ok()?).ok())
            .sum();
        Ok((WALK_MAX / (entries + 1)).clamp(1, STEP_MAX))
    }

    /// Which of these ids something is wrong with, each looked at in one moment.
    async fn findings(&self, k: &Keys, ids: Vec<Id>) -> StoreResult<Vec<Found>> {
        let mut found = Vec::new();
        let mut left = ids.as_slice();
        while !left.is_empty() {
            let (step, rest) = left.split_at(self.step(k).await?.min(left.len()));
            let mut look = scripts::AUDIT.call(k, &payload_keys(k, step.iter().map(Vec::as_slice)));
            for id in step {
                look.arg(id.as_slice());
            }
            let answers: Vec<u32> = self.one(&self.work, OPERATION, look).await?;
            for (id, marks) in step.iter().zip(answers) {
                if let Some(kind) = Presence(marks).finding() {
                    found.push((id.clone(), Presence(marks), kind));
                }
            }
            left = rest;
        }
        Ok(found)
    }

    /// Repairs what was found, and notes what became of each.
    async fn repair(
        &self,
        k: &Keys,
        found: Vec<Found>,
        report: &mut AuditReport,
    ) -> StoreResult<()> {
        let mut found = found;
        for _ in 0..TRIES {
            if found.is_empty() {
                return Ok(());
            }
            let mut again = Vec::new();
            let mut left = found.as_slice();
            while !left.is_empty() {
                let (step, rest) = left.split_at(self.step(k).await?.min(left.len()));
                again.extend(self.repair_step(k, step, report).await?);
                left = rest;
            }
            found = self.findings(k, again).await?;
            // What has become an orphan only now is one only if it stays one.
            found.retain(|(.., kind)| !may_settle(*kind));
        }
        for (id, _, kind) in found {
            add(report, k, &id, kind, Remedy::None);
        }
        Ok(())
    }

    /// Returns those that were not as they had been found.
    async fn repair_step(
        &self,
        k: &Keys,
        step: &[Found],
        report: &mut AuditReport,
    ) -> StoreResult<Vec<Id>> {
        let mut asked = Vec::new();
        for (id, marks, kind) in step {
            match repair_args(marks.repair(), *kind) {
                Some(args) => asked.push((id, *marks, *kind, args)),
                None => add(report, k, id, *kind, remedy(marks.repair())),
            }
        }
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let ids = asked.iter().map(|(id, ..)| id.as_slice());
        let mut command = scripts::AUDIT_REPAIR.call(k, &payload_keys(k, ids));
        for (id, marks, _, (target, class, reason)) in &asked {
            command.arg(id.as_slice()).arg(marks.0).arg(*target);
            command.arg(*class).arg(*reason);
        }
        let answers: Vec<i64> = self.one(&self.work, OPERATION, command).await?;
        let mut again = Vec::new();
        for ((id, marks, kind, _), answer) in asked.into_iter().zip(answers) {
            match answer {
                1 => add(report, k, id, kind, remedy(marks.repair())),
                0 => again.push(id.clone()),
                _ => add(report, k, id, kind, Remedy::None),
            }
        }
        Ok(again)
    }
}
