//! What all keys of a queue start with.

use std::fmt;
use std::str::FromStr;

use super::PREFIX;

/// The first part of the keys of a queue: `dp`, unless a delayqueue uses `UseCustomPrefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPrefix(String);

/// Why a text is no [`KeyPrefix`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a prefix has 1 to 64 letters, digits, dots, underscores, dashes, colons and slashes, and does not \
     start with dqhost"
)]
pub struct KeyPrefixError;

impl FromStr for KeyPrefix {
    type Err = KeyPrefixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-:/".contains(&b);
        if (1..=64).contains(&text.len())
            && text.bytes().all(allowed)
            && !text.starts_with("dqhost")
        {
            Ok(Self(text.to_owned()))
        } else {
            Err(KeyPrefixError)
        }
    }
}

impl Default for KeyPrefix {
    fn default() -> Self {
        Self(PREFIX.to_owned())
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl KeyPrefix {
    /// True for the one that is used unless it is set otherwise.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0 == PREFIX
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
