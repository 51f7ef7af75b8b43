//! What the screen wants to see of a store, and what was there to see.

use std::sync::Arc;
use std::time::Duration;

use super::{DueAhead, Ended, Filter, Group, History};
use crate::message::{MessageId, QueueName, Record, State};

/// What the screen wants to see beside the overview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// Nothing.
    Nothing,
    /// A page of one state.
    Messages {
        /// The queue.
        queue: QueueName,
        /// The state.
        state: State,
        /// Matching messages to pass over, and how many to show.
        offset: usize,
        /// See above.
        limit: usize,
        /// Which.
        filter: Filter,
    },
    /// Dead letters by reason.
    Groups {
        /// The queue.
        queue: QueueName,
        /// Which.
        filter: Filter,
    },
    /// One message.
    Message {
        /// The queue.
        queue: QueueName,
        /// The message.
        id: MessageId,
    },
    /// How the latest messages ended.
    Ended {
        /// The queue.
        queue: QueueName,
        /// Which.
        filter: Filter,
    },
    /// When pending messages fall due.
    Due {
        /// The queue.
        queue: QueueName,
        /// The length of a span, and how many.
        span: Duration,
        /// See above.
        spans: usize,
    },
}

/// What was there to see.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryResult {
    /// Nothing was asked for, or not found yet.
    Nothing,
    /// An answer to [`Query::Messages`].
    Messages {
        /// What was asked.
        query: Query,
        /// The page.
        records: Arc<Vec<Record>>,
        /// True when there are more behind it, or may be.
        more: bool,
        /// How far a search for them is.
        searched: Searched,
    },
    /// An answer to [`Query::Groups`].
    Groups {
        /// What was asked.
        query: Query,
        /// The most frequent first.
        groups: Arc<Vec<Group>>,
        /// How far the search for them is.
        searched: Searched,
    },
    /// An answer to [`Query::Message`]; without a record when no such message is there any more.
    Message {
        /// What was asked.
        query: Query,
        /// All that is known of it.
        record: Option<Arc<Record>>,
        /// How it ended, if it has and that is kept.
        ended: Option<Arc<Ended>>,
    },
    /// An answer to [`Query::Ended`].
    Ended {
        /// What was asked.
        query: Query,
        /// How they ended; or why this user of the store is not told.
        history: Result<Arc<History>, String>,
    },
    /// An answer to [`Query::Due`].
    Due {
        /// What was asked.
        query: Query,
        /// When they fall due; or why this user of the store is not told.
        ahead: Result<Arc<DueAhead>, String>,
    },
}

/// How far a search is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Searched {
    /// At the end, or nothing had to be searched.
    All,
    /// The page is full, after so many messages.
    Enough(usize),
    /// So many were looked at, and it goes on.
    SoFar(usize),
}

impl QueryResult {
    pub(super) fn is_under_way(&self) -> bool {
        let (Self::Messages { searched, .. } | Self::Groups { searched, .. }) = self else {
            return false;
        };
        matches!(searched, Searched::SoFar(_))
    }

    /// What it answers.
    #[must_use]
    pub fn query(&self) -> &Query {
        match self {
            Self::Nothing => &Query::Nothing,
            Self::Messages { query, .. }
            | Self::Groups { query, .. }
            | Self::Message { query, .. }
            | Self::Ended { query, .. }
            | Self::Due { query, .. } => query,
        }
    }
}
