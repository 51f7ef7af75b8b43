//! HTTP by wasi:http.

use std::io::{Read, Write};
use std::time::Duration;

use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, RequestOptions,
    Scheme,
};

use super::{Error, Request, Response};
use crate::bindings::dqhost::queue::delivery;

pub(super) fn fetch(request: &Request) -> Result<Response, Error> {
    let Request { url, body, .. } = request;
    let shown = url.split('?').next().unwrap_or_default();
    let fail = |error: ErrorCode| Error::new(format!("{shown}: {}", words(&error)));
    let outgoing = outgoing(request)?;
    let response = exchange(outgoing, body).map_err(fail)?;
    let headers = response.headers().entries().into_iter();
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    Ok(Response {
        status: response.status(),
        headers: headers.map(|(name, value)| (name, text(value))).collect(),
        body: read(&response)
            .map_err(|error| Error::new(format!("{shown}: the response broke off: {error}")))?,
    })
}

/// The request without its body.
fn outgoing(request: &Request) -> Result<OutgoingRequest, Error> {
    let url = &request.url;
    let no_url = || {
        Error::new(format!(
            "{url:?} is not a URL such as https://host/path, without a user in it"
        ))
    };
    let (scheme, authority, path) = parts(url).ok_or_else(no_url)?;
    let fields = Fields::new();
    for (name, value) in &request.headers {
        fields
            .append(name, value.as_bytes())
            .map_err(|error| Error::new(format!("the request's header {name}: {error}")))?;
    }
    let length = request.body.len().to_string().into_bytes();
    // A host that does not take it has its own.
    let _ = fields.set("content-length", &[length]);
    let outgoing = OutgoingRequest::new(fields);
    outgoing
        .set_method(&method(&request.method))
        .map_err(|()| Error::new(format!("{:?} is not a method", request.method)))?;
    outgoing
        .set_scheme(Some(&scheme))
        .and_then(|()| outgoing.set_authority(Some(authority)))
        .and_then(|()| outgoing.set_path_with_query(Some(&path)))
        .map_err(|()| no_url())?;
    Ok(outgoing)
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    }
}

/// The scheme, the host with its port, and the path with its query.
fn parts(url: &str) -> Option<(Scheme, &str, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let slash = if path.starts_with('/') { "" } else { "/" };
    let host = !authority.is_empty() && !authority.starts_with(':') && !authority.contains('@');
    host.then(|| (scheme, authority, format!("{slash}{path}")))
}

fn exchange(request: OutgoingRequest, payload: &[u8]) -> Result<IncomingResponse, ErrorCode> {
    let nothing = |()| ErrorCode::InternalError(None);
    let body = request.body().map_err(nothing)?;
    let answer = outgoing_handler::handle(request, Some(options()))?;
    // The other side may answer before it has read all, so that a write that fails is no error yet.
    let written = body.write().is_ok_and(|mut stream| {
        let all = stream.write_all(payload);
        all.and_then(|()| Write::flush(&mut stream)).is_ok()
    });
    if written {
        let _ = OutgoingBody::finish(body, None);
    }
    answer.subscribe().block();
    match answer.get() {
        Some(Ok(response)) => response,
        _ => Err(ErrorCode::InternalError(None)),
    }
}

/// Ends each wait while there is time to say what it waited for.
fn options() -> RequestOptions {
    let wait = Duration::from_millis(delivery::remaining_ms()) * 9 / 10;
    let nanos = u64::try_from(wait.as_nanos()).ok();
    let options = RequestOptions::new();
    // A host that does not take one of them has its own.
    let _ = options.set_connect_timeout(nanos);
    let _ = options.set_first_byte_timeout(nanos);
    let _ = options.set_between_bytes_timeout(nanos);
    options
}

fn read(response: &IncomingResponse) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Ok(body) = response.consume()
        && let Ok(mut stream) = body.stream()
    {
        stream.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn words(error: &ErrorCode) -> String {
    match error {
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => {
            "dqhost does not allow a request to this host (--allow-http)".to_owned()
        }
        ErrorCode::InternalError(Some(words)) => words.clone(),
        other => other.to_string().replace("ErrorCode::", ""),
    }
}
