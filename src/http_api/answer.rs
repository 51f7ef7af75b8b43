//! Answers in JSON.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use crate::format;

/// An answer with a line of JSON.
pub(super) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    with_type(status, "application/json", value)
}

/// The same with another type of content.
pub(super) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    value: &Value,
) -> Response<Body> {
    let text = format::json::text(value) + "\n";
    with_text(status, content_type, text)
}

/// An answer with any text.
pub(super) fn with_text(
    status: StatusCode,
    content_type: &'static str,
    text: String,
) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

/// An answer that says by its status alone that all was done.
pub(super) fn done() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
