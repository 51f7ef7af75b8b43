//! Requests to the servers that handlers come from. What they answer is bounded in bytes and time.

use std::borrow::Cow;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::tls_roots::tls;

/// For all that is asked of a server for one handler.
const TIME_MAX: Duration = Duration::from_mins(1);

/// Until a connection is there.
const CONNECT_MAX: Duration = Duration::from_secs(10);

const REDIRECTS_MAX: usize = 5;

/// Bytes of an answer that say what went wrong.
const SHOWN: usize = 200;

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub method: Method,
    pub url: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The most bytes that the answer may have, and what allows more.
    pub max: usize,
    pub remedy: &'static str,
}

impl Ask {
    pub(super) fn get(url: Uri, max: usize) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            max,
            remedy: "",
        }
    }

    /// The same for a component.
    pub(super) fn of_component(url: Uri, max: usize) -> Self {
        Self {
            remedy: " (--limit component-bytes)",
            ..Self::get(url, max)
        }
    }
}

/// An answer, whatever its status.
#[derive(Debug)]
pub(super) struct Answer {
    /// Who gave it: redirections may lead to another server.
    pub from: Uri,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    /// The answer if it is a success.
    pub(super) fn ok(self, url: &Uri) -> Result<Self, String> {
        if self.status.is_success() {
            return Ok(self);
        }
        let shown = &self.body[..self.body.len().min(SHOWN)];
        let shown = String::from_utf8_lossy(shown);
        let url = self::shown(url);
        Err(format!("{url} answered {}: {}", self.status, shown.trim()))
    }
}

/// A URL as it is shown: what stands behind a question mark may be a secret.
pub(super) fn shown(url: &Uri) -> String {
    let text = url.to_string();
    match text.split_once('?') {
        Some((place, _)) => format!("{place}?..."),
        None => text,
    }
}

/// The same of a user and a password, which no URL is to have.
pub(super) fn without_user(text: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.into();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://...@{host}{path}").into(),
        None => text.into(),
    }
}

/// A URL with a host, and without a user.
pub(super) fn url(text: &str) -> Result<Uri, String> {
    let refusal = || {
        let place = without_user(text.split_once('?').map_or(text, |(place, _)| place));
        format!("{place} is no URL such as https://host/path, without a user in it")
    };
    let url: Uri = text.parse().map_err(|_| refusal())?;
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    let host = url.authority().filter(|host| !host.as_str().contains('@'));
    if !is_web || host.is_none() || url.host().is_none_or(str::is_empty) {
        return Err(refusal());
    }
    Ok(url)
}

/// Waits for it in a thread of its own, since this one may already work for others.
pub(super) fn blocking<T: Send>(
    work: impl Future<Output = Result<T, String>> + Send,
) -> Result<T, String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let work = async { timeout(TIME_MAX, work).await };
        runtime
            .block_on(work)
            .unwrap_or_else(|_| Err(format!("the server took more than {TIME_MAX:?}")))
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(run);
        thread
            .join()
            .unwrap_or_else(|_| Err("a bug: the request panicked".to_owned()))
    })
}

/// What is at a URL.
pub(super) async fn get(ask: Ask) -> Result<Vec<u8>, String> {
    let url = ask.url.clone();
    let answer = send(ask).await?;
    Ok(answer.ok(&url)?.body)
}

/// The same; none if the server says that nothing is there.
pub(super) async fn find(ask: Ask) -> Result<Option<Vec<u8>>, String> {
    let url = ask.url.clone();
    let answer = send(ask).await?;
    match answer.status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
        _ => Ok(Some(answer.ok(&url)?.body)),
    }
}

/// Sends a request, and follows redirections of one that only reads.
pub(super) async fn send(mut ask: Ask) -> Result<Answer, String> {
    for _ in 0..=REDIRECTS_MAX {
        let answer = exchange(&ask).await?;
        let next = answer.headers.get(LOCATION);
        let Some(next) =
            next.filter(|_| answer.status.is_redirection() && ask.method == Method::GET)
        else {
            return Ok(answer);
        };
        let next = resolve(&ask.url, next)?;
        if next.authority() != ask.url.authority() {
            // A token is for the server that gave it.
            ask.headers.remove(AUTHORIZATION);
        }
        ask.url = next;
    }
    Err(format!(
        "more than {REDIRECTS_MAX} redirections, the last to {}",
        shown(&ask.url)
    ))
}

