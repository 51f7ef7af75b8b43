//! How messages, durations and times are written: what the command line and the HTTP API both read
//! and both print.

pub(crate) mod json;
pub(crate) mod line;
pub(crate) mod listed;
pub(crate) mod message;
pub(crate) mod time;
