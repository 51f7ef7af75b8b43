//! The table form of `handler`: the address of a server, and the digest of what it has.

use toml::de::{DeTable, DeValue};

use crate::cli::source;

/// What the table has.
pub(super) const KEYS: [&str; 2] = ["url", "digest"];

/// The address with its digest, as `--handler` takes it.
///
/// # Errors
///
/// What is wrong. The byte at which it is, unless it is the whole table.
pub(super) fn address(table: &DeTable<'_>) -> Result<String, (Option<usize>, String)> {
    let mut entries = table.iter();
    if let Some((name, _)) = entries.find(|(name, _)| !KEYS.contains(&name.get_ref().as_ref())) {
        let text = format!(
            "there is no key `{}` in it: it has `url` and `digest`",
            name.get_ref()
        );
        return Err((Some(name.span().start), text));
    }
    let [(url, at_url), (digest, at_digest)] = [text(table, KEYS[0])?, text(table, KEYS[1])?];
    let hex = source::hex_of(digest).map_err(|reason| (Some(at_digest), reason))?;
    source::with_digest(url, &hex).map_err(|reason| (Some(at_url), reason))
}

/// A string of the table, and where it stands.
fn text<'t>(
    table: &'t DeTable<'_>,
    name: &str,
) -> Result<(&'t str, usize), (Option<usize>, String)> {
    let mut entries = table.iter();
    let Some((_, value)) = entries.find(|(key, _)| *key.get_ref() == name) else {
        return Err((None, format!("its `{name}` is missing")));
    };
    let at = value.span().start;
    match value.get_ref() {
        DeValue::String(text) => Ok((text, at)),
        _ => Err((Some(at), format!("its `{name}` must be a string"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdefABCDEF0123456789abcdef0123456789abcdef0123456789";

    fn of(text: &str) -> Result<String, (Option<usize>, String)> {
        address(DeTable::parse(text).unwrap().get_ref())
    }

    #[test]
    fn an_address_and_its_digest_are_what_the_flag_takes() {
        let digest = format!("digest = \"sha256:{HEX}\"");
        let lower = HEX.to_ascii_lowercase();
        for (url, flag) in [
            ("https://a.example/h.wasm?v=1", format!("#sha256={lower}")),
            ("oci://a.example/team/h:v1", format!("@sha256:{lower}")),
        ] {
            let found = of(&format!("url = \"{url}\"\n{digest}"));
            assert_eq!(found, Ok(format!("{url}{flag}")));
            assert_eq!(source::check(found.unwrap().as_ref()), Ok(()));
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let digest = format!("digest = \"sha256:{HEX}\"");
        let url = |url: &str| format!("url = \"{url}\"\n{digest}");
        for (text, at, says) in [
            (digest.clone(), None, "its `url` is missing"),
            ("url = \"https://a/h\"".to_owned(), None, "its `digest` is"),
            (format!("uri = 1\n{digest}"), Some(0), "no key `uri`"),
            (format!("url = 1\n{digest}"), Some(6), "must be a string"),
            (url("h.wasm"), Some(6), "handler = \"FILE\""),
            (url("https://a/h#sha256=12"), Some(6), "only in `digest`"),
            (url("oci://a/h@sha256:12"), Some(6), "only in `digest`"),
            (
                "url = \"https://a/h\"\ndigest = \"md5:12\"".to_owned(),
                Some(29),
                "64 hexadecimal digits",
            ),
        ] {
            let (place, reason) = of(&text).unwrap_err();
            assert_eq!(place, at, "{text}: {reason}");
            assert!(reason.contains(says), "{text}: {reason}");
        }
    }
}
