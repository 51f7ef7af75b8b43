//! The HTTP API: send messages, look at queues, and steer them, with the words of the command line.
//!
//! It works on a store of its own and on threads of its own, so that nothing which it waits for keeps
//! a host waiting. Nothing is kept here: after a crash, what the store has accepted is there, and a
//! request without an answer may have been done or not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{delete, get, post};
use tokio::sync::{Semaphore, watch};

use self::body::BodyMemory;
use self::clients::Clients;
use self::health::StoreHealth;
pub use self::listener::{ListenAddr, Listener, OpenSocket};
pub use self::openapi::openapi;
use self::problem::Problem;
pub use self::tls::{Certificate, SharedCertificate};
pub use self::tokens::{FILE_MAX, Grant, Role, SharedTokens, Tokens, name_of, new_token};
pub use self::webhooks::{SharedWebhookKeys, WebhookKeys};
use crate::host::{Monitor, Stage};
use crate::message::QueueName;
use crate::spans::Spans;
use crate::store::{Store, StoreError, StoreResult, count_requests};

mod access;
mod answer;
mod body;
mod clients;
mod events;
mod get;
mod guard;
mod health;
mod list;
mod listener;
mod messages;
mod metrics;
mod openapi;
mod options;
mod page;
mod problem;
mod queues;
mod schemas;
mod send;
mod send_span;
mod server;
mod timed;
mod tls;
mod tokens;
mod topics;
mod webhooks;

/// What the API works with.
pub struct HttpApi {
    /// Where the messages are.
    pub store: Arc<dyn Store>,
    /// Who may ask; none for all who can connect.
    pub tokens: Option<SharedTokens>,
    /// Whose signed messages are taken without a token; none to take none.
    pub webhook_keys: Option<SharedWebhookKeys>,
    /// The certificate for TLS over TCP; none to speak in the clear.
    pub certificate: Option<SharedCertificate>,
    /// The longest payload that is accepted, in bytes.
    pub max_payload: usize,
    /// The host in this process, if there is one.
    pub host: Option<HostView>,
    /// Where spans of sends go.
    pub spans: Spans,
}

/// What the API shows of the host beside it.
pub struct HostView {
    /// What it does.
    pub monitor: Monitor,
    /// What it was told to do.
    pub stage: watch::Receiver<Stage>,
    /// Queues whose handlers could not be loaded.
    pub not_served: watch::Receiver<Vec<QueueName>>,
}

/// What requests share.
struct Shared {
    store: Arc<dyn Store>,
    tokens: Option<SharedTokens>,
    webhook_keys: Option<SharedWebhookKeys>,
    /// Requests without a token that may be worked on now.
    webhooks_under_way: Semaphore,
    webhook_bodies: BodyMemory,
    max_payload: usize,
    clients: Clients,
    /// Those that listen to events.
    listeners: Clients,
    bodies: BodyMemory,
    host: Option<HostView>,
    spans: Spans,
    health: StoreHealth,
    /// Pages that may be read now.
    pages: Semaphore,
    /// True when the API is told to stop.
    stop: watch::Receiver<bool>,
    /// The store did not answer the last request that asked it.
    is_failing: AtomicBool,
}

/// What a request is answered.
type Answer = Result<Response, Problem>;

impl HttpApi {
    /// Serves until `stop` is true, then ends the requests that have begun within 5 s.
    pub async fn serve(self, listener: Listener, stop: watch::Receiver<bool>) {
        count_requests();
        let shared = Arc::new(Shared {
            store: self.store,
            tokens: self.tokens,
            webhook_keys: self.webhook_keys,
            webhooks_under_way: Semaphore::new(webhooks::UNDER_WAY_MAX),
            webhook_bodies: BodyMemory::of_kib(
                webhooks::MEMORY_KIB.max(self.max_payload.div_ceil(1024)),
            ),
            max_payload: self.max_payload,
            clients: Clients::default(),
            listeners: Clients::of_listeners(),
            bodies: BodyMemory::default(),
            host: self.host,
            spans: self.spans,
            health: StoreHealth::default(),
            pages: Semaphore::new(list::PAGES_AT_A_TIME),
            stop: stop.clone(),
            is_failing: AtomicBool::new(false),
        });
        server::serve(listener, router(shared), self.certificate, stop).await;
    }
}

impl Shared {
    fn tokens(&self) -> Option<Arc<Tokens>> {
        self.tokens.as_ref().map(latest)
    }

    fn webhook_keys(&self) -> Option<Arc<WebhookKeys>> {
        self.webhook_keys.as_ref().map(latest)
    }

    /// The most bytes of a body in JSON.
    fn body_max(&self) -> usize {
        send::body_max(self.max_payload)
    }

    /// The store's answer. Why it gave none is for the log: it names what clients need not know.
    fn asked<T>(&self, answer: StoreResult<T>) -> Result<T, Problem> {
        let error = match answer {
            Ok(answer) => {
                self.is_failing.store(false, Ordering::Relaxed);
                return Ok(answer);
            }
            Err(error) => error,
        };
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            tracing::warn!("requests over HTTP fail: {error}");
        }
        let detail = match error {
            StoreError::Unreachable { .. } => {
                "the store is not reachable; what was asked may have been done"
            }
            StoreError::Unusable { .. } => "the store cannot be used",
            StoreError::Refused { .. } => "the store refused it, and nothing was done",
        };
        Err(Problem::try_again(StatusCode::SERVICE_UNAVAILABLE, detail))
    }
}

/// What a file says now.
fn latest<T>(file: &Arc<RwLock<Arc<T>>>) -> Arc<T> {
    Arc::clone(&file.read().unwrap_or_else(PoisonError::into_inner))
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(page::page))
        .route("/stats", get(queues::all_stats))
        .route("/queues/{queue}/stats", get(queues::stats))
        .route("/queues/{queue}/events", get(events::events))
        .route("/queues/{queue}/pause", post(queues::pause))
        .route("/queues/{queue}/resume", post(queues::resume))
        .route("/queues/{queue}/messages", get(list::list).post(send::send))
        .route("/topics/{topic}/messages", post(topics::send))
        .route("/queues/{queue}/webhooks", post(webhooks::receive))
        .route("/queues/{queue}/messages/{id}", get(get::get))
        .route(
            "/queues/{queue}/messages/{id}/cancel",
            post(messages::cancel),
        )
        .route(
            "/queues/{queue}/messages/{id}/reschedule",
            post(messages::reschedule),
        )
        .route("/queues/{queue}/dead/{id}/redrive", post(messages::redrive))
        .route("/queues/{queue}/dead/{id}", delete(messages::delete_dead))
        .fallback(async || Problem::not_found("there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            let detail =
                "this path does not take this method; the header allow lists those it takes";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        })
        .layer(from_fn_with_state(Arc::clone(&shared), guard::guard))
        .with_state(shared)
}
