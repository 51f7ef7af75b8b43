//! Runs a handler's function in `cargo test`.
//!
//! It runs as an ordinary function: memory, time and permissions have no limit. `dqhost run` has them.

use std::cell::RefCell;
use std::time::Duration;

use crate::error::End;
use crate::http::{self, Request, Response};
use crate::{Message, Outgoing, Result};

/// What becomes of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Ack,
    /// It is retried.
    Nack {
        /// How long to wait; none for the queue's back-off.
        delay: Option<Duration>,
        /// Why.
        reason: String,
    },
    /// It becomes a dead letter, with this reason.
    Reject(String),
}

/// What came of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The handler's answer.
    pub verdict: Verdict,
    /// What it sent; empty unless it acked.
    pub sent: Vec<Outgoing>,
    /// What it returned by [`crate::result::set`]; none unless it acked.
    pub result: Option<Vec<u8>>,
    /// The HTTP requests that it made.
    pub requests: Vec<Request>,
}

/// What answers the HTTP requests of a run.
type Web = Box<dyn FnMut(&Request) -> Result<Response, http::Error>>;

/// The run that goes on in this thread.
struct Context {
    sent: Vec<Outgoing>,
    result: Option<Vec<u8>>,
    requests: Vec<Request>,
    /// None while it answers.
    web: Option<Web>,
}

thread_local! {
    static CONTEXT: RefCell<Option<Context>> = const { RefCell::new(None) };
}

/// Ends the run in this thread, also if the handler panics.
struct Entered;

impl Entered {
    fn new(web: Web) -> Self {
        let context = Context {
            sent: Vec::new(),
            result: None,
            requests: Vec::new(),
            web: Some(web),
        };
        let before = CONTEXT.replace(Some(context));
        assert!(before.is_none(), "a handler runs in this thread already");
        Self
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CONTEXT.take();
    }
}

/// Runs a handler's function once. HTTP requests get the status 200 and an empty body.
///
/// # Panics
///
/// If the handler does.
pub fn run(handle: impl FnOnce(&Message) -> Result, message: &Message) -> Run {
    run_with_http(handle, message, |_| Ok(Response::new(200)))
}

/// Runs a handler's function once. Its HTTP requests are answered by `web`.
///
/// # Panics
///
/// If the handler does.
pub fn run_with_http(
    handle: impl FnOnce(&Message) -> Result,
    message: &Message,
    web: impl FnMut(&Request) -> Result<Response, http::Error> + 'static,
) -> Run {
    let entered = Entered::new(Box::new(web));
    let answer = handle(message);
    let (sent, result, requests) = CONTEXT.with_borrow_mut(|context| {
        let context = context.take();
        context.map_or_else(Default::default, |context| {
            (context.sent, context.result, context.requests)
        })
    });
    drop(entered);
    let verdict = match answer {
        Ok(()) => {
            return Run {
                verdict: Verdict::Ack,
                sent,
                result,
                requests,
            };
        }
        Err(error) => match error.end {
            End::Retry(delay) => Verdict::Nack {
                delay,
                reason: error.reason,
            },
            End::Reject => Verdict::Reject(error.reason),
        },
    };
    Run {
        verdict,
        sent: Vec::new(),
        result: None,
        requests,
    }
}

mod host {
    use super::{CONTEXT, Context, Outgoing, Request, Response, Web, http};
    use crate::SendError;
    use crate::result::SetError;

    /// As a host has it unless it is set otherwise.
    const RESULT_MAX: usize = 64 * 1024;

    const OUTSIDE: &str = "no handler runs in this thread: use dqhost_handler::testing::run";

    fn with<T>(what: impl FnOnce(&mut Context) -> T) -> T {
        CONTEXT.with_borrow_mut(|context| what(context.as_mut().expect(OUTSIDE)))
    }

    pub(crate) fn send(message: Outgoing) -> Result<String, SendError> {
        with(|context| {
            context.sent.push(message);
            Ok(format!(
                "00000000-0000-8000-8000-{:012}",
                context.sent.len()
            ))
        })
    }

    pub(crate) fn set_result(bytes: &[u8]) -> Result<(), SetError> {
        if bytes.len() > RESULT_MAX {
            return Err(SetError::TooLarge(RESULT_MAX as u64));
        }
        with(|context| context.result = Some(bytes.to_vec()));
        Ok(())
    }

    pub(crate) fn fetch(request: &Request) -> Result<Response, http::Error> {
        // Whatever it does is done without a borrow.
        let web: Option<Web> = with(|context| context.web.take());
        let mut web = web.expect("a request is made while another one is answered");
        let answer = web(request);
        with(|context| {
            context.web = Some(web);
            context.requests.push(request.clone());
        });
        answer
    }
}

pub(crate) use host::{fetch, send, set_result};
