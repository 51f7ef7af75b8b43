//! What may differ between the queues of one host.

use std::time::Duration;

use crate::message::NewMessage;
use crate::schedule::Schedule;
use crate::store::{Limits, Retention};
use crate::verdict::Backoff;

/// How a host handles the messages of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// How long a delivery is this host's, unless renewed.
    pub lease: Duration,
    /// What follows a failed attempt that names no delay.
    pub backoff: Backoff,
    /// A message is dead when its next retry would begin later than this after its first attempt began,
    /// whatever retries it has left; none for no such time.
    pub give_up_after: Option<Duration>,
    /// The retries of messages whose producers recorded none.
    pub retries_default: u32,
    /// Which dead letters are kept.
    pub retention: Retention,
    /// How often a message may be redriven by operators who do not say otherwise; none for any number.
    pub max_redrives: Option<u32>,
    /// Of how many messages of the queue the store keeps how they ended, the latest; none with zero.
    pub keep_ended: usize,
    /// Of how many bytes the store keeps what handlers returned, the latest of the queue; none with zero.
    pub keep_results: usize,
    /// The most slots of the host that the queue may use, at least 1; none for all.
    pub slots: Option<usize>,
    /// The queue's share of the slots while others want some too: twice the weight, twice the slots. At
    /// least 1.
    pub weight: u32,
    /// What is sent to the queue at regular times.
    pub schedules: Vec<Schedule>,
    /// What holds for the queue over all hosts.
    pub limits: Limits,
}

impl QueueSettings {
    /// How many messages [`keep_ended`](Self::keep_ended) means unless it is set.
    pub const KEEP_ENDED_DEFAULT: usize = 1000;

    /// How many bytes [`keep_results`](Self::keep_results) means unless it is set.
    pub const KEEP_RESULTS_DEFAULT: usize = 1024 * 1024;
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            backoff: Backoff::default(),
            give_up_after: None,
            retries_default: NewMessage::RETRIES_DEFAULT,
            retention: Retention::ALL,
            max_redrives: None,
            keep_ended: Self::KEEP_ENDED_DEFAULT,
            keep_results: Self::KEEP_RESULTS_DEFAULT,
            slots: None,
            weight: 1,
            schedules: Vec::new(),
            limits: Limits::NONE,
        }
    }
}