/// A place that a server has named. It leads from a safe connection to no other.
pub(super) fn resolve(from: &Uri, place: &HeaderValue) -> Result<Uri, String> {
    let text = place
        .to_str()
        .map_err(|_| "a place that is no text".to_owned())?;
    let next = if text.starts_with('/') && !text.starts_with("//") {
        let (scheme, host) = (from.scheme_str(), from.authority());
        let host = host.map_or("", |host| host.as_str());
        url(&format!("{}://{host}{text}", scheme.unwrap_or("https")))?
    } else {
        url(text)?
    };
    if from.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
        let (from, next) = (shown(from), shown(&next));
        return Err(format!("{from} leads to {next}, which is not encrypted"));
    }
    Ok(next)
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn connect(url: &Uri) -> Result<Box<dyn Stream>, String> {
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_safe = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if is_safe { 443 } else { 80 });
    let away = |reason: String| format!("{host}:{port} is not reached: {reason}");
    let stream = timeout(CONNECT_MAX, TcpStream::connect((host, port)))
        .await
        .map_err(|_| away(format!("no connection within {CONNECT_MAX:?}")))?
        .map_err(|error| away(error.to_string()))?;
    if !is_safe {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|error| away(error.to_string()))?;
    let connector = TlsConnector::from(tls());
    let stream = connector.connect(name, stream).await;
    Ok(Box::new(stream.map_err(|error| away(error.to_string()))?))
}

/// One request over a connection of its own.
async fn exchange(ask: &Ask) -> Result<Answer, String> {
    let url = &ask.url;
    let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", shown(url));
    let stream = connect(url).await?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(Full::new(ask.body.clone()));
    *request.method_mut() = ask.method.clone();
    *request.uri_mut() = path.parse().map_err(|error| fail(&error))?;
    *request.headers_mut() = ask.headers.clone();
    let host = url.authority().map_or("", |host| host.as_str());
    let host = HeaderValue::from_str(host).map_err(|error| fail(&error))?;
    request.headers_mut().insert(HOST, host);
    let agent = concat!("dqhost/", env!("CARGO_PKG_VERSION"));
    let agent = HeaderValue::from_static(agent);
    request.headers_mut().insert(USER_AGENT, agent);
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|error| fail(&error))?;
    // It ends with the runtime of this request.
    tokio::spawn(connection);
    let response = sender.send_request(request).await;
    let (head, mut body) = response.map_err(|error| fail(&error))?.into_parts();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| fail(&error))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if data.len() > ask.max.saturating_sub(bytes.len()) {
            let (url, max, remedy) = (shown(url), ask.max, ask.remedy);
            return Err(format!("{url} has more than {max} bytes{remedy}"));
        }
        bytes.extend_from_slice(data);
    }
    Ok(Answer {
        from: url.clone(),
        status: head.status,
        headers: head.headers,
        body: bytes,
    })
}

/// True for a host that is this machine, so that nobody else reads along.
pub(super) fn is_loopback(host: &str) -> bool {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    name == "localhost"
        || name
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_leads_from_a_safe_connection_to_no_other() {
        let from = url("https://example.com/a/b").unwrap();
        let to = |place: &'static str| {
            let place = HeaderValue::from_static(place);
            resolve(&from, &place).map(|url| url.to_string())
        };
        assert_eq!(to("/c?d").unwrap(), "https://example.com/c?d");
        assert_eq!(
            to("https://cdn.example/x").unwrap(),
            "https://cdn.example/x"
        );
        for bad in ["http://example.com/", "//example.com/", "ftp://x/", "c", ""] {
            assert!(to(bad).is_err(), "{bad}");
        }
    }
}
