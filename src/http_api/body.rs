//! Reading bodies, with limits on their size, on the time that they take, and on what all of them hold
//! in memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;

/// How long a body may take to arrive.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// KiB that all bodies may hold at a time.
const MEMORY_KIB: usize = 64 * 1024;

/// Bytes of a body over its limit that are read and thrown away, so that the client sees the refusal.
const DISCARDED_MAX: usize = 1 << 20;

/// The memory that bodies share, in KiB.
#[derive(Debug, Clone)]
pub(super) struct BodyMemory(Arc<Semaphore>);

impl Default for BodyMemory {
    fn default() -> Self {
        Self::of_kib(MEMORY_KIB)
    }
}

/// A body that has arrived whole. Its part of the memory is free again when this is dropped.
pub(super) struct Received {
    pub bytes: Vec<u8>,
    _memory: Option<OwnedSemaphorePermit>,
}

impl BodyMemory {
    pub(super) fn of_kib(kib: usize) -> Self {
        Self(Arc::new(Semaphore::new(kib)))
    }

    /// Reads a body of at most so many bytes to its end.
    pub(super) async fn read(&self, body: Body, max: usize) -> Result<Received, Problem> {
        match tokio::time::timeout(TIME_LIMIT, self.read_all(body, max)).await {
            Ok(read) => read,
            Err(_) => Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not arrive within {TIME_LIMIT:?}"),
            )),
        }
    }

    async fn read_all(&self, mut body: Body, max: usize) -> Result<Received, Problem> {
        let (mut bytes, mut memory, mut seen) = (Vec::new(), None, 0_usize);
        if body.size_hint().lower() > max.saturating_add(DISCARDED_MAX) as u64 {
            return Err(too_large(max));
        }
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|_| Problem::bad_request("the body ended before it was whole"))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            seen = seen.saturating_add(data.len());
            if seen <= max {
                self.take(&mut memory, seen)?;
                bytes.extend_from_slice(&data);
            } else if seen > max.saturating_add(DISCARDED_MAX) {
                break;
            } else {
                (bytes, memory) = (Vec::new(), None);
            }
        }
        if seen > max {
            return Err(too_large(max));
        }
        Ok(Received {
            bytes,
            _memory: memory,
        })
    }

    /// Takes as much more memory as so many bytes need.
    fn take(&self, memory: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Result<(), Problem> {
        let held = memory.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(1024).saturating_sub(held);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.0).try_acquire_many_owned(more) else {
            return Err(Problem::try_again(
                StatusCode::SERVICE_UNAVAILABLE,
                "other requests hold all the memory for bodies",
            ));
        };
        match memory {
            Some(memory) => memory.merge(more),
            None => *memory = Some(more),
        }
        Ok(())
    }

    /// A body that is a JSON object, or what an empty body or null stands for.
    pub(super) async fn read_json<T: DeserializeOwned + Default>(
        &self,
        headers: &HeaderMap,
        body: Body,
        max: usize,
    ) -> Result<T, Problem> {
        let content_type = content_type(headers)?;
        let received = self.read(body, max).await?;
        if received.bytes.trim_ascii().is_empty() {
            return Ok(T::default());
        }
        if content_type.as_deref() != Some("application/json") {
            return Err(Problem::wrong_type(
                "send the body as JSON, with the header content-type: application/json",
            ));
        }
        let read: Result<Option<T>, _> = serde_json::from_slice(&received.bytes);
        read.map(Option::unwrap_or_default)
            .map_err(|error| Problem::bad_request(format!("the body is not understood: {error}")))
    }
}

fn too_large(max: usize) -> Problem {
    Problem::too_large(format!(
        "the body has more than {max} bytes, which is the limit"
    ))
}

/// The type of a body in lower case, without its parameters. What is compressed, or text of another
/// encoding than UTF-8, is refused.
pub(super) fn content_type(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && encoding != "identity"
    {
        return Err(Problem::wrong_type(
            "compressed bodies are not taken: leave out content-encoding",
        ));
    }
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .map_err(|_| Problem::wrong_type("content-type is not understood"))?
        .to_ascii_lowercase();
    let (name, parameters) = text.split_once(';').unwrap_or((&text, ""));
    let charset = parameters
        .split(';')
        .filter_map(|parameter| parameter.trim().strip_prefix("charset="))
        .find(|charset| !matches!(charset.trim_matches('"'), "utf-8" | "us-ascii"));
    let name = name.trim();
    if let Some(charset) = charset
        && name.starts_with("application/")
    {
        return Err(Problem::wrong_type(format!(
            "JSON is UTF-8, and the charset is {charset}"
        )));
    }
    Ok(Some(name.to_owned()))
}
