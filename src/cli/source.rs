//! Where a handler comes from: a file, a web server or a registry. What comes over a network is named by its
//! digest and kept by it, so a host starts again while the server is away.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use http::Uri;
use sha2::{Digest, Sha256};

use self::kept::Kept;
use self::registry::Reference;
use self::web::Ask;
use super::signers;
use crate::files;
use crate::runtime::{ComponentFile, HandlerError, Runtime};
use crate::text::{hex, printable};

mod kept;
pub(super) mod registry;
mod web;

/// What stands before an address of a server.
const SCHEMES: [&str; 3] = ["https://", "http://", "oci://"];

/// What comes after a URL.
const DIGEST_MARK: &str = "#sha256=";

/// Where a handler comes from over a network.
enum Remote {
    Web { url: Uri, digest: String },
    Registry(Reference),
}

/// True for what is no path of a file.
pub(super) fn is_remote(path: &Path) -> bool {
    path.to_str()
        .is_some_and(|text| SCHEMES.iter().any(|scheme| text.starts_with(scheme)))
}

/// Takes the path of a file, or the address of a handler with its digest.
pub(super) fn parser() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| check(&path).map(|()| path))
}

/// Refuses an address that says nothing of the digest.
pub(super) fn check(path: &Path) -> Result<(), String> {
    match path.to_str() {
        Some(text) if is_remote(path) => Remote::of(text).map(drop),
        _ => Ok(()),
    }
}

/// Reads a handler, and its signature if it has to have one. Blocks, for as long as a server takes.
pub(super) fn read(
    runtime: &Runtime,
    path: &Path,
    signers: Option<&Path>,
) -> Result<ComponentFile, HandlerError> {
    let text = path.to_str().filter(|_| is_remote(path));
    let Some(text) = text else {
        let file = runtime.read(path)?;
        if let Some(signers) = signers {
            let beside = signature_of(path);
            let signature = files::read_named(&beside, signers::SIGNATURE_MAX).ok();
            verify(
                signers,
                &file,
                signature.as_deref(),
                &beside.display().to_string(),
            )?;
        }
        return Ok(file);
    };
    let name = name_of(text);
    let fail = |reason: String| HandlerError::Unreadable {
        path: name.clone(),
        reason: printable(&reason).into_owned(),
    };
    let remote = Remote::of(text).map_err(fail)?;
    let kept = Kept::of_user();
    let bytes = remote
        .component(&kept, runtime.component_max())
        .map_err(fail)?;
    let file = runtime.file(name.clone(), bytes)?;
    if let Some(signers) = signers {
        remote.verify(&kept, signers, &file)?;
    }
    Ok(file)
}

/// The path or the address of a handler: what stands behind the question mark of a URL may be a secret.
pub(super) fn without_query(text: &str) -> Cow<'_, str> {
    if !is_remote(Path::new(text)) {
        return text.into();
    }
    match (text.split_once('?'), text.split_once(DIGEST_MARK)) {
        (Some((place, _)), Some((_, digest))) => {
            format!("{}?...{DIGEST_MARK}{digest}", web::without_user(place)).into()
        }
        (Some((place, _)), None) => format!("{}?...", web::without_user(place)).into(),
        (None, _) => web::without_user(text),
    }
}

/// The same as it is shown, in the log too.
pub(super) fn name_of(text: &str) -> String {
    printable(&without_query(text)).into_owned()
}

/// Where the signature of a file is.
pub(super) fn signature_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

fn verify(
    signers: &Path,
    file: &ComponentFile,
    signature: Option<&[u8]>,
    place: &str,
) -> Result<(), HandlerError> {
    signers::verify(signers, file.bytes(), signature, place).map_err(|reason| {
        HandlerError::Refused {
            path: file.name.clone(),
            reason: printable(&reason).into_owned(),
        }
    })
}

impl Remote {
    fn of(text: &str) -> Result<Self, String> {
        if let Some(text) = text.strip_prefix("oci://") {
            let reference = Reference::of(text)?;
            if reference.digest.is_none() {
                return Err(format!(
                    "name the digest: oci://{text}@sha256:HEX; `dqhost push` prints it"
                ));
            }
            return Ok(Self::Registry(reference));
        }
        let wanted = "name the digest: https://HOST/PATH#sha256=HEX; `dqhost check FILE` prints it";
        let (url, digest) = text.split_once(DIGEST_MARK).ok_or(wanted)?;
        Ok(Self::Web {
            url: web::url(url)?,
            digest: digest_of(digest).ok_or(wanted)?,
        })
    }

    /// Its bytes, which have the digest.
    fn component(&self, kept: &Kept, max: usize) -> Result<Vec<u8>, String> {
        match self {
            Self::Web { url, digest } => {
                if let Some(bytes) = kept.get(digest) {
                    return Ok(bytes);
                }
                let bytes = web::blocking(web::get(Ask::of_component(url.clone(), max)))?;
                is_digest(&bytes, digest)?;
                kept.put(digest, &bytes);
                Ok(bytes)
            }
            Self::Registry(reference) => registry::pull(reference, kept, max),
        }
    }

