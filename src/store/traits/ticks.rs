//! What hosts send by schedules, and what operators say of these.

use async_trait::async_trait;

use crate::message::QueueName;
use crate::store::{ScheduleState, StoreResult, Tick, TickSent};

/// What sends the messages of schedules. Every host sends every tick, and the store decides.
#[async_trait]
pub trait SendTicks: Send + Sync + 'static {
    /// Sends messages of ticks, each in a step of its own, in this order. One answer for each.
    ///
    /// Of a tick that is sent or skipped, the id counts as sent for its window, so every repeat answers
    /// [`TickSent::Known`]. The message of the tick before counts as ended when it is acked, cancelled or on
    /// its way to the dead letters.
    async fn send_ticks(&self, queue: &QueueName, ticks: &[Tick]) -> StoreResult<Vec<TickSent>>;

    /// Sends nothing of a schedule any more, on every host, or again. What is said last holds, also after a
    /// restart. A repeat changes nothing. To go on with one of which nothing is kept is to begin it: its ticks
    /// before were missed. The queue is made when it is not there yet.
    async fn set_schedule_paused(
        &self,
        queue: &QueueName,
        schedule: &str,
        paused: bool,
    ) -> StoreResult<()>;

    /// What is kept of the schedules of a queue, by name. Of most there is nothing.
    async fn schedules(&self, queue: &QueueName) -> StoreResult<Vec<ScheduleState>>;
}
