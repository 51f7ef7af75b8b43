//! What handlers may do beyond computing, and that one message has one live handler.

mod asynchronous;
mod bombs;
mod compile;
mod foreign;
mod hostile;
mod http;
mod leaks;
mod log;
mod outbox;
mod overlap;
mod records;
mod sdk;
mod shares;
mod stops;
mod web;
