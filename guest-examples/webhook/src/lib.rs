//! Posts the payload to a URL, and takes the other side's word for it.
//!
//! ```sh
//! dqhost --handler webhook.wasm --allow-http hooks.example.com \
//!     --env WEBHOOK_URL=https://hooks.example.com/orders \
//!     --secret-file WEBHOOK_AUTHORIZATION=/etc/dqhost/authorization
//! ```
//!
//! The URL is the message's header `url`; without it, the environment variable `WEBHOOK_URL`.
//! `--allow-http` says which hosts may be asked at all: whoever may send messages chooses among
//! these. Only `WEBHOOK_URL` is told `WEBHOOK_AUTHORIZATION`.
//!
//! The request has these headers, whatever else it has:
//!
//! * `content-type`: the message's header of that name, else `application/octet-stream`;
//! * `idempotency-key`: the message's id, the same in each attempt;
//! * `x-attempt`: the number of the attempt;
//! * `authorization`: the environment variable `WEBHOOK_AUTHORIZATION`, when it is set and the
//!   message names no URL of its own;
//! * `webhook-id`, `webhook-timestamp` and `webhook-signature`, as Standard Webhooks has them, when the
//!   environment variable `WEBHOOK_SECRET` is set (`whsec_...`) and the message names no URL of its own.
//!
//! A message's header `http-NAME` goes along as `NAME`, unless the host forbids it.
//!
//! What comes of it:
//!
//! * 2xx: ack;
//! * 408, 429 and 5xx: nack, for as long as `Retry-After` says, else for the queue's back-off;
//! * any other status: reject, since asking again cannot help. Redirects are not followed;
//! * no answer, or a host that may not be asked: nack;
//! * no URL, or one that is none: reject.

wit_bindgen::generate!({ path: "../../wit", world: "consumer" });

use std::io::{Read, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use dqhost::queue::delivery;
use dqhost::queue::types::{Message, Nack, Verdict};
use exports::dqhost::queue::handler::Guest;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, RequestOptions,
    Scheme,
};

/// So many bytes of an answer's body go into the reason.
const BODY_SHOWN: u64 = 200;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let named = header(&msg, "url").map(str::to_owned);
        let of_ours = |name: &str| match named {
            Some(_) => None,
            None => std::env::var(name).ok(),
        };
        let authorization = of_ours("WEBHOOK_AUTHORIZATION");
        let signed = of_ours("WEBHOOK_SECRET").map(|secret| signed(&msg, &secret));
        let signed = match signed.transpose() {
            Ok(signed) => signed.unwrap_or_default(),
            Err(reason) => return nack(None, reason),
        };
        let Some(url) = named.or_else(|| std::env::var("WEBHOOK_URL").ok()) else {
            return Verdict::Reject(
                "no URL: the message has no header `url`, and WEBHOOK_URL is not set".to_owned(),
            );
        };
        let more = authorization.map(|value| ("authorization", value));
        let more: Vec<_> = more.into_iter().chain(signed).collect();
        let request = match request(&url, &msg, &more) {
            Ok(request) => request,
            Err(reason) => return Verdict::Reject(reason),
        };
        // What follows a question mark may be a secret.
        let shown = url.split('?').next().unwrap_or_default();
        match post(request, &msg.payload) {
            Ok(response) => {
                println!("POST {shown} -> {}", response.status());
                judge(&response)
            }
            Err(error) => {
                let reason = words(&error);
                println!("POST {shown} -> {reason}");
                nack(None, reason)
            }
        }
    }
}

fn header<'a>(msg: &'a Message, name: &str) -> Option<&'a str> {
    let mut all = msg.headers.iter();
    all.find(|(key, _)| key == name).map(|(_, value)| &**value)
}

fn nack(delay_ms: Option<u64>, reason: String) -> Verdict {
    Verdict::Nack(Nack {
        delay_ms,
        reason: Some(reason),
    })
}

/// The request without its body, or why there can be none.
fn request(url: &str, msg: &Message, more: &[(&str, String)]) -> Result<OutgoingRequest, String> {
    let (scheme, authority, path) = parts(url).ok_or_else(|| {
        format!("{url:?} is not a URL such as https://host/path, without a user in it")
    })?;
    let request = OutgoingRequest::new(fields(msg, more)?);
    request
        .set_method(&Method::Post)
        .and_then(|()| request.set_scheme(Some(&scheme)))
        .and_then(|()| request.set_authority(Some(authority)))
        .and_then(|()| request.set_path_with_query(Some(&path)))
        .map_err(|()| format!("{url:?} is not a URL"))?;
    Ok(request)
}

/// The scheme, the host with its port, and the path with its query.
fn parts(url: &str) -> Option<(Scheme, &str, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let slash = if path.starts_with('/') { "" } else { "/" };
    let host = !authority.is_empty() && !authority.starts_with(':') && !authority.contains('@');
    host.then(|| (scheme, authority, format!("{slash}{path}")))
}

/// The headers that prove who sends this: HMAC-SHA256 over the id, the time and the payload. Each attempt
/// has the same id and a time of its own.
fn signed(msg: &Message, secret: &str) -> Result<Vec<(&'static str, String)>, String> {
    let refusal = || "WEBHOOK_SECRET is not whsec_ and a secret in Base64".to_owned();
    let secret = secret.trim().strip_prefix("whsec_").ok_or_else(refusal)?;
    let secret = STANDARD_NO_PAD
        .decode(secret.trim_end_matches('='))
        .map_err(|_| refusal())?;
    let mut hmac = Hmac::<Sha256>::new_from_slice(&secret).map_err(|_| refusal())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs().to_string();
    hmac.update(format!("{}.{now}.", msg.id).as_bytes());
    hmac.update(&msg.payload);
    let signature = STANDARD.encode(hmac.finalize().into_bytes());
    Ok(vec![
        ("webhook-id", msg.id.clone()),
        ("webhook-timestamp", now),
        ("webhook-signature", format!("v1,{signature}")),
    ])
}

