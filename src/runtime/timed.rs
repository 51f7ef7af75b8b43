//! The body of a response, which has to arrive in time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::Error;

/// A response's body that ends with an error when its time is over.
pub(super) struct Timed {
    body: Incoming,
    between: Option<Duration>,
    end: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Timed {
    pub(super) fn new(body: Incoming, between: Option<Duration>, end: Instant) -> Self {
        let mut timed = Self {
            body,
            between,
            end,
            sleep: Box::pin(tokio::time::sleep_until(end)),
        };
        timed.start_again();
        timed
    }

    fn start_again(&mut self) {
        let next = self
            .between
            .and_then(|between| Instant::now().checked_add(between));
        let end = next.map_or(self.end, |next| next.min(self.end));
        self.sleep.as_mut().reset(end);
    }
}

impl Body for Timed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if Instant::now() >= self.end {
            return Poll::Ready(Some(Err(Error::HttpResponseTimeout)));
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.start_again();
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| broken(&error))));
        }
        self.sleep
            .as_mut()
            .poll(cx)
            .map(|()| Some(Err(Error::HttpResponseTimeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pub(super) fn broken(error: &hyper::Error) -> Error {
    if error.is_parse() {
        Error::HttpProtocolError
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else {
        Error::ConnectionTerminated
    }
}
