//! Where payloads come from, and which are taken.

use tokio::io::AsyncRead;

use super::Usage;
use crate::message::{HEADERS_MAX, Headers};

/// Refuses what no host would take.
pub(super) fn check(payload: &[u8], headers: &Headers, max_payload: usize) -> Result<(), String> {
    if payload.len() > max_payload {
        return Err(format!(
            "the payload has {} bytes and the limit is {max_payload}; send a reference to it, or \
             raise --max-payload",
            payload.len()
        ));
    }
    let size: usize = headers
        .iter()
        .map(|(key, value)| key.len() + value.len() + 6)
        .sum();
    if size > HEADERS_MAX {
        return Err(format!(
            "the headers take {size} bytes and the limit is {HEADERS_MAX}"
        ));
    }
    Ok(())
}

/// What `-` and `@FILE` stand for; none for anything else.
pub(super) fn source(source: &str) -> anyhow::Result<Option<Box<dyn AsyncRead + Unpin + Send>>> {
    if source == "-" {
        return Ok(Some(Box::new(tokio::io::stdin())));
    }
    let Some(path) = source.strip_prefix('@') else {
        return Ok(None);
    };
    let file = std::fs::File::open(path)
        .map_err(|error| Usage(format!("cannot read the payload from {path}: {error}")))?;
    Ok(Some(Box::new(tokio::fs::File::from_std(file))))
}
