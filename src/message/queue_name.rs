//! The name of a queue.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The name of a queue: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
///
/// Nothing else, because the name becomes part of keys: a brace would move them to another
/// cluster slot, a control character would reach a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct QueueName(String);

impl QueueName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a queue name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "queue name {0:?} is not allowed: use 1 to 64 characters of letters, digits, dot, underscore and dash"
)]
pub struct QueueNameError(String);

impl FromStr for QueueName {
    type Err = QueueNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if (1..=64).contains(&name.len()) && name.bytes().all(allowed) {
            Ok(Self(name.to_owned()))
        } else {
            Err(QueueNameError(name.chars().take(80).collect()))
        }
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
