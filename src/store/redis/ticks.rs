//! Sends the messages of schedules.

use async_trait::async_trait;
use redis::{Cmd, Value};

use super::args::add_message;
use super::decode::{decode, text, unexpected};
use super::inspect::command;
use super::keys::Keys;
use super::send::{LOOK_FIRST, locate};
use super::{RedisStore, scripts};
use crate::message::{QueueName, Sent};
use crate::store::{Operation, ScheduleState, SendTicks, StoreResult, Tick, TickSent};

/// Ticks that go in one request, so that it ends well within a request's time limit.
const TICKS_MAX: usize = 100;

const PAUSED: i64 = -2;
const SKIPPED: i64 = -3;

fn tick(k: &Keys, tick: &Tick, place: &str) -> Cmd {
    let payload = k.message(&tick.message.id);
    let mut command = scripts::TICK.call(k, &[&payload]);
    command.arg(&k.wake);
    add_message(&mut command, &tick.message, place);
    command.arg(&tick.schedule).arg(u8::from(!tick.may_overlap));
    command
}

/// From `paused:resumed:skipped:id`; none for what is anything else.
fn state(name: String, kept: &str) -> Option<ScheduleState> {
    let mut parts = kept.splitn(4, ':').map(str::parse::<u64>);
    let mut number = || parts.next()?.ok();
    let (paused, resumed, skipped) = (number()?, number()?, number()?);
    Some(ScheduleState {
        name,
        paused_since_ms: Some(paused).filter(|at_ms| *at_ms != 0),
        resumed_at_ms: Some(resumed).filter(|at_ms| *at_ms != 0),
        skipped,
    })
}

#[async_trait]
impl SendTicks for RedisStore {
    async fn send_ticks(&self, queue: &QueueName, ticks: &[Tick]) -> StoreResult<Vec<TickSent>> {
        self.register(queue).await?;
        let k = self.keys(queue);
        let mut answers = Vec::with_capacity(ticks.len());
        for step in ticks.chunks(TICKS_MAX) {
            let mut codes = self.tick_step(&k, step).await?;
            for (tick, code) in step.iter().zip(&mut codes) {
                if *code == LOOK_FIRST {
                    *code = self.tick_found(&k, tick).await?;
                }
            }
            let messages: Vec<_> = step.iter().map(|tick| tick.message.clone()).collect();
            let due = |code: &i64| u64::try_from(*code).ok().filter(|due| *due != 0);
            let sent: Vec<Sent> = messages
                .iter()
                .zip(&codes)
                .map(|(message, code)| Sent::new(message.id.clone(), due(code)))
                .collect();
            self.events.sent(queue, &messages, &sent);
            answers.extend(codes.iter().map(|code| match *code {
                PAUSED => TickSent::Paused,
                SKIPPED => TickSent::Skipped,
                code if due(&code).is_some() => TickSent::Sent,
                _ => TickSent::Known,
            }));
        }
        Ok(answers)
    }

    async fn set_schedule_paused(
        &self,
        queue: &QueueName,
        schedule: &str,
        paused: bool,
    ) -> StoreResult<()> {
        self.register(queue).await?;
        let k = self.keys(queue);
        let mut command = scripts::PAUSE_SCHEDULE.call(&k, scripts::NO_MORE);
        command.arg(schedule).arg(u8::from(paused));
        self.one::<i64>(&self.work, Operation::Pause, command)
            .await?;
        Ok(())
    }

    async fn schedules(&self, queue: &QueueName) -> StoreResult<Vec<ScheduleState>> {
        let k = self.keys(queue);
        let read = command("HGETALL", &k.schedules);
        let kept: Vec<(Value, Value)> = self.one(&self.work, Operation::List, read).await?;
        let kept = kept.into_iter();
        let states = kept.filter_map(|(name, kept)| state(text(name), &text(kept)));
        let mut states: Vec<_> = states.collect();
        states.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(states)
    }
}

impl RedisStore {
    /// What the script says of each. They go in one request, and run in this order.
    async fn tick_step(&self, k: &Keys, ticks: &[Tick]) -> StoreResult<Vec<i64>> {
        const OPERATION: Operation = Operation::Send;
        let commands: Vec<Cmd> = ticks.iter().map(|one| tick(k, one, "")).collect();
        let answers = self.work.run(OPERATION, &commands).await?;
        if answers.len() != ticks.len() {
            return Err(unexpected(&self.name, OPERATION));
        }
        let answers = answers.into_iter();
        answers
            .map(|answer| decode(&self.name, OPERATION, answer))
            .collect()
    }

    /// Sends one whose payload is gone, once it is known where its id is.
    async fn tick_found(&self, k: &Keys, of: &Tick) -> StoreResult<i64> {
        const OPERATION: Operation = Operation::Send;
        let place = self.one(&self.work, OPERATION, locate(k, &of.message.id));
        let place = text(place.await?);
        self.one(&self.work, OPERATION, tick(k, of, &place)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_of_a_schedule_is_nothing() {
        let of = |kept: &str| state("s".to_owned(), kept);
        for kept in ["", "x", "1:2", "1:2:x:y", ":::", "-1:0:0:", "1e3:0:0:"] {
            assert_eq!(of(kept), None, "{kept}");
        }
        let paused = of("7:0:0:").unwrap();
        assert_eq!(
            (paused.paused_since_ms, paused.resumed_at_ms),
            (Some(7), None)
        );
        let resumed = of("0:9:3:019a:b").unwrap();
        assert_eq!(
            (resumed.paused_since_ms, resumed.resumed_at_ms),
            (None, Some(9))
        );
        assert_eq!(resumed.skipped, 3);
    }
}
