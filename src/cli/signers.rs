//! Signatures of handlers: those of OpenSSH (`ssh-keygen -Y sign -n dqhost FILE`), by keys of a file that has the
//! format of its allowed signers.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

use crate::files;

mod format;

/// Bytes of a signature's file. The longest has some kilobytes, with a key of RSA.
pub(super) const SIGNATURE_MAX: u64 = 16 * 1024;

/// Bytes of the file with the keys.
const SIGNERS_MAX: u64 = 1024 * 1024;

/// What a signature has to be made for.
const NAMESPACE: &str = "dqhost";

/// Refuses bytes that nobody of the file has signed. `place` says where their signature is looked for.
pub(super) fn verify(
    signers: &Path,
    bytes: &[u8],
    signature: Option<&[u8]>,
    place: &str,
) -> Result<(), String> {
    let shown = signers.display();
    let text = files::read_named(signers, SIGNERS_MAX)
        .map_err(|error| format!("--allowed-signers {shown}: {error}"))?;
    let keys = keys(&String::from_utf8_lossy(&text))
        .map_err(|error| format!("--allowed-signers {shown}: {error}"))?;
    let signature = signature.ok_or_else(|| {
        format!(
            "it is not signed: there is no {place}. `ssh-keygen -Y sign -n {NAMESPACE} -f KEY FILE` makes one"
        )
    })?;
    let signature = format::Signature::of(&String::from_utf8_lossy(signature))
        .ok_or("its signature is none of OpenSSH's")?;
    if signature.namespace != NAMESPACE.as_bytes() {
        return Err(format!(
            "its signature is for {:?}: sign it with `ssh-keygen -Y sign -n {NAMESPACE}`",
            String::from_utf8_lossy(&signature.namespace)
        ));
    }
    if !keys.contains(&signature.key) {
        let who = BASE64_STANDARD_NO_PAD.encode(Sha256::digest(&signature.key));
        return Err(format!(
            "the key SHA256:{who} has signed it, which is nobody in {shown}"
        ));
    }
    if signature.is_of(bytes)? {
        Ok(())
    } else {
        Err("its signature is not one of these bytes: they were changed, or signed anew".to_owned())
    }
}

/// The keys of those who may sign for us.
fn keys(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut keys = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (options, kind, key) = match words[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            [_, kind, key, ..] if is_kind(kind) => ("", kind, key),
            [_, options, kind, key, ..] if is_kind(kind) => (options, kind, key),
            _ => return Err(format!("line {number} is not NAME [OPTIONS] TYPE KEY")),
        };
        let key = BASE64_STANDARD
            .decode(key)
            .map_err(|_| format!("line {number} has a key that is no Base64"))?;
        if !format::is_known(kind, &key) {
            let known = format::KINDS.join(", ");
            return Err(format!(
                "line {number} has a key of the type {kind}: use {known}"
            ));
        }
        if is_for_us(options).map_err(|what| format!("line {number} has {what}"))? {
            keys.push(key);
        }
    }
    Ok(keys)
}

fn is_kind(word: &str) -> bool {
    ["ssh-", "ecdsa-", "sk-"]
        .iter()
        .any(|start| word.starts_with(start))
}

/// Words of a line; what is quoted holds together.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in line.trim().chars() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                word.push(c);
            }
            c if c.is_whitespace() && !is_quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Whether a key with these options may sign for us. An option that is not known could forbid it.
fn is_for_us(options: &str) -> Result<bool, String> {
    if options.is_empty() {
        return Ok(true);
    }
    let names = options
        .strip_prefix("namespaces=\"")
        .and_then(|rest| rest.strip_suffix('"'));
    match names {
        Some(names) if !names.contains('"') => Ok(names
            .split(',')
            .any(|name| [NAMESPACE, "*"].contains(&name))),
        _ => Err(format!(
            "the options {options}: only namespaces=\"...\" is known here"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7ajh7u5cJqmgBUlWmPXVmz3bcdgYGkMG0Kxv0/5SHB";

    #[test]
    fn a_line_says_whose_key_it_is_and_what_it_may_sign() {
        let count = |text: String| keys(&text).map(|keys| keys.len());
        assert_eq!(
            count(format!("# who\n\na@b {KEY} home\n  b {KEY}\r\n")),
            Ok(2)
        );
        assert_eq!(count(format!("a namespaces=\"git,dqhost\" {KEY}")), Ok(1));
        assert_eq!(count(format!("a namespaces=\"git\" {KEY}")), Ok(0));
        for bad in [
            format!("a cert-authority {KEY}"),
            format!("a valid-before=\"20200101\" {KEY}"),
            format!("a namespaces=\"dqhost\",cert-authority {KEY}"),
            KEY.to_owned(),
            "a ssh-ed25519 !".to_owned(),
            "a ssh-ed25519 AAAA".to_owned(),
            "a sk-ssh-ed25519@openssh.com AAAA".to_owned(),
        ] {
            assert!(keys(&bad).is_err(), "{bad}");
        }
    }
}
