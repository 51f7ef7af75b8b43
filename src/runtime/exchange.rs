//! One request and its response over a connection that is there.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::ext::on_informational;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, WasiBody};

use super::connections::Cut;
use super::run_lines::of_this_run;
use super::shares::Held;
use super::timed::{Timed, broken};

/// Bytes that are read ahead of a response.
const READ_AHEAD: usize = 64 * 1024;

/// Informational (1xx) responses that may come before the response. They cost the guest nothing and the
/// host time, so a server must not send them without end. Five is what Go's client takes
/// (`max1xxResponses` in net/http).
const INFORMATIONAL_MAX: usize = 5;

/// A future on its way to wasmtime.
pub(super) type Boxed<T> = Box<dyn Future<Output = T> + Send>;

/// What a request becomes: the response, and what drives the rest of its connection.
pub(super) type Exchange = (http::Response<WasiBody>, Boxed<Result<(), Error>>);

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection, and the share of the host's connections that it is.
pub(super) struct Connected {
    pub stream: Box<dyn Stream>,
    pub cut: Cut,
    pub share: Held,
}

/// When an exchange ends if nothing comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub first_byte: Instant,
    pub between_bytes: Option<Duration>,
    pub end: Instant,
}

/// Sends the request and waits for the head of its response.
pub(super) async fn exchange(
    Connected { stream, cut, share }: Connected,
    mut request: http::Request<WasiBody>,
    times: Times,
) -> Result<Exchange, Error> {
    // What is sent names the path alone; the host is in its header.
    *request.uri_mut() = request
        .uri()
        .path_and_query()
        .map_or(Ok(http::Uri::from_static("/")), |path| {
            http::Uri::builder().path_and_query(path.clone()).build()
        })
        .map_err(|_| Error::HttpRequestUriInvalid)?;
    let informational = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&informational);
    // Here, and not by whoever waits for the response: while more comes, nobody else may get a turn.
    on_informational(&mut request, move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == INFORMATIONAL_MAX {
            cut.close();
        }
    });
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(READ_AHEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(&error))?;
    // Ends when it is dropped, at the latest with the guest, and when its time is over: a body that
    // the guest does not read keeps no connection.
    let connection = wasmtime_wasi::runtime::spawn(of_this_run(async move {
        let _share = share;
        timeout_at(times.end, connection).await
    }));
    let response = timeout_at(times.first_byte, sender.send_request(request))
        .await
        .map_err(|_| Error::ConnectionReadTimeout)?
        .map_err(|error| {
            if informational.load(Ordering::Relaxed) > INFORMATIONAL_MAX {
                Error::HttpProtocolError
            } else if Instant::now() < times.end {
                broken(&error)
            } else {
                // Its connection may have ended with its time, a moment before.
                Error::ConnectionReadTimeout
            }
        })?;
    let (between, end) = (times.between_bytes, times.end);
    let response = response.map(|body| Timed::new(body, between, end).boxed_unsync());
    let rest = async move {
        // The body has told what went wrong.
        let _ = connection.await;
        Ok(())
    };
    Ok((response, Box::new(rest)))
}
