//! Messages from others who sign them, as Standard Webhooks has it (standardwebhooks.com): HMAC-SHA256
//! over the id, the time and the body. Whoever can sign needs no token.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::body::content_type;
use super::guard::single;
use super::options::KEY_MAX;
use super::problem::Problem;
use super::schemas::{BodyProblem, WebhookProblem};
use super::send::{checked, send_one};
use super::tokens::{name_of, queues_of};
use super::{Answer, Shared, schemas};
use crate::clock::Clock;
use crate::format::message::{Repeats, with_key};
use crate::message::{NewMessage, QueueName};

/// What secrets begin with.
const SECRET_PREFIX: &str = "whsec_";

/// Bytes of a secret. The standard has 24 to 64, which not everyone keeps to.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=256;

/// How far the time of a request may be from ours, either way: so long can a request be repeated by
/// others who have seen it.
const TOLERANCE: Duration = Duration::from_mins(5);

/// Signatures of one request that are looked at. A sender that changes its secret sends two.
const SIGNATURES_MAX: usize = 8;

/// Bytes of a signature.
const SIGNATURE_BYTES: usize = 32;

/// Requests without a token that are worked on at a time, so that those with one have room.
pub(super) const UNDER_WAY_MAX: usize = 64;

/// KiB that their bodies may hold at a time.
pub(super) const MEMORY_KIB: usize = 16 * 1024;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Some encoders leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Keys that may be replaced by others while requests come.
pub type SharedWebhookKeys = Arc<RwLock<Arc<WebhookKeys>>>;

/// The keys of a file.
pub struct WebhookKeys(Vec<Key>);

/// A secret of a sender.
struct Key {
    /// None for all.
    queues: Option<BTreeSet<QueueName>>,
    hmac: Hmac<Sha256>,
}

impl fmt::Debug for WebhookKeys {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WebhookKeys").field(&self.0.len()).finish()
    }
}

impl WebhookKeys {
    /// Reads a file: a line for each secret with a name, queues (`*` for all) and `whsec_` with the secret
    /// in Base64. A name may be there several times, while its secret is being changed. Empty lines and
    /// lines that begin with `#` count for nothing. A file without a key lets nobody in, which takes the last
    /// sender out.
    ///
    /// # Errors
    ///
    /// In words, with the number of the line, and without any part of a secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let keys = lines
            .map(|(number, line)| {
                parse_line(line).map_err(|error| format!("line {}: {error}", number + 1))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self(keys))
    }

    /// Whether a sender of this queue has signed this.
    fn have_signed(&self, queue: &QueueName, request: &Signed<'_>, body: &[u8]) -> bool {
        self.of(queue).any(|key| {
            let mut hmac = key.hmac.clone();
            for part in [request.id, ".", request.timestamp, "."] {
                hmac.update(part.as_bytes());
            }
            hmac.update(body);
            let is_of = |signature: &Vec<u8>| hmac.clone().verify_slice(signature).is_ok();
            request.signatures.iter().any(is_of)
        })
    }

    fn of(&self, queue: &QueueName) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(move |key| {
            let queues = key.queues.as_ref();
            queues.is_none_or(|queues| queues.contains(queue))
        })
    }
}

fn parse_line(line: &str) -> Result<Key, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, queues, secret] = words.as_slice() else {
        return Err(format!(
            "it has {} words, and three are needed: NAME QUEUE[,QUEUE] whsec_SECRET",
            words.len()
        ));
    };
    // No refusal repeats a word: words in another order would show the secret.
    if name_of(name).is_err() {
        return Err(
            "the first word is no name: use letters, digits, dots, underscores and dashes"
                .to_owned(),
        );
    }
    let queues = queues_of(queues);
    let queues = queues.map_err(|_| "the second word must be names of queues, or *".to_owned())?;
    let refusal = || {
        format!(
            "the last word must be {SECRET_PREFIX} and a secret of {} to {} bytes in Base64",
            SECRET_BYTES.start(),
            SECRET_BYTES.end()
        )
    };
    let secret = secret.strip_prefix(SECRET_PREFIX).ok_or_else(refusal)?;
    let secret = BASE64.decode(secret).map_err(|_| refusal())?;
    if !SECRET_BYTES.contains(&secret.len()) {
        return Err(refusal());
    }
    Ok(Key {
        queues,
        hmac: Hmac::new_from_slice(&secret).map_err(|_| refusal())?,
    })
}

/// What the headers of a signed request say.
struct Signed<'h> {
    id: &'h str,
    timestamp: &'h str,
    /// Those of the version that has a shared secret.
    signatures: Vec<Vec<u8>>,
}

