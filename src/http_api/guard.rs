//! What every request has to pass: where it comes from, who asks, and how many there are.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::clients::{ClientKey, UnderWay};
use super::listener::Peer;
use super::problem::Problem;
use super::tokens::{Grant, TokenDigest};

/// How long a request may take in all.
const REQUEST_LIMIT: Duration = Duration::from_mins(1);

/// How long a request may wait for the end of a message.
pub(super) const WAIT_MAX: Duration = Duration::from_mins(1);

/// Paths that need no token: programs that watch a process have none.
const OPEN_PATHS: [&str; 2] = ["/livez", "/readyz"];

/// What browsers tell of where a request comes from.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Cancelled when the client has gone, or has its answer.
#[derive(Debug, Clone)]
pub(super) struct ClientGone(pub CancellationToken);

/// Who asks; none where no tokens are needed.
#[derive(Debug, Clone)]
pub(super) struct Client(pub Option<Holder>);

/// The holder of a token.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub token: TokenDigest,
    /// What the token allowed when the request came.
    pub grant: Arc<Grant>,
}

/// Passes a request on, or refuses it. It runs in a task of its own: if its client goes away, what has
/// begun ends all the same, and no connection to the store is thrown away.
pub(super) async fn guard(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    let has_encoding = request.headers().contains_key(header::TRANSFER_ENCODING);
    let gone = CancellationToken::new();
    request.extensions_mut().insert(ClientGone(gone.clone()));
    let _gone = gone.drop_guard();
    let limit = limit(&request);
    let mut response = match admit(&shared, &mut request) {
        Ok(under_way) => {
            let task = tokio::spawn(async move {
                let response = tokio::time::timeout(limit, next.run(request)).await;
                drop(under_way);
                response
            });
            match task.await {
                Ok(Ok(response)) => response,
                Ok(Err(_)) => Problem::try_again(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("it was not done within {limit:?}; some of it may have been"),
                )
                .into_response(),
                Err(_) => {
                    let detail = "a bug in dqhost; its log says more";
                    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).into_response()
                }
            }
        }
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    if has_encoding {
        // If a proxy saw another end of this body, what follows is no request.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// How long a request may take: one that waits for the end of a message, so much longer.
fn limit(request: &Request) -> Duration {
    let query = request.uri().query();
    if query.is_some_and(|query| query.contains("wait=")) {
        REQUEST_LIMIT + WAIT_MAX
    } else {
        REQUEST_LIMIT
    }
}

fn admit(shared: &Shared, request: &mut Request) -> Result<UnderWay, Problem> {
    let peer = request.extensions().get::<Peer>().copied();
    let peer =
        peer.ok_or_else(|| Problem::forbidden("the connection of this request is not known"))?;
    let headers = request.headers();
    let path = request.uri().path();
    let is_signed = is_webhook(request.method(), path);
    let tokens = shared.tokens();
    let is_open = tokens.is_none() && !is_signed;
    check_host(headers, request.uri().authority(), is_open, peer)?;
    let holder = match tokens {
        Some(tokens) if !is_signed && !OPEN_PATHS.contains(&path) => {
            let token = TokenDigest::of(bearer(headers)?);
            let grant = tokens.find(&token);
            let grant = grant.ok_or_else(|| unauthorized("the token is not known"))?;
            Some(Holder { token, grant })
        }
        _ => None,
    };
    let key = match &holder {
        Some(holder) => ClientKey::Token(holder.grant.name.clone()),
        None if is_signed => ClientKey::Unsigned(peer),
        None => ClientKey::Peer(peer),
    };
    let under_way = shared.clients.begin(key.clone())?;
    request.extensions_mut().insert(key);
    if !is_signed {
        // Whoever may only sign is no client that may do anything else.
        request.extensions_mut().insert(Client(holder));
    }
    Ok(under_way)
}

/// Whether it is for [`super::webhooks`], which has a check of its own.
fn is_webhook(method: &Method, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    *method == Method::POST && matches!(parts[..], ["", "queues", _, "webhooks"])
}

/// The value of a header that may be there once.
pub(super) fn single<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Problem::bad_request(format!("{name} is there twice")));
    }
    std::str::from_utf8(value.as_bytes())
        .map(Some)
        .map_err(|_| Problem::bad_request(format!("{name} is not text")))
}