    /// Refuses a file that is not signed. A signature that does not do may be an older one, so then the server
    /// is asked.
    fn verify(
        &self,
        kept: &Kept,
        signers: &Path,
        file: &ComponentFile,
    ) -> Result<(), HandlerError> {
        let key = format!("signature of {}", file.digest);
        let key = hex(&Sha256::digest(key));
        let known = kept.get_unchecked(&key);
        if known.is_some_and(|known| verify(signers, file, Some(&known), "").is_ok()) {
            return Ok(());
        }
        let (signature, place) = self.signature(kept).map_err(|reason| {
            let reason = format!("its signature cannot be fetched: {reason}");
            HandlerError::Unreadable {
                path: file.name.clone(),
                reason: printable(&reason).into_owned(),
            }
        })?;
        verify(signers, file, signature.as_deref(), &place)?;
        if let Some(signature) = signature {
            kept.put(&key, &signature);
        }
        Ok(())
    }

    /// What the server has as the signature, and where it was looked for. None if it says that it has none.
    fn signature(&self, kept: &Kept) -> Result<(Option<Vec<u8>>, String), String> {
        match self {
            Self::Web { url, .. } => {
                let text = url.to_string();
                let (path, query) = text.split_at(text.find('?').unwrap_or(text.len()));
                let url = web::url(&format!("{path}.sig{query}"))?;
                let max = usize::try_from(signers::SIGNATURE_MAX).unwrap_or(usize::MAX);
                let place = web::shown(&url);
                let found = web::blocking(web::find(Ask::get(url, max)))?;
                Ok((found, place))
            }
            Self::Registry(reference) => {
                let found = registry::signature(reference, kept)?;
                Ok((found, "signature in the registry".to_owned()))
            }
        }
    }
}

/// The digits of `sha256:HEX`.
pub(super) fn hex_of(digest: &str) -> Result<String, String> {
    let hex = digest.strip_prefix("sha256:").and_then(digest_of);
    let wanted = "`digest` must be sha256: and 64 hexadecimal digits; `dqhost check FILE` prints it, and \
                  `dqhost push` that of a registry";
    hex.ok_or_else(|| wanted.to_owned())
}

/// An address that says nothing of the digest, with these digits as its digest.
pub(super) fn with_digest(url: &str, hex: &str) -> Result<String, String> {
    let is_of_registry = url.starts_with("oci://");
    if url.contains('#') || (is_of_registry && url.contains('@')) {
        return Err("`url` ends before # or @: the digest stands only in `digest`".to_owned());
    }
    match is_remote(Path::new(url)) {
        true if is_of_registry => Ok(format!("{url}@sha256:{hex}")),
        true => Ok(format!("{url}{DIGEST_MARK}{hex}")),
        false => Err(
            "`url` must begin with https:// or oci://; a file is handler = \"FILE\", with its digest in \
             `handler-digest`"
                .to_owned(),
        ),
    }
}

/// Sixty-four hexadecimal digits, in lower case.
fn digest_of(text: &str) -> Option<String> {
    let is_digest = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_digest.then(|| text.to_ascii_lowercase())
}

/// Refuses bytes of another digest.
fn is_digest(bytes: &[u8], digest: &str) -> Result<(), String> {
    let found = hex(&Sha256::digest(bytes));
    if found == digest {
        return Ok(());
    }
    Err(format!(
        "the server answered with other bytes: their digest is sha256:{found}, and sha256:{digest} is wanted"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_in_an_address_is_not_shown() {
        let shown = name_of("https://a/h.wasm?Signature=s3cret#sha256=12");
        assert_eq!(shown, "https://a/h.wasm?...#sha256=12");
        assert_eq!(
            name_of("https://a/h.wasm#sha256=12"),
            "https://a/h.wasm#sha256=12"
        );
        assert_eq!(name_of("what?.wasm"), "what?.wasm");
        assert_eq!(name_of("oci://a/h?s3cret"), "oci://a/h?...");
        let refusal = check(Path::new("https://a b/?s3cret#sha256=12")).unwrap_err();
        assert!(!refusal.contains("s3cret"), "{refusal}");
        let wrong = format!("https://a b/?s3cret#sha256={}", "0".repeat(64));
        let refusal = check(Path::new(&wrong)).unwrap_err();
        assert!(!refusal.contains("s3cret"), "{refusal}");
    }

    #[test]
    fn an_address_has_a_digest_and_a_path_needs_none() {
        let hex = "0123456789abcdefABCDEF0123456789abcdef0123456789abcdef0123456789";
        for good in [
            "handler.wasm".to_owned(),
            "a#b://c".to_owned(),
            format!("https://example.com/h.wasm#sha256={hex}"),
            format!("http://[::1]:8080/h.wasm?v=1#sha256={hex}"),
            format!("oci://example.com/team/handler@sha256:{hex}"),
            format!("oci://localhost:5000/handler:v1@sha256:{hex}"),
        ] {
            assert_eq!(check(Path::new(&good)), Ok(()), "{good}");
        }
        for bad in [
            "https://example.com/h.wasm".to_owned(),
            "https://example.com/h.wasm#sha256=12".to_owned(),
            format!("https:///h.wasm#sha256={hex}"),
            format!("https://user@example.com/h.wasm#sha256={hex}"),
            "oci://example.com/handler:v1".to_owned(),
            "oci://example.com/handler@sha256:12".to_owned(),
            format!("oci://example.com@sha256:{hex}"),
            format!("oci://user:word@example.com/handler@sha256:{hex}"),
            format!("oci://example.com/../handler@sha256:{hex}"),
            format!("oci://example.com/Handler@sha256:{hex}"),
        ] {
            assert!(check(Path::new(&bad)).is_err(), "{bad}");
        }
    }
}