impl<'h> Signed<'h> {
    /// Refuses what is signed with another time than about now.
    fn read(headers: &'h HeaderMap, now_ms: u64) -> Result<Self, Problem> {
        let header = |name: &HeaderName| {
            let value = single(headers, name)?.filter(|value| !value.is_empty());
            value.ok_or_else(|| unauthorized(format!("the header {name} is missing")))
        };
        let (id, timestamp, signatures) = (header(&ID)?, header(&TIMESTAMP)?, header(&SIGNATURE)?);
        // With a dot in the id, one signature would fit two readings of what is signed.
        if id.len() > KEY_MAX || id.contains('.') {
            return Err(Problem::bad_request(format!(
                "{ID} must have at most {KEY_MAX} bytes, and no dot"
            )));
        }
        let is_number = timestamp.bytes().all(|digit| digit.is_ascii_digit());
        let seconds = timestamp.parse::<u64>().ok().filter(|_| is_number);
        let seconds = seconds.ok_or_else(|| {
            Problem::bad_request(format!("{TIMESTAMP} is not a time in unix seconds"))
        })?;
        if seconds.abs_diff(now_ms / 1000) > TOLERANCE.as_secs() {
            return Err(unauthorized(format!(
                "{TIMESTAMP} is more than {TOLERANCE:?} from the time here"
            )));
        }
        let all = signatures.split(' ').take(SIGNATURES_MAX);
        let signatures = all.filter_map(|one| BASE64.decode(one.strip_prefix("v1,")?).ok());
        Ok(Self {
            id,
            timestamp,
            signatures: signatures
                .filter(|one| one.len() == SIGNATURE_BYTES)
                .collect(),
        })
    }
}

fn unauthorized(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail)
}

