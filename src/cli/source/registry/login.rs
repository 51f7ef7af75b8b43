//! What a registry wants to see before it answers: a token that another server gives, or a password. Passwords
//! are those that `docker login` has kept.

use std::fmt::Write as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Uri};
use serde_json::Value;

use super::{TEXT_MAX, basic, text};
use crate::cli::source::web::{self, Ask};
use crate::files;

/// The answer to a challenge (`WWW-Authenticate`).
pub(super) async fn answer(host: &str, asked: &Uri, wanted: &str) -> Result<HeaderValue, String> {
    let user = user_of(host);
    let (scheme, rest) = wanted.split_once(' ').unwrap_or((wanted, ""));
    if scheme.eq_ignore_ascii_case("basic") {
        let user = user.ok_or_else(|| {
            format!(
                "{host} wants a password: `docker login {host}` keeps it in ~/.docker/config.json"
            )
        })?;
        return basic(&user);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(format!(
            "{host} wants a proof that is not known here: {wanted:?}"
        ));
    }
    let fields = fields(rest);
    let field = |name: &str| {
        let mut fields = fields.iter();
        fields
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    let realm = field("realm").ok_or_else(|| format!("{host} names no server for tokens"))?;
    let realm = HeaderValue::from_str(realm).map_err(|error| error.to_string())?;
    let place = web::resolve(asked, &realm)?;
    if place.scheme_str() != Some("https") && !place.host().is_some_and(web::is_loopback) {
        return Err(format!(
            "{host} wants a proof from {place}, which is not encrypted"
        ));
    }
    let mut place = place.to_string();
    for name in ["service", "scope"] {
        if let Some(value) = field(name) {
            place.push(if place.contains('?') { '&' } else { '?' });
            let _ = write!(place, "{name}={}", encoded(value));
        }
    }
    let mut ask = Ask::get(web::url(&place)?, TEXT_MAX);
    if let Some(user) = user {
        ask.headers.insert(AUTHORIZATION, basic(&user)?);
    }
    let url = ask.url.clone();
    let body = web::send(ask).await?.ok(&url)?.body;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let token = text(&body, "token").or_else(|| text(&body, "access_token"));
    let token = token.ok_or_else(|| format!("{url} gave no token"))?;
    let mut proof = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| format!("{url} gave a token that is none"))?;
    proof.set_sensitive(true);
    Ok(proof)
}

/// `user:password` of a registry.
fn user_of(host: &str) -> Option<String> {
    let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let folder =
        folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")))?;
    let bytes = files::read_named(&folder.join("config.json"), TEXT_MAX as u64).ok()?;
    let config: Value = serde_json::from_slice(&bytes).ok()?;
    let auths = config.get("auths")?;
    let auth = auths
        .get(host)
        .or_else(|| auths.get(format!("https://{host}")))?;
    let user = BASE64_STANDARD.decode(text(auth, "auth")?).ok()?;
    String::from_utf8(user)
        .ok()
        .filter(|user| user.contains(':'))
}

/// `name="value"` pairs, separated by commas.
fn fields(text: &str) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']).to_ascii_lowercase();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        fields.push((name, value.to_owned()));
        rest = after;
    }
    fields
}

/// As a query has it.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_read_whatever_it_holds() {
        let found =
            fields("realm=\"https://a/t?x=1\",service=\"a b\", scope=\"repository:n:pull,push\"");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let wanted = [
            pair("realm", "https://a/t?x=1"),
            pair("service", "a b"),
            pair("scope", "repository:n:pull,push"),
        ];
        assert_eq!(found, wanted);
        assert_eq!(fields("a=b,c=d"), [pair("a", "b"), pair("c", "d")]);
        for broken in ["", "=", "a=\"", ",,,", "\"", "a"] {
            fields(broken);
        }
        assert_eq!(encoded("repository:a/b:pull"), "repository%3Aa%2Fb%3Apull");
    }
}
