//! What dead letters with the same cause have in common.

use crate::message::{HistoryEntry, Record};

/// Characters of a reason that are read.
const READ_MAX: usize = 400;

/// After these words a short number says what happened, and not to which message.
const CODE_WORDS: [&str; 7] = ["http", "status", "code", "error", "errno", "exit", "signal"];

/// What dead letters with the same cause have in common: the class and the reason, as a template. Numbers
/// and ids are `#`, quoted text is `"…"`. A code such as that of `HTTP 503` stays.
#[must_use]
pub fn group_of(record: &Record) -> String {
    whole_reason(record, template)
}

/// Class and reason as they are.
#[must_use]
pub fn reason_of(record: &Record) -> String {
    whole_reason(record, str::to_owned)
}

fn whole_reason(record: &Record, shown: impl Fn(&str) -> String) -> String {
    let Some(last) = record.last_attempt() else {
        return match record.history.last() {
            Some(HistoryEntry::Redriven { .. }) | None if record.payload.is_none() => {
                "payload-missing".to_owned()
            }
            _ => "unknown".to_owned(),
        };
    };
    let mut text = last.class.clone();
    if !last.reason.is_empty() {
        text.push_str(": ");
        text.push_str(&shown(&last.reason));
    }
    text
}

/// The text without what differs from message to message.
fn template(text: &str) -> String {
    let chars: Vec<char> = text.chars().take(READ_MAX).collect();
    let mut result = String::with_capacity(chars.len());
    let mut before = String::new();
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let is_first = at == 0 || !chars[at - 1].is_alphanumeric();
        if let Some(length) = quoted(rest).filter(|_| is_first) {
            result.push_str("\"…\"");
            at += length;
        } else if is_first && is_uuid(rest) {
            result.push('#');
            at += UUID_LENGTH;
        } else if chars[at].is_alphanumeric() {
            let length = word_length(rest);
            let word: String = rest[..length].iter().collect();
            if is_code(&word, &before) {
                result.push_str(&word);
            } else {
                result.push_str(&without_digits(&word));
            }
            before = word;
            at += length;
        } else {
            result.push(chars[at]);
            at += 1;
        }
    }
    result.trim_end().to_owned()
}

fn word_length(chars: &[char]) -> usize {
    let is_end = |c: &char| !c.is_alphanumeric();
    chars.iter().position(is_end).unwrap_or(chars.len())
}

/// Characters of a text in quotes, with them. An apostrophe within a word is none.
fn quoted(chars: &[char]) -> Option<usize> {
    let close = match chars.first()? {
        open @ ('"' | '\'' | '`') => *open,
        '“' => '”',
        _ => return None,
    };
    let mut is_escaped = false;
    for (at, &c) in chars.iter().enumerate().skip(1) {
        let ends_word = chars.get(at + 1).is_none_or(|next| !next.is_alphanumeric());
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == close && ends_word => return Some(at + 1),
            _ => {}
        }
    }
    None
}

const UUID_LENGTH: usize = 36;

fn is_uuid(chars: &[char]) -> bool {
    let Some(id) = chars.get(..UUID_LENGTH) else {
        return false;
    };
    let ends = chars
        .get(UUID_LENGTH)
        .is_none_or(|next| !next.is_alphanumeric());
    let is_right = |(at, c): (usize, &char)| match at {
        8 | 13 | 18 | 23 => *c == '-',
        _ => c.is_ascii_hexdigit(),
    };
    ends && id.iter().enumerate().all(is_right)
}

/// True for the 503 of `HTTP 503`.
fn is_code(word: &str, before: &str) -> bool {
    let is_short = word.len() <= 3 && word.bytes().all(|byte| byte.is_ascii_digit());
    is_short && CODE_WORDS.contains(&before.to_lowercase().as_str())
}

/// A word with `#` for its number: `user42` is `user#`, `30s` is `#s`. An id is `#` alone.
fn without_digits(word: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit();
    let digits = word.chars().filter(|c| is_digit(*c)).count();
    if digits == 0 {
        return word.to_owned();
    }
    let start = word.find(is_digit).unwrap_or(0);
    let end = word.rfind(is_digit).map_or(word.len(), |last| last + 1);
    let is_one_number = word[start..end].chars().all(is_digit);
    let (head, tail) = (&word[..start], &word[end..]);
    let is_id = digits >= 4 || !is_one_number || !tail.is_empty() && !head.is_empty();
    // A unit is short: ms, kB, GiB.
    if is_id && !(head.is_empty() && is_one_number) || tail.chars().count() > 3 {
        return "#".to_owned();
    }
    format!("{head}#{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Attempt, State};
    use proptest::prelude::*;

    fn dead(class: &str, reason: &str) -> Record {
        Record {
            id: "0196-abc".into(),
            state: State::Dead,
            at_ms: Some(1),
            attempts: 1,
            retries_left: 0,
            headers: Vec::new(),
            history: vec![HistoryEntry::Attempt(Attempt {
                attempt: 1,
                at_ms: 1,
                class: class.to_owned(),
                reason: reason.to_owned(),
                duration_ms: None,
                host: String::new(),
                handler: String::new(),
                log: String::new(),
            })],
            payload: Some(Vec::new()),
        }
    }

    #[test]
    fn a_cause_is_one_group_whatever_the_numbers_ids_and_quoted_texts() {
        for (reason, expected) in [
            ("HTTP 503", "HTTP 503"),
            ("no order 123456, HTTP 404", "no order #, HTTP 404"),
            ("order 7 of 12 is late", "order # of # is late"),
            ("no verdict within 30s", "no verdict within #s"),
            ("user42 has no address", "user# has no address"),
            ("0199a2b3-c0de-7000-8000-0123456789ab gone", "# gone"),
            ("blob 7f3a99 is away", "blob # is away"),
            (
                "payload \"word1\" is no number",
                "payload \"…\" is no number",
            ),
            ("it's the user's \"A-1\\\" x\"!", "it's the user's \"…\"!"),
            ("no 'a b' and no `c`", "no \"…\" and no \"…\""),
            ("an open \" stays", "an open \" stays"),
            ("2026-11-21T11:22:19.323Z", "#-#-#:#:#.#Z"),
            ("10.0.0.1:8080 refused", "#.#.#.#:# refused"),
            ("exit code 1", "exit code 1"),
            ("größe 12 zu groß", "größe # zu groß"),
        ] {
            assert_eq!(
                group_of(&dead("nacked", reason)),
                format!("nacked: {expected}")
            );
        }
        let group = |reason| group_of(&dead("nacked", reason));
        assert_eq!(group("a12345 gone"), group("b98765 gone"));
        assert_ne!(group("HTTP 503"), group("HTTP 504"));
        assert_eq!(reason_of(&dead("nacked", "order 7")), "nacked: order 7");
        assert_eq!(reason_of(&dead("stopped", "")), "stopped");
    }

    proptest! {
        #[test]
        fn reasons_of_any_kind_are_survived_and_a_template_is_not_long(
            class: String,
            reason in ".*|[a0-9 ]{400,500}|[a1'\"`“”\\\\ é-]{0,80}",
        ) {
            let group = group_of(&dead(&class, &reason));
            prop_assert!(group.len() <= class.len() + 2 + 4 * 401);
        }
    }
}