/// Send a message that its sender has signed
///
/// As Standard Webhooks has it. It needs no token. A repeat of the id is not sent again.
#[utoipa::path(
    post,
    path = "/queues/{queue}/webhooks",
    tag = "messages",
    params(("queue" = String, Path, description = "Name of the queue"), ("webhook-id" = String, Header, description = "Id of the message, without a dot"), ("webhook-timestamp" = u64, Header, description = "Unix seconds, at most 5 minutes from now"), ("webhook-signature" = String, Header, description = "v1, and the signature in Base64; several are separated by spaces")),
    request_body(content((Vec<u8> = "application/octet-stream"), (serde_json::Value = "application/json"), (String = "text/plain")), description = "The payload"),
    responses((status = 201, description = "Accepted", body = schemas::Sent), (status = 200, description = "A repeat; nothing was sent", body = schemas::Sent), (status = 422, description = "The id was used with another payload", body = schemas::ProblemDocument, content_type = "application/problem+json"), WebhookProblem, BodyProblem),
    security(())
)]
pub(super) async fn receive(
    State(shared): State<Arc<Shared>>,
    Path(queue): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let keys = shared.webhook_keys().ok_or_else(|| {
        Problem::not_found("no webhooks are taken here: start it with --webhooks FILE")
    })?;
    let queue: QueueName = queue
        .parse()
        .map_err(|error| Problem::bad_request(format!("{error}")))?;
    content_type(&headers)?;
    let request = Signed::read(&headers, Clock::System.now().ms)?;
    let refusal = || unauthorized(format!("{SIGNATURE} is of no sender of queue {queue}"));
    // No body is read if nothing could make it right.
    if request.signatures.is_empty() || keys.of(&queue).next().is_none() {
        return Err(refusal());
    }
    let Ok(_room) = shared.webhooks_under_way.try_acquire() else {
        return Err(Problem::try_again(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{UNDER_WAY_MAX} webhooks are under way"),
        ));
    };
    let body = shared.webhook_bodies.read(body, shared.max_payload).await?;
    if !keys.have_signed(&queue, &request, &body.bytes) {
        return Err(refusal());
    }
    // An id of theirs is none of those with which clients that have a token send.
    let key = format!("webhook {}", request.id);
    let message = NewMessage {
        headers: [header::CONTENT_TYPE, ID, TIMESTAMP]
            .iter()
            .filter_map(|name| {
                Some((
                    name.as_str().to_owned(),
                    single(&headers, name).ok()??.to_owned(),
                ))
            })
            .collect(),
        ..NewMessage::new(body.bytes)
    };
    let message = with_key(message, Some(&key), &Repeats::default());
    let message = message.map_err(Problem::bad_request)?;
    send_one(&shared, &queue, checked(&shared, message)?).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // The example of the specification's libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const MESSAGE: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: &str = "1614265330";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn headers(of: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in of {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        map
    }

    fn is_signed(keys: &str, id: &str, at: &str, signatures: &str, body: &[u8]) -> bool {
        let map = headers(&[
            ("webhook-id", id),
            ("webhook-timestamp", at),
            ("webhook-signature", signatures),
        ]);
        let keys = WebhookKeys::parse(keys).unwrap();
        let request = Signed::read(&map, 1_614_265_330_000).unwrap();
        keys.have_signed(&"q".parse().unwrap(), &request, body)
    }

    #[test]
    fn the_example_of_the_standard_is_signed_and_nothing_else_is() {
        let key = format!("shop q {SECRET}");
        assert!(is_signed(&key, MESSAGE, AT, SIGNED, BODY));
        let several = format!("v1a,AAAA v1,AAAA {SIGNED}");
        assert!(is_signed(&key, MESSAGE, AT, &several, BODY));
        let old_and_new = format!("shop * whsec_{}\n{key}", "A".repeat(32));
        assert!(is_signed(&old_and_new, MESSAGE, AT, SIGNED, BODY));
        let bare = SIGNED.trim_end_matches('=');
        assert!(is_signed(&key, MESSAGE, AT, bare, BODY));
        for (id, at, signatures, body) in [
            ("msg_other", AT, SIGNED, BODY),
            (MESSAGE, "1614265331", SIGNED, BODY),
            (MESSAGE, AT, SIGNED, b"{}".as_slice()),
            (MESSAGE, AT, "v1,", BODY),
            (MESSAGE, AT, &SIGNED[3..], BODY),
            (MESSAGE, AT, &SIGNED.replace("v1,", "v1a,"), BODY),
            (
                MESSAGE,
                AT,
                &format!("{}{SIGNED}", "v1,AAAA ".repeat(8)),
                BODY,
            ),
        ] {
            assert!(!is_signed(&key, id, at, signatures, body), "{signatures}");
        }
        let of_another = format!("shop other {SECRET}");
        assert!(!is_signed(&of_another, MESSAGE, AT, SIGNED, BODY));
    }

    #[test]
    fn what_is_old_or_could_be_read_in_two_ways_is_refused() {
        let read = |id: &str, at: &str, now_ms: u64| {
            let map = headers(&[
                ("webhook-id", id),
                ("webhook-timestamp", at),
                ("webhook-signature", SIGNED),
            ]);
            Signed::read(&map, now_ms)
                .err()
                .map(|problem| problem.status.as_u16())
        };
        assert_eq!(read("a", "1000", 1_300_999), None);
        assert_eq!(read("a", "1000", 1_301_000), Some(401));
        assert_eq!(read("a", "1301", 1_000_000), Some(401));
        assert_eq!(read("a.1000", "1000", 1_000_000), Some(400));
        for at in ["+1000", "1e3", "-1", "99999999999999999999"] {
            assert_eq!(read("a", at, 1_000_000), Some(400), "{at}");
        }
        let alone = headers(&[("webhook-id", "a")]);
        let none = Signed::read(&alone, 0);
        assert_eq!(none.err().map(|problem| problem.status.as_u16()), Some(401));
    }

    #[test]
    fn a_wrong_line_is_told_with_its_number_and_without_a_secret() {
        for (text, says) in [
            (format!("# a\nshop {SECRET}"), "line 2: it has 2 words"),
            (format!("a/b q {SECRET}"), "line 1: the first word"),
            (format!("shop q,a{{b {SECRET}"), "names of queues"),
            (format!("{SECRET}+/ q shop"), "the first word"),
            (format!("shop {SECRET}+/ {SECRET}"), "the second word"),
            (format!("shop q {}", &SECRET[6..]), "whsec_"),
            ("shop q whsec_MfKQ".to_owned(), "16 to 256 bytes"),
            ("shop q whsec_MfKQ9r8GKYqrTwjUPD8I!".to_owned(), "Base64"),
        ] {
            let error = WebhookKeys::parse(&text).unwrap_err();
            assert!(error.contains(says), "{text:?}: {error}");
            assert!(!error.contains("MfKQ"), "{error}");
        }
        assert!(WebhookKeys::parse("# nobody").unwrap().0.is_empty());
        let keys = WebhookKeys::parse(&format!("shop q {SECRET}")).unwrap();
        assert_eq!(format!("{keys:?}"), "WebhookKeys(1)");
    }

    proptest! {
        #[test]
        fn no_request_is_a_panic(id in ".{0,9}", at in "[0-9.+-]{0,22}", signatures in "(v1,[A-Za-z+/=]{0,60} ?){0,4}", body: Vec<u8>) {
            let keys = WebhookKeys::parse(&format!("shop q {SECRET}")).unwrap();
            let mut map = HeaderMap::new();
            for (name, value) in [(ID, id), (TIMESTAMP, at), (SIGNATURE, signatures)] {
                if let Ok(value) = axum::http::HeaderValue::from_bytes(value.as_bytes()) {
                    map.append(name, value);
                }
            }
            if let Ok(request) = Signed::read(&map, 0) {
                prop_assert!(!keys.have_signed(&"q".parse().unwrap(), &request, &body));
            }
        }
    }
}
