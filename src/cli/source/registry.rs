//! Registries of the OCI distribution specification: a handler is an artifact of one layer. All that is read is
//! named by a digest, from the manifest on.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::kept::Kept;
use super::web::{self, Answer, Ask};
use super::{digest_of, is_digest};
use crate::cli::signers::SIGNATURE_MAX;
use crate::text::hex;

mod login;

/// Bytes of a manifest, a token or an error.
const TEXT_MAX: usize = 1 << 20;

/// What the parts of an artifact are.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const COMPONENT: &str = "application/wasm";
const SIGNATURE: &str = "application/vnd.openssh.signature";

/// `REGISTRY/NAME[:TAG][@sha256:HEX]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Reference {
    /// With its port.
    pub host: String,
    pub name: String,
    pub tag: Option<String>,
    pub digest: Option<String>,
}

impl Reference {
    pub(in crate::cli) fn of(text: &str) -> Result<Self, String> {
        let refusal = || format!("{text} is not REGISTRY/NAME[:TAG][@sha256:HEX], in lower case");
        let (rest, digest) = match text.split_once('@') {
            None => (text, None),
            Some((rest, digest)) => {
                let digest = digest.strip_prefix("sha256:").and_then(digest_of);
                (rest, Some(digest.ok_or_else(refusal)?))
            }
        };
        let (host, path) = rest.split_once('/').ok_or_else(refusal)?;
        let (name, tag) = match path.rsplit_once(':') {
            None => (path, None),
            Some((name, tag)) => (name, Some(tag.to_owned())),
        };
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_part = |part: &str| {
            part.starts_with(is_word)
                && part.ends_with(is_word)
                && part.chars().all(|c| is_word(c) || "._-".contains(c))
        };
        let is_tag = |tag: &String| {
            let is_start = |c: char| c.is_ascii_alphanumeric() || c == '_';
            tag.len() <= 128
                && tag.starts_with(is_start)
                && tag.chars().all(|c| is_start(c) || ".-".contains(c))
        };
        let is_right = name.split('/').all(is_part) && tag.iter().all(is_tag);
        let reference = Self {
            host: host.to_owned(),
            name: name.to_owned(),
            tag,
            digest,
        };
        if !is_right || reference.url("").is_err() {
            return Err(refusal());
        }
        Ok(reference)
    }

    /// Of something in the repository. A registry on this machine may have no certificate.
    fn url(&self, path: &str) -> Result<Uri, String> {
        let bare: Uri = format!("http://{}/", self.host)
            .parse()
            .map_err(|_| format!("{} is no host", self.host))?;
        let is_whole = bare
            .authority()
            .is_some_and(|all| all.as_str() == self.host);
        if !is_whole {
            return Err(format!("{} is no host", self.host));
        }
        let is_here = bare.host().is_some_and(web::is_loopback);
        let scheme = if is_here { "http" } else { "https" };
        web::url(&format!("{scheme}://{}/v2/{}/{path}", self.host, self.name))
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

impl Descriptor {
    fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: format!("sha256:{}", hex(&Sha256::digest(bytes))),
            size: bytes.len() as u64,
        }
    }

    fn hex(&self) -> Result<String, String> {
        let digest = self.digest.strip_prefix("sha256:").and_then(digest_of);
        digest.ok_or_else(|| {
            format!(
                "the manifest has a digest of an unknown kind: {}",
                self.digest
            )
        })
    }
}

#[derive(Debug, Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Descriptor>,
}

impl Manifest {
    fn layer(&self, media_type: &str) -> Option<&Descriptor> {
        self.layers
            .iter()
            .find(|layer| layer.media_type == media_type)
    }
}

/// The component of an artifact.
pub(super) fn pull(reference: &Reference, kept: &Kept, max: usize) -> Result<Vec<u8>, String> {
    web::blocking(async {
        let mut session = Session::new(reference);
        let manifest = session.manifest(kept).await?;
        let layer = manifest
            .layer(COMPONENT)
            .ok_or_else(|| format!("the artifact has no layer of the type {COMPONENT}"))?;
        session.blob(kept, layer, max).await
    })
}

/// The signature of an artifact's component, if it has one.
pub(super) fn signature(reference: &Reference, kept: &Kept) -> Result<Option<Vec<u8>>, String> {
    let max = usize::try_from(SIGNATURE_MAX).unwrap_or(usize::MAX);
    web::blocking(async {
        let mut session = Session::new(reference);
        let manifest = session.manifest(kept).await?;
        match manifest.layer(SIGNATURE) {
            Some(layer) => session.blob(kept, layer, max).await.map(Some),
            None => Ok(None),
        }
    })
}

/// What is pushed.
pub(in crate::cli) struct Artifact {
    pub component: Vec<u8>,
    pub signature: Option<Vec<u8>>,
    /// The names of what the component exports and imports.
    pub exports: Vec<String>,
    pub imports: Vec<String>,
}

/// Pushes an artifact, and returns the digest of its manifest.
pub(in crate::cli) fn push(reference: &Reference, artifact: &Artifact) -> Result<String, String> {
    let component = Descriptor::of(COMPONENT, &artifact.component);
    let config = json!({
        "created": jiff::Timestamp::now().to_string(),
        "architecture": "wasm",
        "os": "wasip2",
        "layerDigests": [component.digest],
        "component": {"exports": artifact.exports, "imports": artifact.imports, "target": null},
    });
    let config = config.to_string().into_bytes();
    let config_is = Descriptor::of(CONFIG, &config);
    let mut blobs = vec![(&artifact.component, component)];
    if let Some(signature) = &artifact.signature {
        blobs.push((signature, Descriptor::of(SIGNATURE, signature)));
    }
    let layers: Vec<&Descriptor> = blobs.iter().map(|(_, layer)| layer).collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config_is,
        "layers": layers,
    });
    let manifest = manifest.to_string().into_bytes();
    let digest = hex(&Sha256::digest(&manifest));
    blobs.push((&config, config_is));
    let tag = reference.tag.clone();
    let tag = tag.unwrap_or_else(|| format!("sha256:{digest}"));
    web::blocking(async {
        let mut session = Session::new(reference);
        for (bytes, blob) in &blobs {
            session.upload(bytes, blob).await?;
        }
        let mut ask = Ask::get(reference.url(&format!("manifests/{tag}"))?, TEXT_MAX);
        ask.method = Method::PUT;
        ask.body = manifest.into();
        let kind = HeaderValue::from_static(MANIFEST);
        ask.headers.insert(CONTENT_TYPE, kind);
        session.send(ask).await?;
        Ok(digest)
    })
}

