//! Every test that needs more than one module, in one binary: real Redis servers, real components,
//! the real program.

#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]
#![expect(
    clippy::cloned_ref_to_slice_refs,
    reason = "a list of one reads like a list"
)]

mod audit;
mod auto_slots;
mod bindings;
mod broken;
mod cancel_kill;
mod claims;
mod cli;
mod component;
mod config;
mod contract;
mod corrupt;
mod crashes;
mod dashboard;
mod deb;
mod dedup;
mod dev;
mod docs;
mod doctor;
mod dropped;
mod ended;
mod events;
mod examples;
mod expiry;
mod fair;
mod file;
mod first_handler;
mod guests;
mod handlers;
mod host;
mod http_api;
mod image;
mod interop;
mod kills;
mod layers;
mod limits;
mod lua;
mod model;
mod names;
mod new;
mod passed_sockets;
mod pipeline;
mod private;
mod queue;
mod raw;
mod release;
mod reload;
mod repeats;
mod replay;
mod requests;
mod retries;
mod sandbox;
mod schedule;
mod servers;
mod service;
mod settings;
mod source;
mod support;
mod topics;
mod transfer;
mod unbegun;
mod week;
mod with_delayqueue;
