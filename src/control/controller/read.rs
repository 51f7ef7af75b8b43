//! Reads the store again and again: the queues, and what the screen looks at.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Controller, Shared, lock};
use crate::control::{
    Query, QueryResult, QueueView, READ_EVERY, Searched, history, how_ended, scan,
};
use crate::message::QueueName;
use crate::store::{HOST_SILENCE, Store, StoreError, StoreResult};

/// Queues that are read each time at most, in turn.
const QUEUES_AT_A_TIME: usize = 2;

/// How often the lists of hosts and of queues are read.
const HOSTS_EVERY: Duration = Duration::from_secs(5);

/// How often what the screen looks at is read again while its queue changes, and while it does not.
/// Looking through many costs more.
const SEEN_EVERY: Duration = Duration::from_secs(2);
const MANY_SEEN_EVERY: Duration = Duration::from_secs(8);
const SEEN_AT_REST_EVERY: Duration = Duration::from_secs(10);

/// How often due times are counted at most.
const DUE_EVERY: Duration = Duration::from_secs(3);
const DUE_AT_LEAST_EVERY: Duration = Duration::from_mins(1);

/// The pause between two parts of a search, so that it leaves the store to others: as long as the last one
/// took, between these.
const SEARCH_PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

/// The queues as they stand: of those that are known already, the ones whose turn it is are read
/// again. Without `with_hosts` the hosts are those of `before`. What one queue alone is refused for
/// comes beside them, and the queue as it was known before, if it was.
pub(super) async fn queue_views(
    controller: &Controller,
    before: &[QueueView],
    with_hosts: bool,
    turn: usize,
) -> StoreResult<(Vec<QueueView>, Option<String>)> {
    let names = match &controller.host {
        // They may change.
        Some((host, _)) => host.queues(),
        None => controller.queues.clone(),
    };
    let names = match names.as_slice() {
        [] if with_hosts => controller.store.queues().await?,
        [] => before.iter().map(|queue| queue.name.clone()).collect(),
        _ => names,
    };
    let turns = names.len().div_ceil(QUEUES_AT_A_TIME).max(1);
    let mut views = Vec::with_capacity(names.len());
    let mut refused = None;
    for (at, name) in names.into_iter().enumerate() {
        let known = before.iter().find(|queue| queue.name == name);
        if let Some(known) = known.filter(|_| at % turns != turn % turns) {
            views.push(known.clone());
            continue;
        }
        let known_hosts = known.filter(|_| !with_hosts && turns == 1);
        match queue_view(controller, name.clone(), known_hosts).await {
            Ok(view) => views.push(view),
            Err(error @ StoreError::Refused { .. }) => {
                refused = Some(format!("queue {name}: {error}"));
                views.extend(known.cloned());
            }
            Err(error) => return Err(error),
        }
    }
    Ok((views, refused))
}

/// One queue as it stands, with the hosts that are known or those that the store tells of.
async fn queue_view(
    controller: &Controller,
    name: QueueName,
    known_hosts: Option<&QueueView>,
) -> StoreResult<QueueView> {
    let hosts = match known_hosts {
        Some(known) => known.hosts.clone(),
        None => controller.store.hosts(&name, HOST_SILENCE).await?,
    };
    Ok(QueueView {
        overview: controller.store.overview(&name).await?,
        read_at: Instant::now(),
        name,
        hosts,
        report: None,
    })
}

/// Reads the store again and again, at least as often as it is due.
pub(super) async fn read(shared: Arc<Shared>) {
    let mut hosts_at: Option<Instant> = None;
    let (mut search, mut took) = (None, Duration::ZERO);
    for turn in 0_usize.. {
        let with_hosts = hosts_at.is_none_or(|at| at.elapsed() >= HOSTS_EVERY);
        let before = lock(&shared.part).queues.clone();
        let result = queue_views(&shared.controller, &before, with_hosts, turn).await;
        match result {
            Ok((queues, refused)) => {
                // A host that has just begun is there a moment later.
                if with_hosts && queues.iter().any(|queue| !queue.hosts.is_empty()) {
                    hosts_at = Some(Instant::now());
                }
                let changed = before.len() != queues.len()
                    || before
                        .iter()
                        .zip(&queues)
                        .any(|(a, b)| a.overview.counts != b.overview.counts);
                {
                    let mut part = lock(&shared.part);
                    part.queues = queues;
                    part.read_at = Some(Instant::now());
                    part.outage = refused;
                    part.has_changed |= changed;
                }
                note_result(&shared, read_result(&shared, &mut search).await);
            }
            Err(error) => lock(&shared.part).outage = Some(error.to_string()),
        }
        shared.changed.notify_one();
        let next = Instant::now() + READ_EVERY;
        loop {
            let is_searching = lock(&shared.part).is_searching;
            let pause = if is_searching {
                took.clamp(SEARCH_PAUSE[0], SEARCH_PAUSE[1])
            } else {
                next.saturating_duration_since(Instant::now())
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shared.read.notified() => break,
            }
            if Instant::now() >= next {
                break;
            }
            let begin = Instant::now();
            note_result(&shared, read_result(&shared, &mut search).await);
            took = begin.elapsed();
            shared.changed.notify_one();
        }
    }
}

