//! An HTTP handler (`wasi:http/incoming-handler`, or `wasi:http/handler` of WASI 0.3): the message is a POST, and
//! the status is the answer.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use tokio::sync::oneshot;
use wasmtime::Store;
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p3;
use wasmtime_wasi_http::p3::bindings::ServicePre;
use wasmtime_wasi_http::{Error, WasiHttpView};

use super::{Answer, call_in};
use crate::runtime::call::Call;
use crate::runtime::imports::State;

/// Bytes of a response's body that go into the reason.
const BODY_SHOWN: usize = 200;

/// What the component has responded so far.
#[derive(Default)]
struct Response {
    /// Or the name of an error.
    head: Option<Result<(StatusCode, HeaderMap), String>>,
    body: Vec<u8>,
}

type Sender = Result<http::Response<HyperOutgoingBody>, ErrorCode>;

pub(super) async fn call(
    pre: &ProxyPre<State>,
    store: &mut Store<State>,
    call: Call,
) -> wasmtime::Result<Answer> {
    let (sender, receiver) = oneshot::channel();
    let request = request(call)?.map(|body| body.map_err(never));
    let mut view = store.data_mut().http();
    let request = view.new_incoming_request(Scheme::Http, request)?;
    let out = view.new_response_outparam(sender)?;
    let handler = pre.instantiate_async(&mut *store).await?;
    let response = Arc::<Mutex<Response>>::default();
    // It may end before the handler, and is polled once more below.
    let mut reading = pin!(read(receiver, Arc::clone(&response)).fuse());
    {
        let handle = handler.wasi_http_incoming_handler().func_handle();
        let handling = pin!(call_in(store, handle, (request, out)));
        // Its body is read while it runs, since it waits until there is room for more.
        match select(handling, reading.as_mut()).await {
            Either::Left((ended, _)) => ended?,
            Either::Right(((), handling)) => handling.await?,
        }
    }
    // What is there already; nothing more comes.
    let _ = reading.now_or_never();
    let response = std::mem::take(&mut *response.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(answer(response))
}

/// A handler of WASI 0.3. It returns the head of its response, and goes on until the body has ended. So do the
/// tasks that it has started.
pub(super) async fn call_async(
    pre: &ServicePre<State>,
    store: &mut Store<State>,
    call: Call,
) -> wasmtime::Result<Answer> {
    let request = request(call)?.map(|body| body.map_err(never));
    let (request, _) = p3::Request::from_http(store.data_mut().http().hooks, request);
    let service = pre.instantiate_async(&mut *store).await?;
    let response = Mutex::<Response>::default();
    let handling = store.run_concurrent(async |accessor| {
        let (head, body) = match service.handle(accessor, request).await? {
            Ok(made) => {
                let taken = async { Ok(()) };
                let made = accessor.with(|store| made.into_http(store, taken))?;
                let (parts, body) = made.into_parts();
                (Ok((parts.status, parts.headers)), Some(body))
            }
            Err(code) => (Err(format!("{code:?}")), None),
        };
        keep(&response, |response| response.head = Some(head));
        if let Some(body) = body {
            read_body(body, &response).await;
        }
        Ok::<(), wasmtime::Error>(())
    });
    Box::pin(handling).await??;
    let response = response.into_inner();
    Ok(answer(response.unwrap_or_else(PoisonError::into_inner)))
}

fn never(never: Infallible) -> Error {
    match never {}
}

fn keep(response: &Mutex<Response>, change: impl FnOnce(&mut Response)) {
    change(&mut response.lock().unwrap_or_else(PoisonError::into_inner));
}

/// The message's headers are the request's, as far as they can be. Those that name the message come last, and
/// so nobody else names it.
fn request(call: Call) -> wasmtime::Result<Request<Full<Bytes>>> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri("http://dqhost/")
        .body(Full::new(Bytes::from(call.payload)))?;
    let headers = request.headers_mut();
    for (name, value) in &call.headers {
        if let Ok(name) = HeaderName::try_from(name)
            && let Ok(value) = HeaderValue::try_from(value)
        {
            headers.append(name, value);
        }
    }
    let known = [
        ("idempotency-key", call.id),
        ("dqhost-queue", call.queue),
        ("x-attempt", call.attempt.to_string()),
        ("x-max-attempts", call.attempts_max.to_string()),
    ];
    for (name, value) in known {
        // An id that others made may be no value of a header.
        match HeaderValue::try_from(value) {
            Ok(value) => headers.insert(name, value),
            Err(_) => headers.remove(name),
        };
    }
    Ok(request)
}

