//! How requests reach Redis: connections that replace themselves, the node of a cluster or the master
//! behind sentinels, time limits, and what errors mean. It knows nothing of queues.

pub(super) mod client;
pub(super) mod cluster;
pub(super) mod connection;
pub(super) mod faults;
pub(super) mod server;
pub(super) mod timeouts;
