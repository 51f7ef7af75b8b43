//! Bytes for whoever asks how a message ended.

use std::fmt;

use serde::Serialize;

/// Keeps these bytes with the ack; the last call counts. `dqhost get ID` and the HTTP API show them.
///
/// The host keeps them for a while and within a bound. If the handler ends in any other way, they are forgotten.
///
/// # Errors
///
/// More bytes than the host keeps for one message. Those of an earlier call stay.
pub fn set(bytes: impl Into<Vec<u8>>) -> Result<(), SetError> {
    host::set_result(&bytes.into())
}

/// The same with this value as JSON.
///
/// # Errors
///
/// As [`set`], and a value that JSON cannot hold.
pub fn set_json<T: Serialize + ?Sized>(value: &T) -> crate::Result {
    set(serde_json::to_vec(value)?)?;
    Ok(())
}

/// Why bytes were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetError {
    /// They are more than so many bytes.
    TooLarge(u64),
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::TooLarge(max) = self;
        write!(f, "a result may have {max} bytes (--limit result-bytes)")
    }
}

impl std::error::Error for SetError {}

#[cfg(target_family = "wasm")]
mod host {
    use super::SetError;
    use crate::bindings::dqhost::queue::result;

    pub(super) fn set_result(bytes: &[u8]) -> Result<(), SetError> {
        result::set(bytes).map_err(|result::SetError::TooLarge(max)| SetError::TooLarge(max))
    }
}

#[cfg(not(target_family = "wasm"))]
use crate::testing as host;
