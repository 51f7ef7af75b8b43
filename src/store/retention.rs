//! How long dead letters are kept.

use std::time::Duration;

/// Which dead letters of a queue are kept: those that are within all that is said here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Those that died less than so long ago; none for all.
    pub age: Option<Duration>,
    /// So many, the latest; none for all.
    pub number: Option<u32>,
}

impl Retention {
    /// All of them, until an operator deletes them.
    pub const ALL: Self = Self {
        age: None,
        number: None,
    };
}
