//! Which messages a command is about: those that are named, all, or those that match.

use std::io::{self, IsTerminal, Write};

use clap::Args;

use crate::control::{
    Candidates, Filter, FilterError, Letters, Match, PREFIX_LOOKED_AT_MAX, candidates,
    ended_candidates, matching, prefix_of_id,
};
use crate::message::{MessageId, QueueName, State};
use crate::store::{Store, StoreResult};
use crate::text::grouped;

/// The states of messages that wait, in the order in which a message goes through them: what moves on
/// during a search is not missed.
pub(super) const WAITING: &[State] = &[State::Pending, State::Ready, State::Retry];

/// The same, and those in flight, which are told apart from those that are gone.
pub(super) const WAITING_OR_IN_FLIGHT: &[State] =
    &[State::Pending, State::Ready, State::Retry, State::Unack];

/// The states that have a list.
pub(super) const LISTED: &[State] = &[
    State::Pending,
    State::Ready,
    State::Unack,
    State::Retry,
    State::Dead,
];

/// Messages that are named.
#[derive(Debug, Args)]
pub(super) struct Named {
    /// Ids of the messages
    #[arg(required = true)]
    ids: Vec<String>,
}

impl Named {
    pub(super) fn ids(&self) -> Vec<MessageId> {
        ids_of(&self.ids)
    }
}

fn ids_of(ids: &[String]) -> Vec<MessageId> {
    ids.iter().map(|id| id.as_str().into()).collect()
}

/// A filter that means something: one that is empty would mean all.
pub(super) fn filter(text: &str) -> Result<Filter, String> {
    let filter = Filter::parse(text).map_err(|error: FilterError| error.to_string())?;
    if filter.is_empty() {
        return Err("it is empty: give words to look for, such as reason:timeout".to_owned());
    }
    Ok(filter)
}

/// Which messages that wait.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct WhichWaiting {
    /// Ids of the messages, or their beginnings
    ids: Vec<String>,
    /// Choose the waiting messages that match this filter
    ///
    /// Every word must be found: `word`, `!word`, id:, payload:, reason:, class:, header:.
    #[arg(long = "match", value_name = "FILTER", value_parser = filter)]
    filter: Option<Filter>,
}

impl WhichWaiting {
    pub(super) fn meant(&self) -> Meant {
        match &self.filter {
            Some(filter) => Meant::Matching(filter.clone()),
            None => Meant::Named(ids_of(&self.ids)),
        }
    }
}

/// Which dead letters.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct WhichDead {
    /// Ids of dead letters, or their beginnings; `all` is --all
    ids: Vec<String>,
    /// Choose all dead letters of the queue
    #[arg(long)]
    all: bool,
    /// Choose the dead letters that match this filter
    ///
    /// Every word must be found: `word`, `!word`, id:, payload:, reason:, class:, header:.
    #[arg(long = "match", value_name = "FILTER", value_parser = filter)]
    filter: Option<Filter>,
}

impl WhichDead {
    pub(super) fn meant(&self) -> Meant {
        let all = self.all || matches!(self.ids.as_slice(), [word] if word == "all");
        match &self.filter {
            Some(filter) => Meant::Matching(filter.clone()),
            None if all => Meant::Matching(Filter::default()),
            None => Meant::Named(ids_of(&self.ids)),
        }
    }
}

/// What the arguments mean.
pub(super) enum Meant {
    /// These.
    Named(Vec<MessageId>),
    /// Those that match; all, if the filter is empty.
    Matching(Filter),
}

impl From<Meant> for Letters {
    fn from(meant: Meant) -> Self {
        match meant {
            Meant::Named(ids) => Self::Named(ids),
            Meant::Matching(filter) => Self::Matching(filter),
        }
    }
}

/// What a command works on.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub store: &'a dyn Store,
    pub queue: &'a QueueName,
}

