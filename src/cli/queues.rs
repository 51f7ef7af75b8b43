//! Which queues a command is about.

use clap::Args;

use super::number;
use crate::control::is_known;
use crate::message::QueueName;
use crate::store::{Store, StoreResult};
use crate::text::printable;

#[derive(Debug, Args)]
pub(super) struct QueuesArgs {
    /// Use this queue only; may be repeated
    ///
    /// Without it every queue that dqhost has used is meant.
    #[arg(long, short, value_name = "NAME")]
    queue: Vec<QueueName>,
    /// Look for queues that only others have used, too
    ///
    /// At most so many keys of Redis are looked at; without a number 1000000.
    #[arg(
        long,
        value_name = "KEYS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1000000",
        conflicts_with = "queue",
        value_parser = number::from::<u64>(1..=u64::MAX)
    )]
    discover: Option<u64>,
}

/// The queues that are meant.
pub(super) struct Chosen {
    pub queues: Vec<QueueName>,
    /// False when `--discover` has not looked at everything.
    pub complete: bool,
    /// What was not looked for, and what would look for it.
    pub note: Option<String>,
}

impl QueuesArgs {
    /// Those that were named; none without names.
    pub(super) fn named(&self) -> &[QueueName] {
        &self.queue
    }

    pub(super) fn is_discovering(&self) -> bool {
        self.discover.is_some()
    }

    /// Those that were named and are not there: a wrong name must not look like a queue without messages.
    pub(super) async fn missing(&self, store: &dyn Store) -> StoreResult<Vec<QueueName>> {
        let mut missing = Vec::new();
        for queue in &self.queue {
            if !is_known(store, queue).await? {
                missing.push(queue.clone());
            }
        }
        Ok(missing)
    }

    pub(super) async fn choose(&self, store: &dyn Store) -> StoreResult<Chosen> {
        let mut chosen = Chosen {
            queues: self.queue.clone(),
            complete: true,
            note: None,
        };
        if let Some(keys_max) = self.discover {
            let found = store.discover(keys_max).await?;
            (chosen.queues, chosen.complete) = (found.queues, found.complete);
            chosen.note = (!chosen.complete).then(|| {
                format!(
                    "{keys_max} keys of {} were looked at, and it has more: there may be more queues; \
                     --discover=KEYS looks at more",
                    printable(&store.describe())
                )
            });
        } else if self.queue.is_empty() {
            chosen.queues = store.queues().await?;
            chosen.note = store.has_other_users().then(|| match chosen.queues.len() {
                0 => NONE.to_owned(),
                _ => ALL.to_owned(),
            });
        }
        Ok(chosen)
    }
}

const NONE: &str = "dqhost has used no queue there; --discover looks for those of others";
const ALL: &str = "this is every queue that dqhost has used; --discover looks for those of others";
