//! Where payloads come from, and which are taken.

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::Usage;
use crate::message::{HEADERS_MAX, Headers, headers_size};

/// Refuses what no host would take.
pub(super) fn check(payload: &[u8], headers: &Headers, max_payload: usize) -> Result<(), String> {
    if payload.len() > max_payload {
        return Err(format!(
            "the payload has {} bytes and the limit is {max_payload}; send a reference to it, or \
             raise --max-payload",
            payload.len()
        ));
    }
    let size = headers_size(headers);
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

/// The bytes that a payload on the command line stands for. Of one that is longer than `max` only
/// as much is read as tells that.
pub(super) async fn read(text: &str, max: usize) -> anyhow::Result<Vec<u8>> {
    let Some(source) = source(text)? else {
        return Ok(text.as_bytes().to_vec());
    };
    let mut bytes = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    source
        .take(limit)
        .read_to_end(&mut bytes)
        .await
        .context("reading the payload")?;
    Ok(bytes)
}

/// The same at a prompt, where there is no stdin and nothing may keep the screen waiting: only what
/// is a file is read.
pub(super) fn read_at_prompt(text: &str, max: usize) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let Some(path) = text.strip_prefix('@') else {
        return match text {
            "-" => Err("there is no stdin here: give the payload itself, or @FILE".to_owned()),
            text => Ok(text.as_bytes().to_vec()),
        };
    };
    let fail = |reason: String| format!("cannot read the payload from {path}: {reason}");
    let metadata = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?;
    if !metadata.is_file() {
        return Err(fail("it is not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    std::fs::File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(|error| fail(error.to_string()))?;
    Ok(bytes)
}
