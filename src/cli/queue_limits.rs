//! The flags that limit queues over all their hosts.

use std::num::NonZeroU32;

use clap::Args;

use super::{Usage, number};
use crate::store::{KEY_RUNNING_MAX, LimitBy, Limits, Rate};

#[derive(Debug, Clone, Args)]
pub(super) struct QueueLimitsArgs {
    /// Begin so many messages of each queue in a time: 100/s
    ///
    /// A number and s, m, h or d. All hosts of a queue share the rate, so give it to each of them. A
    /// message over a limit waits at no cost of attempts.
    #[arg(long, value_name = "N/UNIT", env = "DQHOST_RATE")]
    rate: Option<Rate>,
    /// Begin so many messages at once after a quiet time
    ///
    /// The default is what --rate allows in 100 ms, at least 1.
    #[arg(long, value_name = "N", env = "DQHOST_BURST", requires = "rate",
        value_parser = number::from::<u32>(1..=100_000))]
    burst: Option<u32>,
    /// Run at most so many messages of each queue, on all hosts
    ///
    /// Give it to each host of the queue.
    #[arg(long, value_name = "N", env = "DQHOST_MAX_RUNNING",
        value_parser = number::from::<u32>(1..=u32::MAX.into()))]
    max_running: Option<u32>,
    /// Limit each value of a header, not the whole queue
    ///
    /// For --rate and --max-running, as in header:customer. With --max-running 1, messages of one value
    /// are handled in order, retries included. Messages without the header share one limit.
    #[arg(long, value_name = "header:NAME", env = "DQHOST_LIMIT_BY")]
    limit_by: Option<LimitBy>,
    /// Let the values of a header take turns: header:tenant
    ///
    /// So that a tenant with many messages keeps no other waiting. Messages without the header belong to one
    /// tenant. Give it to each host of the queue.
    #[arg(long, value_name = "header:NAME", env = "DQHOST_FAIR_BY")]
    fair_by: Option<LimitBy>,
}

impl QueueLimitsArgs {
    pub(super) fn limits(&self) -> Result<Limits, Usage> {
        let rate = match (self.rate, self.burst) {
            // The parser has checked the burst.
            (Some(rate), Some(burst)) => rate.with_burst(burst).ok(),
            (rate, _) => rate,
        };
        let limits = Limits {
            rate,
            max_running: self.max_running.and_then(NonZeroU32::new),
            by: self.limit_by.clone(),
            fair_by: self.fair_by.clone(),
        };
        if limits.by.is_some() && limits.fair_by.is_some() {
            let reason = "--fair-by and --limit-by do not go together: --limit-by already keeps no tenant \
                waiting for another. Remove one of them; --rate and --max-running for the whole queue go \
                with --fair-by";
            return Err(Usage(reason.to_owned()));
        }
        if limits.by.is_some() && self.rate.is_none() && self.max_running.is_none() {
            let reason = "--limit-by needs --rate or --max-running";
            return Err(Usage(reason.to_owned()));
        }
        if limits.by.is_some() && self.max_running.is_some_and(|max| max > KEY_RUNNING_MAX) {
            let reason = format!("--max-running with --limit-by is at most {KEY_RUNNING_MAX}");
            return Err(Usage(reason));
        }
        Ok(limits)
    }
}
