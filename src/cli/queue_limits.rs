//! The flags that limit queues over all their hosts.

use std::num::NonZeroU32;

use clap::Args;

use super::{Usage, number};
use crate::store::{FairWeights, KEY_RUNNING_MAX, LimitBy, LimitError, Limits, Rate};

#[derive(Debug, Clone, Args)]
pub(super) struct QueueLimitsArgs {
    /// Begin so many messages of each queue in a time: 100/s
    ///
    /// A number and s, m, h or d. All hosts of a queue share the rate, so give it to each of them. A
    /// message over a limit waits at no cost of attempts.
    #[arg(
        long,
        value_name = "N/UNIT",
        env = "DQHOST_RATE",
        allow_hyphen_values = true
    )]
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
    /// Give a value of --fair-by so many turns; may be repeated
    ///
    /// As in big=3: it has three turns while each other has one. Up to 100.
    #[arg(long, value_name = "NAME=N", value_parser = weight, env = "DQHOST_FAIR_WEIGHT",
        value_delimiter = ',', hide_short_help = true)]
    fair_weight: Vec<(String, u32)>,
}

/// `NAME=N`.
fn weight(text: &str) -> Result<(String, u32), String> {
    let (name, weight) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("give it as NAME=N, with a value of the header of --fair-by as NAME")?;
    let number = weight
        .parse()
        .ok()
        .filter(|number| (1..=FairWeights::MAX).contains(number));
    let number = number.ok_or_else(|| LimitError::Weight.to_string())?;
    Ok((name.to_owned(), number))
}

impl QueueLimitsArgs {
    pub(super) fn limits(&self) -> Result<Limits, Usage> {
        let rate = match (self.rate, self.burst) {
            // The parser has checked the burst.
            (Some(rate), Some(burst)) => rate.with_burst(burst).ok(),
            (rate, _) => rate,
        };
        let weights = FairWeights::new(self.fair_weight.iter().cloned());
        let weights = weights.map_err(|error| Usage(format!("--fair-weight: {error}")))?;
        if weights != FairWeights::EQUAL && self.fair_by.is_none() {
            return Err(Usage("--fair-weight needs --fair-by".to_owned()));
        }
        let limits = Limits {
            rate,
            max_running: self.max_running.and_then(NonZeroU32::new),
            by: self.limit_by.clone(),
            fair_by: self.fair_by.clone(),
            fair_weights: weights,
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
