//! dqhost
pub mod cli;
pub mod host;
pub mod message;
pub mod runtime;
pub mod store;
pub mod text;
pub mod verdict;