async fn read(receiver: oneshot::Receiver<Sender>, into: Arc<Mutex<Response>>) {
    // Without a response it ends as the handler does.
    let Ok(response) = receiver.await else { return };
    match response {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            let head = Ok((parts.status, parts.headers));
            keep(&into, |response| response.head = Some(head));
            read_body(body, &into).await;
        }
        Err(code) => {
            let head = Err(format!("{code:?}"));
            keep(&into, |response| response.head = Some(head));
        }
    }
}

/// To its end, of which the start is kept.
///
/// A body that ends with an error makes the answer one: the guest has failed after its status.
async fn read_body<B>(mut body: B, into: &Mutex<Response>)
where
    B: Body<Data = Bytes, Error: std::fmt::Debug> + Unpin,
{
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                let error = format!("the body ended with {error:?}");
                return keep(into, |response| response.head = Some(Err(error)));
            }
        };
        if let Some(data) = frame.data_ref() {
            keep(into, |response| {
                let room = BODY_SHOWN.saturating_sub(response.body.len());
                let shown = &data[..data.len().min(room)];
                response.body.extend_from_slice(shown);
            });
        }
    }
}

fn answer(response: Response) -> Answer {
    let nack = |delay, reason| Answer::Nack { delay, reason };
    let (status, headers) = match response.head {
        None => return nack(None, "it returned without a response".to_owned()),
        Some(Err(code)) => return nack(None, format!("it responded with the error {code}")),
        Some(Ok(head)) => head,
    };
    if status.is_success() {
        return Answer::Ack;
    }
    let body = String::from_utf8_lossy(&response.body);
    let reason = match body.trim() {
        "" => format!("status {status}"),
        body => format!("status {status}: {body}"),
    };
    let is_temporary = status.is_server_error()
        || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    if is_temporary {
        nack(retry_after(&headers, Timestamp::now()), reason)
    } else {
        Answer::Reject { reason }
    }
}

/// Seconds, or the date of a response (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, headers: &[(&'static str, &str)]) -> String {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::try_from(*value).unwrap());
        }
        let head = Some(Ok((StatusCode::from_u16(status).unwrap(), map)));
        let body = b" no ".to_vec();
        match answer(Response { head, body }) {
            Answer::Ack => "ack".to_owned(),
            Answer::Nack { delay, reason } => format!("nack {delay:?} {reason}"),
            Answer::Reject { reason } => format!("reject {reason}"),
            Answer::Exit(_) => unreachable!(),
        }
    }

    #[test]
    fn the_status_is_the_answer() {
        assert_eq!(answered(200, &[]), "ack");
        assert_eq!(answered(299, &[]), "ack");
        let nack = "nack None status 503 Service Unavailable: no";
        assert_eq!(answered(503, &[]), nack);
        let later = answered(429, &[("retry-after", "7")]);
        assert_eq!(later, "nack Some(7s) status 429 Too Many Requests: no");
        let never = answered(500, &[("retry-after", "soon")]);
        assert!(never.starts_with("nack None"), "{never}");
        for rejected in [302, 400, 404, 199] {
            assert!(answered(rejected, &[]).starts_with("reject status"));
        }
        let silent = answer(Response::default());
        assert!(matches!(silent, Answer::Nack { delay: None, .. }));
    }

    #[test]
    fn a_date_to_retry_after_is_a_delay_and_the_past_is_none() {
        let now: Timestamp = "2026-11-22T10:00:00Z".parse().unwrap();
        let after = |value: &str| {
            let value = HeaderValue::try_from(value).unwrap();
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]), now)
        };
        let minute = Some(Duration::from_mins(1));
        assert_eq!(after("Sun, 22 Nov 2026 10:01:00 GMT"), minute);
        let past = after("Sun, 22 Nov 2026 09:00:00 GMT");
        assert_eq!(past, Some(Duration::ZERO));
        assert_eq!(after("-1"), None);
    }

    #[test]
    fn nobody_but_the_host_names_the_message() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let call = Call {
            id: "the-id".to_owned(),
            queue: "q".to_owned(),
            payload: Vec::new(),
            headers: vec![
                header("idempotency-key", "another"),
                header("no name", "x"),
                header("x", "a\r\nb: c"),
                header("Content-Type", "text/plain"),
            ],
            attempt: 1,
            attempts_max: 2,
            sent_at_ms: None,
            due_at_ms: None,
        };
        let request = request(call).unwrap();
        let mut names: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let wanted = [
            "content-type",
            "dqhost-queue",
            "idempotency-key",
            "x-attempt",
            "x-max-attempts",
        ];
        assert_eq!(names, wanted);
        assert_eq!(request.headers()["idempotency-key"], "the-id");
    }
}