impl Place<'_> {
    /// The messages in these states that match, found at the end of a search that tells how far it is.
    pub(super) async fn matching(
        &self,
        states: &[State],
        (filter, payload_max): (&Filter, usize),
    ) -> StoreResult<Vec<Match>> {
        let mut progress = Progress::new("looked at");
        let told = |looked_at: usize, found: usize| {
            progress.tell(looked_at, &format!("{} match", grouped(found as u64)));
            true
        };
        let which = (filter, payload_max);
        matching(self.store, (self.queue, states), which, told).await
    }

    /// The messages that are meant. Whole ids are not looked for.
    pub(super) async fn ids(
        &self,
        meant: Meant,
        states: &[State],
    ) -> anyhow::Result<Vec<MessageId>> {
        match meant {
            Meant::Named(ids) => self.whole(ids, states).await,
            Meant::Matching(filter) => {
                let found = self.matching(states, (&filter, 0)).await?;
                Ok(found.into_iter().map(|found| found.id).collect())
            }
        }
    }

    /// The messages that are meant, and what is there of each.
    pub(super) async fn found(
        &self,
        meant: Meant,
        states: &[State],
    ) -> anyhow::Result<Vec<(MessageId, Option<Match>)>> {
        let ids = match meant {
            Meant::Named(ids) => self.whole(ids, states).await?,
            Meant::Matching(filter) => {
                // One byte of each payload tells whether it is there.
                let found = self.matching(states, (&filter, 1)).await?.into_iter();
                return Ok(found.map(|found| (found.id.clone(), Some(found))).collect());
            }
        };
        let mut all = Vec::with_capacity(ids.len());
        for id in ids {
            let record = self.store.get(self.queue, &id).await?;
            all.push((id, record.as_ref().map(Match::from)));
        }
        Ok(all)
    }

    /// The ids, where some may be given by their beginnings.
    async fn whole(&self, ids: Vec<MessageId>, states: &[State]) -> anyhow::Result<Vec<MessageId>> {
        let states = if states == WAITING {
            WAITING_OR_IN_FLIGHT
        } else {
            states
        };
        let mut whole = Vec::with_capacity(ids.len());
        for id in ids {
            let is_there = prefix_of_id(id.as_str()).is_none()
                || self.store.get(self.queue, &id).await?.is_some();
            let found = if is_there {
                None
            } else {
                self.begins_with(&id, states).await?
            };
            whole.push(found.unwrap_or(id));
        }
        Ok(whole)
    }

    /// The one message in these states whose id begins so, if there is one. An error if there are several,
    /// or may be.
    pub(super) async fn begins_with(
        &self,
        id: &MessageId,
        states: &[State],
    ) -> anyhow::Result<Option<MessageId>> {
        let Some(prefix) = prefix_of_id(id.as_str()) else {
            return Ok(None);
        };
        let found = candidates(self.store, (self.queue, states), &prefix).await?;
        one_of(id, &found)
    }

    /// The one message whose id begins so among those of which it is kept how they ended. An error if there
    /// are several.
    pub(super) async fn ended_begins_with(
        &self,
        id: &MessageId,
    ) -> anyhow::Result<Option<MessageId>> {
        let Some(prefix) = prefix_of_id(id.as_str()) else {
            return Ok(None);
        };
        one_of(
            id,
            &ended_candidates(self.store, self.queue, &prefix).await?,
        )
    }
}

/// The one candidate for the beginning of an id, if there is one. An error if there are several, or may be.
fn one_of(id: &MessageId, found: &Candidates) -> anyhow::Result<Option<MessageId>> {
    let ids: Vec<&str> = found.ids.iter().map(MessageId::as_str).collect();
    let more = if found.is_more { ", ..." } else { "" };
    let looked_at = grouped(PREFIX_LOOKED_AT_MAX as u64);
    match (&ids[..], found.is_partial) {
        ([], false) => Ok(None),
        ([id], false) => Ok(Some((*id).into())),
        ([], true) => anyhow::bail!(
            "no id begins with {id} among the {looked_at} messages that were looked at; there \
                 are more, so give the whole id"
        ),
        ([one], true) => anyhow::bail!(
            "{id} is the beginning of {one}, and only {looked_at} messages were looked at; if \
                 that is the one, give the whole id"
        ),
        (several, _) => anyhow::bail!(
            "{id} is the beginning of several ids: give more of it. They are {}{more}",
            several.join(", ")
        ),
    }
}

/// A line on a terminal that says how far a command is, and goes when it ends.
pub(super) struct Progress {
    what: &'static str,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str) -> Self {
        Self {
            what,
            is_shown: io::stderr().is_terminal(),
        }
    }

    /// So many are done. Whoever reads may have gone.
    pub(super) fn tell(&mut self, done: usize, more: &str) {
        if self.is_shown {
            let done = grouped(done as u64);
            let _ = write!(io::stderr(), "\r{done} {}, {more}\x1b[K", self.what);
        }
    }
}

impl Progress {
    /// Takes the line away, for what is printed next.
    pub(super) fn clear(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
