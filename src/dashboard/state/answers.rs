//! What the store has answered, if it is about what the screen wants to see now.

use super::State;
use crate::control::{Group, History, QueryResult, Searched};
use crate::message::Record;

impl State {
    /// The page of messages, if it is there and the one that is wanted.
    #[must_use]
    pub fn records(&self) -> Option<(&[Record], bool, Searched)> {
        match &self.snapshot.result {
            QueryResult::Messages {
                query,
                records,
                more,
                searched,
            } if *query == self.query => Some((records, *more, *searched)),
            _ => None,
        }
    }

    /// The dead letters by reason, if they are there.
    #[must_use]
    pub fn groups(&self) -> Option<(&[Group], Searched)> {
        match &self.snapshot.result {
            QueryResult::Groups {
                query,
                groups,
                searched,
            } if *query == self.query => Some((groups, *searched)),
            _ => None,
        }
    }

    /// What happened lately, if it is there; or why this user is not told.
    #[must_use]
    pub fn history(&self) -> Option<Result<&History, &str>> {
        match &self.snapshot.result {
            QueryResult::Ended { query, history } if *query == self.query => {
                Some(history.as_deref().map_err(String::as_str))
            }
            _ => None,
        }
    }

    /// The selected message of a list.
    #[must_use]
    pub fn selected_record(&self) -> Option<&Record> {
        self.records()?.0.get(self.selected)
    }
}
