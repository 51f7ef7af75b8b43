//! Who may do what: bearer tokens, of which a file keeps only the digests.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, RwLock};

use base64::Engine;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::message::QueueName;
use crate::text::{cut, hex, printable};

/// What digests of tokens begin with in a file.
const DIGEST_PREFIX: &str = "sha256:";

/// What a token begins with, so that tools which look for leaked secrets can find it.
const TOKEN_PREFIX: &str = "dqh_";

/// Bytes of a wrong word that a refusal repeats.
const REPEATED_MAX: usize = 80;

/// The most bytes of a file of tokens.
pub const FILE_MAX: u64 = 1 << 20;

/// What the holder of a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Send messages.
    Send,
    /// Look at messages, queues and metrics.
    View,
    /// Everything, such as cancel, pause and redrive.
    Operate,
}

impl Role {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::View => "view",
            Self::Operate => "operate",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        [Self::Send, Self::View, Self::Operate]
            .into_iter()
            .find(|role| role.as_str() == word)
            .ok_or_else(|| format!("{} is no role: use send, view or operate", shown(word)))
    }
}

/// The holder of a token, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// A label, for the log.
    pub name: String,
    /// At least one.
    pub roles: BTreeSet<Role>,
    /// None for all.
    pub queues: Option<BTreeSet<QueueName>>,
}

impl Grant {
    /// Whether it allows this, whatever the queue.
    #[must_use]
    pub fn has_role(&self, role: Role) -> bool {
        self.roles.contains(&role) || self.roles.contains(&Role::Operate)
    }

    /// Whether it is about this queue.
    #[must_use]
    pub fn covers(&self, queue: &QueueName) -> bool {
        let queues = self.queues.as_ref();
        queues.is_none_or(|queues| queues.contains(queue))
    }
}

/// A line of the file, but for the digest.
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles: Vec<&str> = self.roles.iter().map(|role| role.as_str()).collect();
        write!(f, "{} {} ", self.name, roles.join(","))?;
        let Some(queues) = &self.queues else {
            return f.write_str("*");
        };
        let queues: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
        f.write_str(&queues.join(","))
    }
}

/// What a file keeps of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// That of this token.
    #[must_use]
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }
}

/// Tokens that may be replaced by others while requests come.
pub type SharedTokens = Arc<RwLock<Arc<Tokens>>>;

/// The tokens of a file.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Vec<([u8; 32], Arc<Grant>)>);

impl Tokens {
    /// Reads a file: a line for each token with a name, roles, queues (`*` for all) and the SHA-256 of
    /// the token. Empty lines and lines that begin with `#` count for nothing.
    ///
    /// # Errors
    ///
    /// In words, with the number of the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens: Vec<([u8; 32], Arc<Grant>)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |error: String| format!("line {}: {error}", number + 1);
            let (digest, grant) = parse_line(line).map_err(at)?;
            if tokens.iter().any(|(_, other)| other.name == grant.name) {
                return Err(at(format!("the name {} is there twice", grant.name)));
            }
            if tokens.iter().any(|(other, _)| *other == digest) {
                return Err(at("the token is there twice".to_owned()));
            }
            tokens.push((digest, Arc::new(grant)));
        }
        Ok(Self(tokens))
    }

    /// True if nobody has a token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What this token allows; none if it is not in the file. How long the answer takes does not tell
    /// how much of a token is right.
    #[must_use]
    pub fn find(&self, TokenDigest(digest): &TokenDigest) -> Option<Arc<Grant>> {
        let mut found = None;
        for (known, grant) in &self.0 {
            if bool::from(known.ct_eq(digest)) {
                found = Some(grant);
            }
        }
        found.cloned()
    }
}

fn shown(word: &str) -> String {
    format!("{:?}", printable(&cut(word, REPEATED_MAX)))
}

fn parse_line(line: &str) -> Result<([u8; 32], Grant), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, roles, queues, digest] = words.as_slice() else {
        return Err(format!(
            "it has {} words, and four are needed: NAME ROLE[,ROLE] QUEUE[,QUEUE] sha256:DIGEST",
            words.len()
        ));
    };
    let grant = Grant {
        name: name_of(name)?,
        roles: roles.split(',').map(str::parse).collect::<Result<_, _>>()?,
        queues: queues_of(queues)?,
    };
    Ok((digest_of(digest)?, grant))
}