/// The message's own ones first, so that those which are always there win.
fn fields(msg: &Message, more: &[(&str, String)]) -> Result<Fields, String> {
    let fields = Fields::new();
    for (key, value) in &msg.headers {
        if let Some(name) = key.strip_prefix("http-") {
            // What the host forbids is left out.
            let _ = fields.append(name, value.as_bytes());
        }
    }
    let set = |name: &str, value: &str| {
        fields
            .set(name, &[value.trim().as_bytes().to_vec()])
            .map_err(|error| format!("the request's header {name}: {error}"))
    };
    let kind = header(msg, "content-type").unwrap_or("application/octet-stream");
    set("content-type", kind)?;
    set("content-length", &msg.payload.len().to_string())?;
    set("idempotency-key", &msg.id)?;
    set("x-attempt", &msg.attempt.to_string())?;
    for (name, value) in more {
        set(name, value)?;
    }
    Ok(fields)
}

fn post(request: OutgoingRequest, payload: &[u8]) -> Result<IncomingResponse, ErrorCode> {
    let nothing = |()| ErrorCode::InternalError(None);
    let body = request.body().map_err(nothing)?;
    let answer = outgoing_handler::handle(request, Some(options()))?;
    // The stream takes as much at a time as the host permits. That it ends early is not yet an
    // error: what the other side answers, or why it does not, is told by the answer.
    let written = body.write().is_ok_and(|mut stream| {
        let all = stream.write_all(payload);
        all.and_then(|()| Write::flush(&mut stream)).is_ok()
    });
    if written {
        let _ = OutgoingBody::finish(body, None);
    }
    answer.subscribe().block();
    match answer.get() {
        Some(Ok(response)) => response,
        _ => Err(ErrorCode::InternalError(None)),
    }
}

/// No wait is longer than nine tenths of what is left of this attempt: then there is still time to
/// say what it waited for.
fn options() -> RequestOptions {
    let wait = Duration::from_millis(delivery::remaining_ms()) * 9 / 10;
    let nanos = u64::try_from(wait.as_nanos()).ok();
    let options = RequestOptions::new();
    // A host that does not take one of them has its own.
    let _ = options.set_connect_timeout(nanos);
    let _ = options.set_first_byte_timeout(nanos);
    let _ = options.set_between_bytes_timeout(nanos);
    options
}

fn words(error: &ErrorCode) -> String {
    match error {
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => {
            "dqhost does not allow a request to this host (--allow-http)".to_owned()
        }
        ErrorCode::InternalError(Some(words)) => words.clone(),
        other => other.to_string().replace("ErrorCode::", ""),
    }
}

fn judge(response: &IncomingResponse) -> Verdict {
    let status = response.status();
    match status {
        200..=299 => Verdict::Ack,
        300..=399 => {
            let to = field(response, "location").map_or_else(String::new, |to| format!(" to {to}"));
            Verdict::Reject(format!(
                "HTTP {status}: it redirects{to}, which is not followed"
            ))
        }
        408 | 429 | 500..=599 => {
            let delay = field(response, "retry-after").and_then(|when| delay_ms(&when));
            nack(delay, reason(response))
        }
        _ => Verdict::Reject(reason(response)),
    }
}

fn field(response: &IncomingResponse, name: &str) -> Option<String> {
    let value = response.headers().get(name).into_iter().next()?;
    Some(String::from_utf8_lossy(&value).trim().to_owned())
}

/// The status, and how the body begins.
fn reason(response: &IncomingResponse) -> String {
    let mut shown = Vec::new();
    if let Ok(body) = response.consume()
        && let Ok(stream) = body.stream()
    {
        // A body that breaks off is shown as far as it came.
        let _ = stream.take(BODY_SHOWN).read_to_end(&mut shown);
    }
    match String::from_utf8_lossy(&shown).trim() {
        "" => format!("HTTP {}", response.status()),
        text => format!("HTTP {}: {text}", response.status()),
    }
}

/// How long `Retry-After` says to wait: a number of seconds, or a date.
fn delay_ms(when: &str) -> Option<u64> {
    if let Ok(seconds) = when.parse::<u64>() {
        return Some(seconds.saturating_mul(1000));
    }
    let due = UNIX_EPOCH + Duration::from_secs(unix_seconds(when)?);
    let wait = due.duration_since(SystemTime::now()).unwrap_or_default();
    u64::try_from(wait.as_millis()).ok()
}

/// The time that a date such as `Sun, 06 Nov 1994 08:49:37 GMT` names.
fn unix_seconds(date: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb",
    ];
    let words = date.split(' ').collect::<Vec<_>>();
    let [_, day, month, year, time, "GMT"] = words[..] else {
        return None;
    };
    let clock = time.split(':').collect::<Vec<_>>();
    let [hours, minutes, seconds] = clock[..] else {
        return None;
    };
    let number = |text: &str| text.parse::<u16>().ok().map(u64::from);
    // Years that begin in March have their leap day at the end.
    let month = MONTHS.iter().position(|name| *name == month)? as u64;
    let year = number(year)?.checked_sub(u64::from(month >= 10))?;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 306 + 5) / 10;
    let days = (days + number(day)?).checked_sub(719_469)?;
    Some(((days * 24 + number(hours)?) * 60 + number(minutes)?) * 60 + number(seconds)?)
}

export!(Handler);
