//! Accepts connections and serves them, within limits, until told to stop.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::listener::{Accepted, Listener, Peer};
use super::timed::TimedStream;
use super::tls::{Certificate, SharedCertificate};

/// How long the head of a request may take to arrive, and how long a connection may be idle.
const HEADER_LIMIT: Duration = Duration::from_secs(10);

/// Bytes and lines of the head of a request.
const HEADER_BYTES_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 100;

/// Connections at a time, and the part of the files that this process may open which they may be.
const CONNECTIONS_MAX: usize = 1024;
const PART_OF_FILES: u64 = 4;

/// How long to wait when the system accepts no connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long requests may finish after it was told to stop.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// What a connection is told that is one too many.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: application/problem+json\r\ncontent-length: 112\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\"detail\":\"too many connections are open here\"}\n";

/// Connections at a time: fewer where few files may be open, so that the host beside keeps enough.
fn connections_max() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let part = usize::try_from(files / PART_OF_FILES).unwrap_or(usize::MAX);
    part.clamp(8, CONNECTIONS_MAX)
}

/// Serves until `stop` is true, then ends what has begun within 5 s.
pub(super) async fn serve(
    listener: Listener,
    router: Router,
    certificate: Option<SharedCertificate>,
    mut stop: watch::Receiver<bool>,
) {
    let connections = Arc::new(Semaphore::new(connections_max()));
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        while tasks.try_join_next().is_some() {}
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!("no connection is accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            if certificate.is_none() {
                refuse(accepted).await;
            }
            continue;
        };
        let (router, stop, certificate) = (router.clone(), stop.clone(), certificate.clone());
        tasks.spawn(async move {
            match (accepted, certificate) {
                (Accepted::Tcp(stream, ip), None) => {
                    connection(stream, Peer::Tcp(ip), router, stop).await;
                }
                (Accepted::Tcp(stream, ip), Some(certificate)) => {
                    secured(stream, &certificate, Peer::Tcp(ip), router, stop).await;
                }
                (Accepted::Unix(stream), _) => connection(stream, Peer::Unix, router, stop).await,
            }
            drop(permit);
        });
    }
    drop(listener);
    let ended = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN_LIMIT, ended).await;
}

/// Returns when it was told to stop, or when nobody is left who could tell it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Says that there are too many connections, if that takes no time.
async fn refuse(accepted: Accepted) {
    let write = async {
        match accepted {
            Accepted::Tcp(mut stream, _) => stream.write_all(FULL).await,
            Accepted::Unix(mut stream) => stream.write_all(FULL).await,
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(10), write).await;
}

async fn secured(
    stream: TcpStream,
    certificate: &SharedCertificate,
    peer: Peer,
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let accepted = tokio::select! {
        accepted = Certificate::accept(certificate, stream) => accepted,
        () = stopped(&mut stop) => None,
    };
    if let Some(stream) = accepted {
        connection(stream, peer, router, stop).await;
    }
}

async fn connection<S>(stream: S, peer: Peer, router: Router, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    let stream = TokioIo::new(TimedStream::new(stream));
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_LIMIT)
            .max_buf_size(HEADER_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(stream, service)
    );
    let served = tokio::select! {
        served = connection.as_mut() => Some(served),
        () = stopped(&mut stop) => None,
    };
    let served = if let Some(served) = served {
        served
    } else {
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = served {
        tracing::debug!("a connection has ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_connection_too_many_is_told_has_its_length() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
        serde_json::from_str::<serde_json::Value>(body).unwrap();
    }
}
