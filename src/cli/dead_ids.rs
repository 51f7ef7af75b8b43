//! Which dead letters a command means.

use clap::Args;

use crate::control::{Filter, dead_ids};
use crate::message::{MessageId, QueueName};
use crate::store::Store;

/// Which dead letters.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Which {
    /// Ids of dead letters; the word `all` stands for --all
    ids: Vec<String>,
    /// Choose all dead letters of the queue
    #[arg(long)]
    all: bool,
}

impl Which {
    /// The ids that were given; none for all.
    pub(super) fn ids(&self) -> Option<Vec<MessageId>> {
        let all = self.all || matches!(self.ids.as_slice(), [word] if word == "all");
        (!all).then(|| self.ids.iter().map(|id| id.as_str().into()).collect())
    }
}

/// The ids that are meant; with `--all` those that are dead now.
pub(super) async fn chosen(
    which: &Which,
    store: &dyn Store,
    queue: &QueueName,
) -> anyhow::Result<Vec<MessageId>> {
    if let Some(ids) = which.ids() {
        return Ok(ids);
    }
    Ok(dead_ids(store, queue, &Filter::default(), || true).await?)
}
