//! Spans on their way to a collector: OTLP over HTTP, in batches, from a thread of its own.
//!
//! A collector that is slow or away costs spans and nothing else: what does not fit into the queue is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Export, Kind, Span, TraceParent, Value};
use crate::tls_roots::tls;

/// Spans that wait at most, and how long one waits.
const WAITING_MAX: usize = 8192;
const WAIT: Duration = Duration::from_secs(1);

/// How long a collector may take for a batch.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Bytes of a collector's answer that are read.
const ANSWER_MAX: usize = 64 * 1024;

/// Where the collector takes traces, below its address.
const TRACES: &str = "/v1/traces";

/// A collector of OpenTelemetry.
pub struct Collector {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
}

impl Collector {
    /// The collector at this address: `http` or `https`, without `/v1/traces`. `instance` names this process.
    pub fn at(address: &Uri, instance: &str) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("no runtime for the collector: {error}"))?;
        let client = Client {
            runtime,
            tls: tls(),
            is_failing: AtomicBool::new(false),
        };
        let address = address.to_string();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}{TRACES}", address.trim_end_matches('/')))
            .with_timeout(ANSWER_LIMIT)
            .build()
            .map_err(|error| error.to_string())?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(WAITING_MAX)
            .with_scheduled_delay(WAIT)
            .build();
        let mut processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(config)
            .build();
        processor.set_resource(&resource(instance));
        let scope = InstrumentationScope::builder("dqhost")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        Ok(Self { processor, scope })
    }
}

/// What the spans are of. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say more.
fn resource(instance: &str) -> Resource {
    let resource = Resource::builder()
        .with_attribute(KeyValue::new("service.instance.id", instance.to_owned()))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if std::env::var_os("OTEL_SERVICE_NAME").is_some() {
        return resource.build();
    }
    resource.with_service_name("dqhost").build()
}

impl Export for Collector {
    fn take(&self, span: Span) {
        self.processor.on_end(data(span, self.scope.clone()));
    }

    fn end(&self, limit: Duration) {
        if let Err(error) = self.processor.shutdown_with_timeout(limit) {
            tracing::warn!("the last spans did not reach the collector: {error}");
        }
    }
}

fn context(of: TraceParent, state: TraceState, is_remote: bool) -> SpanContext {
    SpanContext::new(
        TraceId::from(of.trace),
        SpanId::from(of.span),
        TraceFlags::new(of.flags),
        is_remote,
        state,
    )
}

fn data(span: Span, scope: InstrumentationScope) -> SpanData {
    let state = span.state.and_then(|state| state.parse().ok());
    let state: TraceState = state.unwrap_or_default();
    let link = span.link.map(|link| context(link, state.clone(), true));
    let attributes = span.attributes.into_iter();
    let mut attributes: Vec<KeyValue> = attributes
        .map(|(name, value)| match value {
            Value::Text(text) => KeyValue::new(name, text),
            Value::Number(number) => KeyValue::new(name, number),
        })
        .collect();
    let status = match span.error {
        None => Status::Unset,
        Some((class, words)) => {
            attributes.push(KeyValue::new("error.type", class));
            Status::error(words)
        }
    };
    let mut links = SpanLinks::default();
    links.links = link
        .map(|context| Link::new(context, Vec::new(), 0))
        .into_iter()
        .collect();
    SpanData {
        span_context: context(span.own, state, false),
        parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from),
        parent_span_is_remote: span.kind == Kind::Producer,
        span_kind: match span.kind {
            Kind::Producer => SpanKind::Producer,
            Kind::Consumer => SpanKind::Consumer,
            Kind::Client => SpanKind::Client,
        },
        name: span.name.into(),
        start_time: span.began,
        end_time: span.ended,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status,
        instrumentation_scope: scope,
    }
}

/// Speaks HTTP on the thread of the exporter, with a connection a batch.
struct Client {
    runtime: tokio::runtime::Runtime,
    tls: Arc<rustls::ClientConfig>,
    /// The last batch did not arrive.
    is_failing: AtomicBool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpClient for Client {
    /// Blocks: nothing else runs on this thread.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = async {
            let answer = tokio::time::timeout(ANSWER_LIMIT, self.send(request)).await;
            answer.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_LIMIT:?}").into()))
        };
        let answer = self.runtime.block_on(answer);
        let failure = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_failing = self.is_failing.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(why) if !was_failing => {
                tracing::warn!("the collector takes no spans, and they are lost: {why}");
            }
            None if was_failing => tracing::info!("the collector takes spans again"),
            _ => {}
        }
        answer
    }
}

impl Client {
    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let host = request.uri().host().ok_or("the address has no host")?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let is_tls = request.uri().scheme_str() == Some("https");
        let port = request.uri().port_u16();
        let port = port.unwrap_or(if is_tls { 443 } else { 80 });
        let authority = request.uri().authority().ok_or("the address has no host")?;
        let authority = authority.as_str().parse()?;
        request.headers_mut().insert(header::HOST, authority);
        if let Some(path) = request.uri().path_and_query() {
            *request.uri_mut() = Uri::from(path.clone());
        }
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        let _ = stream.set_nodelay(true);
        if is_tls {
            let name = ServerName::try_from(host)?;
            let connector = TlsConnector::from(Arc::clone(&self.tls));
            ask(connector.connect(name, stream).await?, request).await
        } else {
            ask(stream, request).await
        }
    }
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let (head, body) = sender
            .send_request(request.map(Full::new))
            .await?
            .into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    };
    tokio::pin!(exchange, connection);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = &mut connection => {
            ended?;
            exchange.await
        }
    }
}