/// Refuses what a page of another site makes a browser send. Without tokens, every program on this
/// machine may ask, so a name that is made to point to this machine must not help such a page either.
fn check_host(
    headers: &HeaderMap,
    authority: Option<&Authority>,
    is_open: bool,
    peer: Peer,
) -> Result<(), Problem> {
    let host = single(headers, &header::HOST)?
        .ok_or_else(|| Problem::bad_request("the header host is missing"))?;
    let name = host
        .parse::<Authority>()
        .map_err(|_| Problem::bad_request("the header host is not understood"))?;
    let is_foreign = |name: &Authority| is_open && peer != Peer::Unix && !is_this_machine(name);
    if is_foreign(&name) || authority.is_some_and(is_foreign) {
        return Err(Problem::forbidden(
            "without tokens, only localhost and the addresses of this machine's loopback are \
             taken as the host",
        ));
    }
    let site = single(headers, &HeaderName::from_static(SEC_FETCH_SITE))?;
    let origin = single(headers, &header::ORIGIN)?;
    let is_own = |origin: &str| {
        let (_, at) = origin.split_once("://").unwrap_or_default();
        at.eq_ignore_ascii_case(host)
    };
    if origin.is_some_and(|origin| !is_own(origin))
        || site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
    {
        return Err(Problem::forbidden(
            "pages of other sites may send no requests here",
        ));
    }
    Ok(())
}

fn is_this_machine(name: &Authority) -> bool {
    let host = name.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail)
}

fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    const FORM: &str = "give a token: authorization: Bearer TOKEN";
    let value = single(headers, &header::AUTHORIZATION)?.ok_or_else(|| unauthorized(FORM))?;
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(unauthorized(FORM)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    fn checked(host: &str, more: &[(&str, &str)], is_open: bool, peer: Peer) -> Option<u16> {
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, host.parse().unwrap());
        for (name, value) in more {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let outcome = check_host(&headers, None, is_open, peer);
        outcome.err().map(|problem| problem.status.as_u16())
    }

    #[test]
    fn names_of_others_and_pages_of_others_are_refused() {
        let tcp = Peer::Tcp(IpAddr::from([127, 0, 0, 1]));
        for host in [
            "localhost",
            "LOCALHOST:7420",
            "127.0.0.1:80",
            "[::1]:1",
            "127.9.9.9",
        ] {
            assert_eq!(checked(host, &[], true, tcp), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7420",
            "localhost.evil.example",
            "10.0.0.1",
        ] {
            assert_eq!(checked(host, &[], true, tcp), Some(403), "{host}");
            assert_eq!(checked(host, &[], false, tcp), None, "{host}");
            assert_eq!(checked(host, &[], true, Peer::Unix), None, "{host}");
        }
        assert_eq!(checked("a b", &[], true, tcp), Some(400));
        for is_open in [true, false] {
            let asked = |more: &[(&str, &str)]| checked("localhost:1", more, is_open, tcp);
            assert_eq!(asked(&[("origin", "http://localhost:1")]), None);
            assert_eq!(asked(&[("sec-fetch-site", "same-origin")]), None);
            for (name, value) in [
                ("origin", "http://localhost:2"),
                ("origin", "http://evil.example"),
                ("origin", "null"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-site", "same-site"),
            ] {
                assert_eq!(asked(&[(name, value)]), Some(403), "{value}");
            }
            assert_eq!(asked(&[("host", "localhost:1")]), Some(400));
        }
    }
}
