//! A page of the messages in one state.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::{OfQueue, ToView};
use super::problem::Problem;
use super::queues::{check_known, wrong_query};
use super::schemas::AnyProblem;
use super::{Answer, Shared, answer, schemas};
use crate::control::Filter;
use crate::format;
use crate::message::{QueueName, Record, State as MessageState};
use crate::store::Page;

/// Messages of a page, unless the client wants fewer or more.
const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 1000;

/// Messages that one look at the store brings with their whole payloads.
const STEP: usize = 50;

/// Messages that a filter looks at for one page.
const FILTERED_MAX: usize = 2000;

/// A page ends with the message with which its payloads have so many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Pages that are read at a time, since each is in memory.
pub(super) const PAGES_AT_A_TIME: usize = 8;

/// States that can be listed.
pub(super) const STATES: [&str; 5] = ["pending", "ready", "unack", "retry", "dead"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    state: MessageState,
    limit: Option<usize>,
    cursor: Option<String>,
    filter: Option<String>,
}

/// Which part of a list is wanted.
struct Wanted {
    state: MessageState,
    /// Messages to pass over, and how many to show at most.
    from: usize,
    limit: usize,
    filter: Filter,
}

impl ListQuery {
    fn wanted(self) -> Result<Wanted, Problem> {
        if matches!(self.state, MessageState::Garbage | MessageState::Moving) {
            return Err(Problem::bad_request(
                "state must be pending, ready, unack, retry or dead",
            ));
        }
        let limit = self.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::bad_request(format!(
                "limit must be a whole number from 1 to {LIMIT_MAX}"
            )));
        }
        let from = self.cursor.map_or(Ok(0), |cursor| cursor.parse());
        let from = from.map_err(|_| {
            Problem::bad_request("the cursor is not one that the last page gave as next")
        })?;
        let filter = Filter::parse(&self.filter.unwrap_or_default());
        Ok(Wanted {
            state: self.state,
            from,
            limit,
            filter: filter.map_err(|error| Problem::bad_request(error.to_string()))?,
        })
    }
}

/// List the messages in one state
#[utoipa::path(
    get,
    path = "/queues/{queue}/messages",
    tag = "messages",
    params(("queue" = String, Path, description = "Name of the queue"), ("state" = String, Query, description = "pending, ready, unack, retry or dead"), ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "Messages at most; 50 if it is missing"), ("cursor" = Option<String>, Query, description = "The `next` of the last page"), ("filter" = Option<String>, Query, description = "Words that must be found, such as reason:timeout")),
    responses((status = 200, description = "A page", body = schemas::Page), AnyProblem)
)]
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    of: OfQueue<ToView>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Answer {
    let Query(query) = query.map_err(wrong_query)?;
    let wanted = query.wanted()?;
    // Never closed.
    let _turn = shared.pages.acquire().await;
    let (records, next) = page(&shared, &of.queue, &wanted).await?;
    if records.is_empty() {
        check_known(&shared, &of.queue).await?;
    }
    let messages: Vec<Value> = records.iter().map(format::json::record).collect();
    let value = json!({
        "messages": messages,
        "next": next.map(|next| next.to_string()),
    });
    Ok(answer::json(StatusCode::OK, &value))
}

/// The messages of a page, and where the next one begins, if there may be one.
async fn page(
    shared: &Shared,
    queue: &QueueName,
    wanted: &Wanted,
) -> Result<(Vec<Record>, Option<usize>), Problem> {
    let (mut found, mut bytes, mut at) = (Vec::new(), 0, wanted.from);
    loop {
        let step = if wanted.filter.is_empty() {
            STEP.min(wanted.limit - found.len())
        } else {
            STEP
        };
        let page = Page {
            offset: at,
            limit: step,
            payload_max: usize::MAX >> 1,
        };
        let records = shared.asked(shared.store.list(queue, wanted.state, page).await)?;
        let is_last = records.len() < step;
        for record in records {
            at += 1;
            if !wanted.filter.matches(&record) {
                continue;
            }
            bytes += record.payload.as_ref().map_or(0, Vec::len);
            found.push(record);
            if found.len() == wanted.limit || bytes >= PAGE_BYTES {
                return Ok((found, Some(at)));
            }
        }
        if is_last {
            return Ok((found, None));
        }
        if at - wanted.from >= FILTERED_MAX {
            return Ok((found, Some(at)));
        }
    }
}
