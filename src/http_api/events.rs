//! What happens on a queue, as server-sent events. A client that reads slowly is told what it has missed, and
//! one whose token was taken back hears no more.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::stream;
use tokio::sync::watch;

use super::access::{OfQueue, ToView};
use super::clients::{ClientKey, UnderWay};
use super::schemas::AnyProblem;
use super::{Answer, Shared, schemas};
use crate::format;
use crate::store::EventStream;

/// How long a stream is silent at most, so that proxies keep it open.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// One client that listens.
struct Listening {
    events: EventStream,
    of: OfQueue<ToView>,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    is_over: bool,
    _counted: UnderWay,
}

impl Listening {
    /// What comes next; none when it ends.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        let heard = tokio::select! {
            heard = self.events.next() => Some(heard?),
            () = tokio::time::sleep(SILENCE_MAX) => None,
            _ = self.stop.wait_for(|stop| *stop) => return None,
        };
        if let Some(tokens) = self.shared.tokens()
            && !self.of.holds_with(&tokens)
        {
            return Some(self.last("the token does not allow this any more"));
        }
        let Some(heard) = heard else {
            return Some(":\n\n".to_owned());
        };
        let Ok(heard) = self.shared.asked(heard) else {
            // Why is in the log.
            return Some(self.last("the store does not answer, or refuses it"));
        };
        let data = format::json::text(&format::json::event(&heard));
        let event = heard.event.event.as_str();
        Some(format!("event: {event}\ndata: {data}\n\n"))
    }

    /// Why the stream ends.
    fn last(&mut self, why: &str) -> String {
        self.is_over = true;
        format!("event: error\ndata: {why}\n\n")
    }
}

/// Follow what happens on a queue
///
/// Server-sent events from now on, by all hosts. They are best effort: what a client has missed is told by
/// the event `gap`. The stream ends when the API stops, and when the token does not allow it any more.
#[utoipa::path(
    get,
    path = "/queues/{queue}/events",
    tag = "queues",
    params(("queue" = String, Path, description = "Name of the queue")),
    responses((status = 200, description = "Events, each with JSON as its data", content_type = "text/event-stream", body = schemas::Event), AnyProblem)
)]
pub(super) async fn events(
    State(shared): State<Arc<Shared>>,
    of: OfQueue<ToView>,
    Extension(client): Extension<ClientKey>,
) -> Answer {
    let counted = shared.listeners.begin(client)?;
    let listening = Listening {
        events: Arc::clone(&shared.store).listen(vec![of.queue.clone()], false),
        of,
        stop: shared.stop.clone(),
        shared,
        is_over: false,
        _counted: counted,
    };
    let parts = stream::unfold(listening, async |mut listening| {
        let part = listening.next().await?;
        Some((Ok::<_, Infallible>(part), listening))
    });
    let mut response = Response::new(Body::from_stream(parts));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    Ok(response)
}
