//! Ticks of schedules, and what a store keeps of schedules.

use crate::message::NewMessage;

/// The message of a tick: a host makes it, and the store decides whether it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tick {
    /// The name of its schedule.
    pub schedule: String,
    /// Its id is that of the tick, and its window outlasts the time in which hosts look back.
    pub message: NewMessage,
    /// False if it is skipped while the message of the tick before has not ended.
    pub may_overlap: bool,
}

/// What became of a tick: the store says it, and the host that asked reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickSent {
    /// It is sent.
    Sent,
    /// It was sent or skipped before.
    Known,
    /// Its schedule is paused; nothing is kept of the tick.
    Paused,
    /// The message of the tick before has not ended, so it is not sent, now or later.
    Skipped,
}

/// What a store keeps of a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleState {
    /// Its name.
    pub name: String,
    /// Unix milliseconds since which it is paused, if it is.
    pub paused_since_ms: Option<u64>,
    /// Unix milliseconds at which the last pause ended, or at which a host first saw it. Ticks before were
    /// missed.
    pub resumed_at_ms: Option<u64>,
    /// Ticks that were skipped because the message of the tick before had not ended.
    pub skipped: u64,
}
