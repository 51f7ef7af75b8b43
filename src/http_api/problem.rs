//! What is wrong with a request, as a problem document (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::answer::with_type;
use crate::text::{cut, printable};

/// Bytes of the words that a problem carries.
const DETAIL_MAX: usize = 1024;

/// Why a request was not done. Nothing was changed unless the words say so.
#[derive(Debug)]
pub(super) struct Problem {
    pub status: StatusCode,
    detail: String,
    /// After so many seconds a repeat may succeed.
    retry_after: Option<u32>,
    /// Messages of a batch that are wrong: their numbers from 1, and why.
    errors: Vec<(usize, String)>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            retry_after: None,
            errors: Vec::new(),
        }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    pub(super) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    }

    pub(super) fn wrong_type(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    }

    /// A repeat may succeed in a moment.
    pub(super) fn try_again(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            retry_after: Some(1),
            ..Self::new(status, detail)
        }
    }

    pub(super) fn with_errors(mut self, errors: Vec<(usize, String)>) -> Self {
        self.errors = errors;
        self
    }

    fn document(&self) -> Value {
        let words = |text: &str| cut(&printable(text), DETAIL_MAX).into_owned();
        let mut document = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "detail": words(&self.detail),
        });
        if !self.errors.is_empty() {
            let errors = self.errors.iter();
            let errors =
                errors.map(|(number, detail)| json!({"message": number, "detail": words(detail)}));
            document["errors"] = errors.collect();
        }
        document
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = with_type(self.status, "application/problem+json", &self.document());
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"dqhost\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
