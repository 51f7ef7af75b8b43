//! Where payloads come from, and which are taken.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::Usage;
pub(super) use crate::format::message::check;
use crate::format::message::payload_too_long;

/// The bytes of a file, if that is known: a pipe tells no size.
fn size_of(file: &File) -> Option<u64> {
    let metadata = file.metadata().ok()?;
    metadata.is_file().then_some(metadata.len())
}

/// Opens a file to read from. A folder is refused here, since an error of reading it would not name it.
pub(super) fn open(path: impl AsRef<Path>) -> io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(file)
}

/// What a payload is read from.
pub(super) struct Source {
    pub input: Box<dyn AsyncRead + Unpin + Send>,
    /// In bytes, where it is known.
    size: Option<u64>,
}

/// What `-` and `@FILE` stand for; none for anything else.
pub(super) fn source(source: &str) -> anyhow::Result<Option<Source>> {
    if source == "-" {
        return Ok(Some(Source {
            input: Box::new(tokio::io::stdin()),
            size: None,
        }));
    }
    let Some(path) = source.strip_prefix('@') else {
        return Ok(None);
    };
    let file = open(path)
        .map_err(|error| Usage(format!("cannot read the payload from {path}: {error}")))?;
    Ok(Some(Source {
        size: size_of(&file),
        input: Box::new(tokio::fs::File::from_std(file)),
    }))
}

/// The bytes that a payload on the command line stands for. Of one that is longer than `max` only
/// as much is read as tells that.
pub(super) async fn read(text: &str, max: usize) -> anyhow::Result<Vec<u8>> {
    let Some(Source { input, size }) = source(text)? else {
        return Ok(text.as_bytes().to_vec());
    };
    let mut bytes = Vec::new();
    input
        .take(limit(max))
        .read_to_end(&mut bytes)
        .await
        .context("reading the payload")?;
    if bytes.len() > max {
        let size = size.filter(|size| *size > max as u64);
        return Err(Usage(payload_too_long(size, max)).into());
    }
    Ok(bytes)
}

/// One byte more than is taken.
fn limit(max: usize) -> u64 {
    u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1)
}

/// The same at a prompt, where there is no stdin and nothing may keep the screen waiting: only what
/// is a file is read.
pub(super) fn read_at_prompt(text: &str, max: usize) -> Result<Vec<u8>, String> {
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
    File::open(path)
        .and_then(|file| Read::take(file, limit(max)).read_to_end(&mut bytes))
        .map_err(|error| fail(error.to_string()))?;
    if bytes.len() > max {
        let size = Some(metadata.len()).filter(|size| *size > max as u64);
        return Err(payload_too_long(size, max));
    }
    Ok(bytes)
}
