//! dqhost
pub mod message;
pub mod store;
