//! dqhost runs delayed and retried messages. They wait in a store until they are due. Each is then handled
//! by a WebAssembly component in a sandbox of its own, which answers *ack*, *nack* or *reject*.
//!
//! ```text
//! send ──> pending ──due──> ready ──reserve──> unack ──ack──> gone
//!             ^                                 │ ^ │
//!             └──────────nack with a delay──────┘ │ └──no retries left, or reject──> garbage ──> dead letter
//!                                                 │
//!              retry <──nack at once, lease over──┘   (and back into unack by reserve)
//! ```
//!
//! [`message::State`] says of each state how a message enters it, how it leaves, and who repairs it
//! after a crash.
//!
//! # Layers
//!
//! Imports point down this list only; `tests/it/layers.rs` checks it.
//!
//! * [`cli`]: the command line, and the one place that puts concrete parts together
//! * [`http_api`]: the HTTP API; knows a store, and what a host shows of itself
//! * [`dashboard`]: the screen; knows snapshots and commands, no store and no host
//! * [`control`]: snapshots and commands, and who makes the ones and does the others
//! * [`host`]: the loop that moves messages; leases; settlement
//! * [`runtime`]: the sandbox; knows no store
//! * [`verdict`]: what follows from how a handler ended; pure
//! * [`schedule`]: messages at regular times; pure
//! * [`queue`]: a queue for programs that handle messages themselves
//! * [`store`]: the contract of a store, an embedded one and one in Redis; knows no handler
//! * `format`: how messages, durations and times are written
//! * [`files`]: files on the disk, checked before they are used
//! * [`text`]: text from outside, made fit for a terminal
//! * [`clock`]: the time of a store that has no clock of its own
//! * [`spans`]: what was done with a message, for a collector of traces
//! * `tls_roots`: whom this program trusts over TLS
//! * [`metrics`]: how often something took how long
//! * [`message`]: the vocabulary

// `println!` and `eprintln!` panic if their reader is gone.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod cli;
pub mod clock;
pub mod control;
pub mod dashboard;
pub mod files;
mod format;
pub mod host;
pub mod http_api;
pub mod message;
pub mod metrics;
pub mod queue;
pub mod runtime;
pub mod schedule;
pub mod spans;
pub mod store;
pub mod text;
mod tls_roots;
pub mod verdict;

pub use queue::{Queue, QueueError, Received};
