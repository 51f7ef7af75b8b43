//! `/metrics`: numbers for Prometheus, as OpenMetrics text.
//!
//! Labels are queues, states, classes and kinds of requests, never ids. Of more than 1,000 queues the
//! first 1,000 by name are told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use futures_util::{StreamExt, stream};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::access::{Allowed, ToView};
use super::problem::Problem;
use super::schemas::AnyProblem;
use super::{Answer, Shared, answer};
use crate::host::{Monitor, QueueMetrics, Summary};
use crate::message::{QueueName, State as MessageState};
use crate::metrics::Distribution;
use crate::store::{HOST_SILENCE, Overview, RequestCount, StoreResult, requests};

mod classic;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Queues that are told of at most.
const QUEUES_MAX: usize = 1000;

/// Queues that are read at a time.
const AT_A_TIME: usize = 8;

/// How long reading the store may take for one scrape; Prometheus waits for 10 s.
const STORE_LIMIT: Duration = Duration::from_secs(5);

/// The states that have a depth of their own.
const STATES: [MessageState; 6] = [
    MessageState::Pending,
    MessageState::Ready,
    MessageState::Unack,
    MessageState::Retry,
    MessageState::Dead,
    MessageState::Moving,
];

/// The numbers of one scrape.
#[derive(Debug)]
struct Scrape {
    /// None if the store did not answer.
    queues: Option<Vec<(QueueName, Overview, usize)>>,
    /// Queues that are there.
    known: usize,
    host: Option<HostNumbers>,
    requests: (Vec<RequestCount>, Distribution),
}

/// Those of the host in this process.
#[derive(Debug)]
struct HostNumbers {
    slots: usize,
    busy: usize,
    summary: Summary,
    queues: Vec<QueueMetrics>,
}

impl HostNumbers {
    fn of(monitor: &Monitor) -> Self {
        Self {
            slots: monitor.slots(),
            busy: monitor.busy(),
            summary: monitor.summary(),
            queues: monitor.queue_metrics(),
        }
    }
}

/// Numbers for Prometheus
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "process",
    responses((status = 200, description = "OpenMetrics text; in the older format for clients that take only text/plain", content((String = "application/openmetrics-text"), (String = "text/plain"))), AnyProblem)
)]
pub(super) async fn metrics(
    State(shared): State<Arc<Shared>>,
    allowed: Allowed<ToView>,
    headers: HeaderMap,
) -> Answer {
    if !allowed.covers_all() {
        return Err(Problem::forbidden(
            "metrics are of all queues: the token must be for all of them",
        ));
    }
    let read = tokio::time::timeout(STORE_LIMIT, read_queues(&shared)).await;
    let (queues, known) = match read {
        Ok(Ok((queues, known))) => (Some(queues), known),
        Ok(Err(_)) | Err(_) => (None, 0),
    };
    let scrape = Scrape {
        queues,
        known,
        host: shared
            .host
            .as_ref()
            .map(|host| HostNumbers::of(&host.monitor)),
        requests: requests(),
    };
    let mut registry = Registry::with_prefix("dqhost");
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    text::encode(&mut text, &registry)
        .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a bug in dqhost"))?;
    let (content_type, text) = if classic::is_wanted(&headers) {
        (classic::CONTENT_TYPE, classic::of(&text))
    } else {
        (CONTENT_TYPE, text)
    };
    Ok(answer::with_text(StatusCode::OK, content_type, text))
}

/// How queues stand, with the number of their hosts, and how many there are. One that cannot be read
/// is left out.
async fn read_queues(
    shared: &Shared,
) -> Result<(Vec<(QueueName, Overview, usize)>, usize), Problem> {
    let mut queues = shared.asked(shared.store.queues().await)?;
    let known = queues.len();
    queues.truncate(QUEUES_MAX);
    let reads = queues.into_iter().map(|queue| {
        let store = Arc::clone(&shared.store);
        async move {
            let overview = store.overview(&queue).await?;
            let hosts = store.hosts(&queue, HOST_SILENCE).await?;
            StoreResult::Ok((queue, overview, hosts.len()))
        }
    });
    let read: Vec<_> = stream::iter(reads).buffered(AT_A_TIME).collect().await;
    Ok((read.into_iter().flatten().collect(), known))
}

/// Seconds that the message which is first in line has waited.
fn lag(overview: &Overview) -> f64 {
    let since = overview.oldest_ready_ms.unwrap_or(overview.now_ms);
    Duration::from_millis(overview.now_ms.saturating_sub(since)).as_secs_f64()
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Encoder(encoder);
        out.info(
            "build",
            "The program",
            &[("version", env!("CARGO_PKG_VERSION"))],
        )?;
        self.encode_store(&mut out)?;
        if let Some(queues) = &self.queues {
            encode_queues(&mut out, queues)?;
        }
        if let Some(host) = &self.host {
            encode_host(&mut out, host)?;
            encode_handlers(&mut out, &host.queues)?;
        }
        Ok(())
    }
}