fn note_result(shared: &Shared, result: StoreResult<()>) {
    if let Err(error) = result {
        let mut part = lock(&shared.part);
        part.outage = Some(error.to_string());
        part.has_changed = true;
        part.is_searching = false;
    }
}

/// Reads what the screen looks at, if it is due, or goes on with the search for it.
async fn read_result(shared: &Shared, search: &mut Option<scan::Search>) -> StoreResult<()> {
    let query = lock(&shared.query).clone();
    let (is_other, age, changed, is_searching) = {
        let part = lock(&shared.part);
        (
            part.result.query() != &query,
            part.seen_at.map(|at| at.elapsed()),
            part.has_changed,
            part.is_searching,
        )
    };
    let known = search.take().filter(|search| search.is_for(&query));
    let rest = known.as_ref().map_or(Duration::ZERO, scan::Search::rest);
    let every = match &query {
        // It costs little, and is what an operator waits for.
        Query::Message { .. } if changed => Duration::ZERO,
        // Nobody sees a smaller part of a bar.
        Query::Due { span, .. } => (*span / 10).clamp(DUE_EVERY, DUE_AT_LEAST_EVERY),
        // Hosts tell it a moment after the queue has changed.
        Query::Ended { .. } => SEEN_EVERY,
        Query::Groups { .. } if changed => MANY_SEEN_EVERY.max(rest),
        Query::Messages { filter, .. } if changed && !filter.is_empty() => {
            MANY_SEEN_EVERY.max(rest)
        }
        _ if changed => SEEN_EVERY,
        _ => SEEN_AT_REST_EVERY.max(rest),
    };
    let is_due = age.is_none_or(|age| age >= every);
    if !is_other && !is_searching && !is_due {
        *search = known;
        return Ok(());
    }
    let store = &*shared.controller.store;
    // Another page of the same search goes on with it.
    let goes_on = known.filter(|known| is_searching || (is_other && !known.has_enough(&query)));
    let (seen, is_searching) = match goes_on.or_else(|| scan::Search::of(&query)) {
        Some(mut next) => {
            next.go_on(store, &query).await?;
            let seen = next.result(&query);
            let is_searching = !next.has_enough(&query);
            *search = Some(next);
            (seen, is_searching)
        }
        None => (answer(store, query).await?, false),
    };
    let mut part = lock(&shared.part);
    part.has_changed = false;
    part.is_searching = is_searching;
    // A search that is made anew shows what the last one has found until it is at its end.
    if is_other || !is_searching || part.result.is_under_way() {
        part.result = seen;
    }
    part.seen_at = Some(Instant::now());
    Ok(())
}

/// Reads what a screen wants to see.
pub(super) async fn answer(store: &dyn Store, query: Query) -> StoreResult<QueryResult> {
    Ok(match &query {
        // Groups are searched for.
        Query::Nothing | Query::Groups { .. } => QueryResult::Nothing,
        Query::Messages {
            queue,
            state,
            offset,
            limit,
            ..
        } => {
            let (records, more) = scan::page(store, queue, *state, (*offset, *limit)).await?;
            QueryResult::Messages {
                records: Arc::new(records),
                more,
                searched: Searched::All,
                query,
            }
        }
        Query::Message { queue, id } => {
            let record = store.get(queue, id).await?.map(Arc::new);
            let ended = match &record {
                Some(_) => None,
                None => how_ended(store, queue, id).await?.map(Arc::new),
            };
            QueryResult::Message {
                record,
                ended,
                query,
            }
        }
        Query::Ended { queue, filter } => {
            let history = match history::read(store, queue, filter).await {
                Err(error @ StoreError::Refused { .. }) => Err(error.to_string()),
                history => Ok(Arc::new(history?)),
            };
            QueryResult::Ended { history, query }
        }
        Query::Due { queue, span, spans } => {
            let ahead = match store.due_ahead(queue, *span, *spans).await {
                // A user of Redis with older rights sees all the rest.
                Err(error @ StoreError::Refused { .. }) => Err(error.to_string()),
                ahead => Ok(Arc::new(ahead?)),
            };
            QueryResult::Due { ahead, query }
        }
    })
}