/// A name for the log: the characters of queue names.
pub fn name_of(word: &str) -> Result<String, String> {
    match word.parse::<QueueName>() {
        Ok(name) => Ok(name.to_string()),
        Err(_) => Err(format!(
            "the name {} is not allowed: use up to 64 letters, digits, dots, underscores and dashes",
            shown(word)
        )),
    }
}

pub(super) fn queues_of(word: &str) -> Result<Option<BTreeSet<QueueName>>, String> {
    if word == "*" {
        return Ok(None);
    }
    let queues = word.split(',').map(str::parse).collect::<Result<_, _>>();
    queues
        .map(Some)
        .map_err(|error: crate::message::QueueNameError| error.to_string())
}

fn digest_of(word: &str) -> Result<[u8; 32], String> {
    let refusal = || {
        format!(
            "the last word must be {DIGEST_PREFIX} and 64 hexadecimal digits, as dqhost token new \
             prints it"
        )
    };
    let digits = word.strip_prefix(DIGEST_PREFIX).ok_or_else(refusal)?;
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(refusal());
    }
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| refusal())?;
    }
    Ok(digest)
}

/// A new token, and the line for the file that grants it this.
#[must_use]
pub fn new_token(grant: &Grant) -> (String, String) {
    // Two random UUIDs have 244 bits from the system's generator.
    let random = Sha256::new()
        .chain_update(uuid::Uuid::new_v4().as_bytes())
        .chain_update(uuid::Uuid::new_v4().as_bytes())
        .finalize();
    let random = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random);
    let token = format!("{TOKEN_PREFIX}{random}");
    let line = format!("{grant} {DIGEST_PREFIX}{}", hex(&Sha256::digest(&token)));
    (token, line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grant(roles: &[Role], queues: Option<&[&str]>) -> Grant {
        let names = |queues: &[&str]| queues.iter().map(|name| name.parse().unwrap()).collect();
        Grant {
            name: "shop".to_owned(),
            roles: roles.iter().copied().collect(),
            queues: queues.map(names),
        }
    }

    #[test]
    fn a_new_token_is_found_by_its_line_and_no_other_is() {
        let sends = grant(&[Role::Send, Role::View], Some(&["orders", "mails"]));
        let (token, line) = new_token(&sends);
        assert!(!line.contains(&token[TOKEN_PREFIX.len()..]));
        let tokens = Tokens::parse(&format!("# who\n\n  {line}\n")).unwrap();
        let find = |tokens: &Tokens, token: &str| tokens.find(&TokenDigest::of(token));
        let found = find(&tokens, &token).unwrap();
        assert_eq!(*found, sends);
        let queue = |name: &str| name.parse().unwrap();
        assert!(found.has_role(Role::Send) && !found.has_role(Role::Operate));
        assert!(found.covers(&queue("mails")) && !found.covers(&queue("other")));
        let (other, line) = new_token(&grant(&[Role::Operate], None));
        assert!(find(&tokens, &other).is_none() && find(&tokens, "").is_none());
        assert!(find(&tokens, &token[..token.len() - 1]).is_none());
        let all = find(&Tokens::parse(&line).unwrap(), &other).unwrap();
        assert!(all.has_role(Role::Send) && all.covers(&queue("any")));
    }

    #[test]
    fn a_wrong_line_is_told_with_its_number() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let twice = format!("a send * {digest}\nb send * {digest}");
        let name_twice = format!("a send * {digest}\na send * sha256:{}", "1".repeat(64));
        for (text, says) in [
            ("\na send *".to_owned(), "line 2: it has 3 words"),
            (format!("a/b send * {digest}"), "line 1: the name \"a/b\""),
            (format!("a sent * {digest}"), "\"sent\" is no role"),
            (format!("a send a{{b {digest}"), "queue name"),
            (format!("a send, * {digest}"), "\"\" is no role"),
            ("a send * sha256:00".to_owned(), "64 hexadecimal digits"),
            (
                format!("a send * sha256:{}", "é".repeat(32)),
                "64 hexadecimal",
            ),
            (format!("a send * {}", "0".repeat(64)), "sha256: and 64"),
            (twice, "line 2: the token is there twice"),
            (name_twice, "line 2: the name a is there twice"),
        ] {
            let error = Tokens::parse(&text).unwrap_err();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_file_is_a_panic(text in "([a-z*]{1,3} (send|view|x) [a-z,*]{1,4} (sha256:)?[0-9a-f]{60,66}\n?){0,3}|.*") {
            if let Ok(tokens) = Tokens::parse(&text) {
                prop_assert!(tokens.find(&TokenDigest::of(&text)).is_none());
            }
        }
    }
}