impl Scrape {
    fn encode_store(&self, out: &mut Encoder<'_>) -> fmt::Result {
        let is_up = u64::from(self.queues.is_some());
        out.gauge("store_up", "1 if the store answered this scrape", is_up)?;
        let (counts, took) = &self.requests;
        let by = |count: fn(&RequestCount) -> u64| {
            let rows = counts.iter();
            rows.map(move |row| ([("operation", row.operation.as_str())], count(row)))
        };
        out.counters(
            "store_requests",
            "Requests of this process to the store",
            by(|count| count.made),
        )?;
        out.counters(
            "store_errors",
            "Requests that the store refused or did not answer",
            by(|count| count.failed),
        )?;
        let help = "How long requests to the store took";
        out.histogram("store_request_seconds", help, took)?;
        if let Some(queues) = &self.queues {
            out.gauge("queues", "Queues of the store", self.known as u64)?;
            let unread = self.known.min(QUEUES_MAX).saturating_sub(queues.len());
            let help = "Queues of which the store did not tell, so they are not told of here";
            out.gauge("queues_unread", help, unread as u64)?;
        }
        Ok(())
    }
}

fn encode_queues(out: &mut Encoder<'_>, queues: &[(QueueName, Overview, usize)]) -> fmt::Result {
    let depths = queues.iter().flat_map(|(queue, overview, _)| {
        STATES.map(|state| {
            let labels = [("queue", queue.as_str()), ("state", state.as_str())];
            (labels, overview.counts.of(state))
        })
    });
    out.gauges("messages", "Messages in each state", depths)?;
    let of = |queue: &QueueName| [("queue", queue.to_string())];
    let lags = queues
        .iter()
        .map(|(queue, overview, _)| (of(queue), lag(overview)));
    out.gauges(
        "lag_seconds",
        "How long the ready message that is next has waited",
        lags,
    )?;
    let paused = queues.iter();
    let paused = paused.map(|(queue, overview, _)| (of(queue), u64::from(overview.paused)));
    out.gauges("paused", "1 if delivery of the queue is paused", paused)?;
    let hosts = queues
        .iter()
        .map(|(queue, _, hosts)| (of(queue), *hosts as u64));
    out.gauges("hosts", "Hosts that serve the queue", hosts)?;
    let totals = queues.iter().flat_map(|(queue, overview, _)| {
        let t = overview.counts.totals;
        let totals = [
            ("sent", t.sent),
            ("acked", t.acked),
            ("nacked", t.nacked),
            ("rejected", t.rejected),
            ("expired", t.expired),
            ("released", t.released),
            ("dead", t.dead),
            ("redriven", t.redriven),
            ("cancelled", t.cancelled),
            ("deleted", t.deleted),
        ];
        totals.map(|(event, count)| ([("queue", queue.as_str()), ("event", event)], count))
    });
    out.counters(
        "events",
        "What happened to messages of the queue, on all hosts, since it exists",
        totals,
    )
}

fn encode_host(out: &mut Encoder<'_>, host: &HostNumbers) -> fmt::Result {
    let (slots, busy) = (host.slots as u64, host.busy as u64);
    out.gauge("slots", "Handlers that this host can run", slots)?;
    out.gauge("slots_busy", "Handlers that this host runs", busy)?;
    let summary = host.summary;
    for (name, help, count) in [
        (
            "leases_lost",
            "Handlers stopped because their lease could not be kept",
            summary.lost,
        ),
        (
            "stale_settlements",
            "Results that came after their lease had expired",
            summary.stale,
        ),
        (
            "releases",
            "Deliveries given back unhandled",
            summary.released,
        ),
        (
            "sandbox_refusals",
            "Calls of handlers that were refused",
            summary.refused,
        ),
        (
            "ticks_skipped",
            "Ticks of schedules skipped because the last one had not ended",
            summary.skipped,
        ),
    ] {
        out.counter(name, help, count)?;
    }
    Ok(())
}

fn encode_handlers(out: &mut Encoder<'_>, queues: &[QueueMetrics]) -> fmt::Result {
    let of = |queue: &QueueMetrics| [("queue", queue.queue.to_string())];
    let running = queues.iter().map(|queue| (of(queue), queue.running as u64));
    out.gauges(
        "handlers_running",
        "Handlers of the queue that run",
        running,
    )?;
    let slots = queues
        .iter()
        .filter_map(|queue| Some((of(queue), queue.slots? as u64)));
    out.gauges(
        "queue_slots",
        "Handlers of the queue that may run, if the host finds that out",
        slots,
    )?;
    let attempts = queues.iter().flat_map(|queue| {
        let name = queue.queue.as_str();
        let ended = queue.ended.iter();
        ended.map(move |(class, count)| ([("queue", name), ("class", *class)], *count))
    });
    out.counters("attempts", "Runs of handlers that have ended", attempts)?;
    let took = queues.iter().map(|queue| (of(queue), &queue.took));
    out.histograms("handler_seconds", "How long handlers ran", took)?;
    let late = queues.iter().map(|queue| (of(queue), &queue.late));
    out.histograms(
        "lateness_seconds",
        "How long after their due times messages were given to handlers",
        late,
    )
}

/// Writes families of metrics.
struct Encoder<'a>(DescriptorEncoder<'a>);

impl Encoder<'_> {
    fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str); 1]) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Info)?;
        family.encode_info(labels)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        family.encode_gauge(&value)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    fn histogram(&mut self, name: &str, help: &str, times: &Distribution) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Histogram)?;
        family.encode_histogram::<NoLabelSet>(times.sum, times.count, &times.buckets, None)
    }

    fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            let mut row = family.encode_family(&labels)?;
            row.encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
        }
        Ok(())
    }

    fn histograms<'d, L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, &'d Distribution)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, times) in rows {
            let mut row = family.encode_family(&labels)?;
            row.encode_histogram::<NoLabelSet>(times.sum, times.count, &times.buckets, None)?;
        }
        Ok(())
    }
}
