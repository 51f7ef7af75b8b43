//! HTTP requests, to the hosts that the operator allows (`--allow-http`).

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;

/// Bytes of a response's body that a reason repeats.
const BODY_SHOWN: usize = 200;

/// A request. Redirects are not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "nothing is requested until `send` is called"]
#[non_exhaustive]
pub struct Request {
    /// Such as `GET`.
    pub method: String,
    /// `http://` or `https://`, with a host, and without a user.
    pub url: String,
    /// In this order. Names may repeat.
    pub headers: Vec<(String, String)>,
    /// Any bytes.
    pub body: Vec<u8>,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A GET.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// A POST of these bytes.
    pub fn post(url: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into(),
            ..Self::new("POST", url)
        }
    }

    /// A POST of this value as JSON, with its `content-type`.
    ///
    /// # Errors
    ///
    /// A value that JSON cannot hold.
    pub fn post_json<T: Serialize + ?Sized>(
        url: impl Into<String>,
        value: &T,
    ) -> Result<Self, serde_json::Error> {
        let request = Self::post(url, serde_json::to_vec(value)?);
        Ok(request.header("content-type", "application/json"))
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends it, and reads the response to its end. No single wait takes more than nine tenths of the
    /// time that the handler has left.
    ///
    /// # Errors
    ///
    /// If there is no response. Any status is one: see [`Response::ok`].
    pub fn send(self) -> Result<Response, Error> {
        host::fetch(&self)
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// Such as 200.
    pub status: u16,
    /// As they came.
    pub headers: Vec<(String, String)>,
    /// Any bytes.
    pub body: Vec<u8>,
}

impl Response {
    /// A response for a test, without headers and body.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// The same response with one more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same response with this body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The first header of this name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    /// The body, read as JSON.
    ///
    /// # Errors
    ///
    /// A body that does not fit.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// This response if its status is 2xx.
    ///
    /// # Errors
    ///
    /// 408, 429 and 5xx are retried, after the seconds of `Retry-After` if it has some. Any other status
    /// is rejected, since the same request would get it again.
    pub fn ok(self) -> Result<Self> {
        if matches!(self.status, 200..=299) {
            return Ok(self);
        }
        let shown = &self.body[..self.body.len().min(BODY_SHOWN)];
        let reason = match String::from_utf8_lossy(shown).trim() {
            "" => format!("HTTP {}", self.status),
            text => format!("HTTP {}: {text}", self.status),
        };
        if !matches!(self.status, 408 | 429 | 500..=599) {
            return Err(crate::Error::reject(reason));
        }
        let seconds = self.header("retry-after").map(str::trim).map(str::parse);
        Err(match seconds {
            Some(Ok(seconds)) => crate::Error::retry_in(Duration::from_secs(seconds), reason),
            _ => crate::Error::retry(reason),
        })
    }
}

/// Why there is no response, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    /// With these words.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

#[cfg(target_family = "wasm")]
#[path = "wasi.rs"]
mod host;

#[cfg(not(target_family = "wasm"))]
use crate::testing as host;
