//! Signatures and keys of OpenSSH (PROTOCOL.sshsig, RFC 4253, RFC 5656 and RFC 8332).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey,
};
use sha2::{Digest, Sha256, Sha512};

const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
const END: &str = "-----END SSH SIGNATURE-----";
const MAGIC: &[u8] = b"SSHSIG";
const VERSION: u32 = 1;

const RSA: &str = "ssh-rsa";
const ED: &str = "ssh-ed25519";
const P256: &str = "ecdsa-sha2-nistp256";
const P384: &str = "ecdsa-sha2-nistp384";

/// The types of keys that are known.
pub(super) const KINDS: [&str; 4] = [ED, P256, P384, RSA];

/// A signature with the key that made it.
pub(super) struct Signature {
    /// As it stands in a file of keys.
    pub key: Vec<u8>,
    pub namespace: Vec<u8>,
    reserved: Vec<u8>,
    hash: Vec<u8>,
    value: Vec<u8>,
}

/// Reads fields from the front of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    /// A positive number, without the zeros before it.
    fn integer(&mut self) -> Option<&'a [u8]> {
        let bytes = self.string()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes.get(zeros..)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// A public key.
enum Key<'a> {
    Ed25519(&'a [u8]),
    Ecdsa(&'a str, &'a [u8]),
    Rsa { n: &'a [u8], e: &'a [u8] },
}

impl<'a> Key<'a> {
    fn of(key: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(key);
        let kind = std::str::from_utf8(fields.string()?).ok()?;
        let key = match kind {
            ED => Self::Ed25519(fields.string().filter(|key| key.len() == 32)?),
            P256 | P384 => {
                let curve = fields.string()?;
                let is_same = kind.as_bytes().ends_with(curve) && !curve.is_empty();
                Self::Ecdsa(kind, fields.string().filter(|_| is_same)?)
            }
            RSA => {
                let e = fields.integer()?;
                let n = fields.integer()?;
                Self::Rsa { n, e }
            }
            _ => return None,
        };
        fields.end()?;
        Some(key)
    }
}

/// True for a key that its line names, and that signatures can be checked with.
pub(super) fn is_known(kind: &str, key: &[u8]) -> bool {
    Fields(key).string() == Some(kind.as_bytes()) && Key::of(key).is_some()
}

impl Signature {
    pub(super) fn of(text: &str) -> Option<Self> {
        let (_, rest) = text.trim().split_once(BEGIN)?;
        let (body, _) = rest.split_once(END)?;
        let body: String = body.split_whitespace().collect();
        let bytes = BASE64_STANDARD.decode(body).ok()?;
        let mut fields = Fields(&bytes);
        let is_ours = fields.take(MAGIC.len())? == MAGIC && fields.number()? == VERSION;
        let mut next = || fields.string().map(<[u8]>::to_vec);
        let signature = Self {
            key: next().filter(|_| is_ours)?,
            namespace: next()?,
            reserved: next()?,
            hash: next()?,
            value: next()?,
        };
        fields.end()?;
        Some(signature)
    }

    /// Whether its key has signed these bytes.
    pub(super) fn is_of(&self, bytes: &[u8]) -> Result<bool, String> {
        let digest = match self.hash.as_slice() {
            b"sha256" => Sha256::digest(bytes).to_vec(),
            b"sha512" => Sha512::digest(bytes).to_vec(),
            _ => return Err("its signature is made with an unknown hash".to_owned()),
        };
        let mut signed = MAGIC.to_vec();
        for field in [&self.namespace, &self.reserved, &self.hash, &digest] {
            let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
            signed.extend(length.to_be_bytes());
            signed.extend(field);
        }
        Ok(self.verified(&signed).is_some())
    }

    fn verified(&self, signed: &[u8]) -> Option<()> {
        let mut fields = Fields(&self.value);
        let kind = std::str::from_utf8(fields.string()?).ok()?;
        let value = fields.string()?;
        fields.end()?;
        let checked = match (Key::of(&self.key)?, kind) {
            (Key::Ed25519(key), ED) => UnparsedPublicKey::new(&ED25519, key).verify(signed, value),
            (Key::Ecdsa(P256, key), P256) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key);
                key.verify(signed, &pair(value, 32)?)
            }
            (Key::Ecdsa(P384, key), P384) => {
                let key = UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key);
                key.verify(signed, &pair(value, 48)?)
            }
            (Key::Rsa { n, e }, "rsa-sha2-512") => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA512, signed, value)
            }
            (Key::Rsa { n, e }, "rsa-sha2-256") => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, signed, value)
            }
            _ => return None,
        };
        checked.ok()
    }
}

/// The two numbers of a signature of ECDSA, each with as many bytes.
fn pair(value: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut fields = Fields(value);
    let mut pair = Vec::new();
    for number in [fields.integer()?, fields.integer()?] {
        let zeros = size.checked_sub(number.len())?;
        pair.extend(std::iter::repeat_n(0, zeros));
        pair.extend(number);
    }
    fields.end()?;
    Some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_from_anywhere_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut whole = b"SSHSIG\0\0\0\x01".to_vec();
            whole.extend(&bytes);
            let text = format!("{BEGIN}\n{}\n{END}\n", BASE64_STANDARD.encode(whole));
            if let Some(signature) = Signature::of(&text) {
                prop_assert!(!signature.is_of(b"x").unwrap_or(false));
            }
            prop_assert!(Key::of(&bytes).is_none() || bytes.len() > 4);
            let _ = pair(&bytes, 32);
        }
    }
}
