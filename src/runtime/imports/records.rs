//! HTTP requests as records (`dqhost:queue/http`). They become requests of wasi:http, and go the same way.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Uri};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, timeout_at};
use wasmtime_wasi_http::{
    DEFAULT_FORBIDDEN_HEADERS, Error, RequestOptions, WasiBody, WasiHttpView,
};

use super::State;
use super::requests::{PATH_MAX, WORD_MAX, fits};
use crate::runtime::bindings::dqhost::queue::http::{Host, Request, RequestError, Response};
use crate::runtime::http::FIELDS_MAX;

/// What a header takes beside its name and value.
const FIELD_COST: usize = 32;

impl Host for State {
    async fn fetch(&mut self, req: Request) -> wasmtime::Result<Result<Response, RequestError>> {
        let request = match outgoing(req) {
            Ok(request) => request,
            Err(words) => return Ok(Err(RequestError::Invalid(words))),
        };
        let max = self.common.limits.call_bytes;
        // Ends while there is time to say what it waited for.
        let wait = self.deadline.remaining() * 9 / 10;
        let options = RequestOptions {
            connect_timeout: Some(wait),
            first_byte_timeout: Some(wait),
            between_bytes_timeout: Some(wait),
        };
        let sent =
            self.http()
                .hooks
                .send_request(request, Some(options), Box::new(async { Ok(()) }));
        let answer = async {
            // The connection is open for as long as this is kept.
            let (response, _connection) = Box::into_pin(sent).await.map_err(|e| refusal(&e))?;
            read(response, max).await
        };
        let end = Instant::now().checked_add(wait);
        let end = end.unwrap_or_else(|| Instant::now() + Duration::from_hours(24));
        Ok(timeout_at(end, answer).await.unwrap_or_else(|_| {
            let words = "the handler's time is nearly over (--timeout)";
            Err(RequestError::Failed(words.to_owned()))
        }))
    }
}

/// The request as wasi:http has it, or what is wrong with it.
fn outgoing(request: Request) -> Result<http::Request<WasiBody>, String> {
    let Request {
        method,
        url,
        headers,
        body,
    } = request;
    if !fits(Some(&method), WORD_MAX) || !fits(Some(&url), PATH_MAX) {
        return Err(format!(
            "a method has at most {WORD_MAX} bytes, and a URL {PATH_MAX}"
        ));
    }
    let method = Method::from_bytes(method.as_bytes())
        .map_err(|_| format!("{method:?} is not a method such as GET"))?;
    let uri: Uri = url.parse().unwrap_or_default();
    let authority = uri.authority().filter(|_| uri.scheme().is_some());
    let host = authority
        .filter(|authority| !authority.as_str().contains('@'))
        .and_then(|authority| HeaderValue::from_str(authority.as_str()).ok())
        .ok_or("the URL is not one such as https://host/path, without a user in it")?;
    let mut made = http::Request::new(body_of(body));
    *made.method_mut() = method;
    *made.uri_mut() = uri;
    *made.headers_mut() = fields(headers)?;
    made.headers_mut().insert(HOST, host);
    Ok(made)
}

fn body_of(bytes: Vec<u8>) -> WasiBody {
    let body = Full::new(Bytes::from(bytes));
    body.map_err(|never| match never {}).boxed_unsync()
}

fn fields(headers: Vec<(String, String)>) -> Result<HeaderMap, String> {
    let sizes = headers.iter().map(|(name, value)| name.len() + value.len());
    if sizes.map(|size| size + FIELD_COST).sum::<usize>() > FIELDS_MAX {
        return Err(format!("the headers take more than {FIELDS_MAX} bytes"));
    }
    let mut fields = HeaderMap::new();
    for (name, value) in headers {
        let of_host = |field: &HeaderName| {
            *field == CONTENT_LENGTH || DEFAULT_FORBIDDEN_HEADERS.contains(field)
        };
        let field = HeaderName::try_from(&name)
            .map_err(|_| format!("{name:?} cannot be the name of a header"))?;
        if of_host(&field) {
            return Err(format!("the header {field} is the host's to set"));
        }
        let value = HeaderValue::try_from(value)
            .map_err(|_| format!("the value of the header {field} cannot be one"))?;
        fields.append(field, value);
    }
    Ok(fields)
}

/// The whole response, with at most so many bytes.
async fn read(response: http::Response<WasiBody>, max: usize) -> Result<Response, RequestError> {
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| refusal(&error))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if data.len() > max.saturating_sub(bytes.len()) {
            let words = format!("the response has more than {max} bytes (--limit call-bytes)");
            return Err(RequestError::TooMuch(words));
        }
        bytes.extend_from_slice(data);
    }
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter();
    Ok(Response {
        status: head.status.as_u16(),
        headers: headers
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect(),
        body: bytes,
    })
}

fn refusal(error: &Error) -> RequestError {
    match error {
        Error::HttpRequestDenied | Error::DestinationIpProhibited => RequestError::NotAllowed(
            "dqhost does not allow a request to this host (--allow-http)".to_owned(),
        ),
        Error::ConnectionLimitReached => {
            RequestError::TooMuch("too many HTTP requests (--limit http-requests)".to_owned())
        }
        Error::HttpRequestUriInvalid => {
            RequestError::Invalid("the URL is not one of http:// or https://".to_owned())
        }
        error => RequestError::Failed(error.to_string()),
    }
}