/// Requests to one repository.
struct Session<'a> {
    reference: &'a Reference,
    /// What the registry wants to see with each request, once it has said so.
    authorization: Option<HeaderValue>,
}

impl<'a> Session<'a> {
    fn new(reference: &'a Reference) -> Self {
        Self {
            reference,
            authorization: None,
        }
    }

    /// Sends a request, with the proof that the registry wants.
    async fn send(&mut self, mut ask: Ask) -> Result<Answer, String> {
        let url = ask.url.clone();
        let is_ours = self.reference.url("")?.authority() == url.authority();
        let mut answer = web::send(self.proved(ask.clone(), is_ours)).await?;
        // Only the registry itself is told who asks, and no server that it leads to.
        let is_asked = is_ours && answer.from.authority() == url.authority();
        if answer.status == StatusCode::UNAUTHORIZED && is_asked && self.authorization.is_none() {
            let wanted = answer.headers.get(WWW_AUTHENTICATE);
            let wanted = wanted
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default();
            self.authorization = Some(login::answer(&self.reference.host, &url, wanted).await?);
            ask = self.proved(ask, is_ours);
            answer = web::send(ask).await?;
        }
        answer.ok(&url)
    }

    fn proved(&self, mut ask: Ask, is_ours: bool) -> Ask {
        if let Some(proof) = self.authorization.as_ref().filter(|_| is_ours) {
            ask.headers.insert(AUTHORIZATION, proof.clone());
        }
        ask
    }

    async fn manifest(&mut self, kept: &Kept) -> Result<Manifest, String> {
        let digest = self.reference.digest.clone().unwrap_or_default();
        let bytes = if let Some(bytes) = kept.get(&digest) {
            bytes
        } else {
            let path = format!("manifests/sha256:{digest}");
            let mut ask = Ask::get(self.reference.url(&path)?, TEXT_MAX);
            let kind = HeaderValue::from_static(MANIFEST);
            ask.headers.insert(ACCEPT, kind);
            let bytes = self.send(ask).await?.body;
            is_digest(&bytes, &digest)?;
            kept.put(&digest, &bytes);
            bytes
        };
        serde_json::from_slice(&bytes).map_err(|error| format!("it has no manifest: {error}"))
    }

    async fn blob(
        &mut self,
        kept: &Kept,
        blob: &Descriptor,
        max: usize,
    ) -> Result<Vec<u8>, String> {
        let digest = blob.hex()?;
        if blob.size > max as u64 {
            let size = blob.size;
            return Err(format!(
                "it has {size} bytes, and {max} are allowed (--limit component-bytes)"
            ));
        }
        if let Some(bytes) = kept.get(&digest) {
            return Ok(bytes);
        }
        let url = self.reference.url(&format!("blobs/sha256:{digest}"))?;
        let bytes = self.send(Ask::of_component(url, max)).await?.body;
        is_digest(&bytes, &digest)?;
        kept.put(&digest, &bytes);
        Ok(bytes)
    }

    /// In two steps: the registry names the place of the second.
    async fn upload(&mut self, bytes: &[u8], blob: &Descriptor) -> Result<(), String> {
        let mut ask = Ask::get(self.reference.url("blobs/uploads/")?, TEXT_MAX);
        ask.method = Method::POST;
        let from = ask.url.clone();
        let begun = self.send(ask).await?;
        let place = begun.headers.get(LOCATION);
        let place = place.ok_or_else(|| format!("{from} names no place for an upload"))?;
        let place = web::resolve(&from, place)?.to_string();
        let mark = if place.contains('?') { '&' } else { '?' };
        let url = web::url(&format!("{place}{mark}digest={}", blob.digest))?;
        let kind = HeaderValue::from_static("application/octet-stream");
        self.send(Ask {
            method: Method::PUT,
            url,
            headers: HeaderMap::from_iter([(CONTENT_TYPE, kind)]),
            body: Bytes::copy_from_slice(bytes),
            max: TEXT_MAX,
            remedy: "",
        })
        .await
        .map(drop)
    }
}

/// A user with a password, as the header has it.
fn basic(user: &str) -> Result<HeaderValue, String> {
    let value = format!("Basic {}", BASE64_STANDARD.encode(user));
    let mut value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
    value.set_sensitive(true);
    Ok(value)
}

/// A text of a JSON object.
fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_of_this_machine_needs_no_certificate_and_others_do() {
        let url = |text: &str| Reference::of(text).unwrap().url("x").unwrap().to_string();
        assert_eq!(url("localhost:5000/a:v1"), "http://localhost:5000/v2/a/x");
        assert_eq!(url("127.0.0.1/a/b"), "http://127.0.0.1/v2/a/b/x");
        assert_eq!(url("ghcr.io/a/b"), "https://ghcr.io/v2/a/b/x");
        assert_eq!(
            url("localhost.example:5000/a"),
            "https://localhost.example:5000/v2/a/x"
        );
    }
}
