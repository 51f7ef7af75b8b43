//! Which messages are meant: words that an operator types.

use super::reason::group_of;
use crate::message::Record;

/// What a term looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Any,
    Id,
    Payload,
    Reason,
    Class,
    Header,
}

/// One word of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    negated: bool,
    field: Field,
    /// In lower case.
    value: String,
}

/// Which messages are meant: every word must be found, whatever its case, in the id, the payload,
/// the last failure or a header. `!word` must not be found; `id:`, `payload:`, `reason:`, `class:`
/// and `header:` look in one place only. An empty one means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    text: String,
    terms: Vec<Term>,
    /// Only dead letters of this [`group_of`].
    group: Option<String>,
}

/// Why a filter was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterError(String);

impl Filter {
    /// Reads a filter.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let mut terms = Vec::new();
        for word in text.split_whitespace() {
            let (negated, word) = match word.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, word),
            };
            let (field, value) = match word.split_once(':') {
                Some(("id", value)) => (Field::Id, value),
                Some(("payload", value)) => (Field::Payload, value),
                Some(("reason", value)) => (Field::Reason, value),
                Some(("class", value)) => (Field::Class, value),
                Some(("header", value)) => (Field::Header, value),
                _ => (Field::Any, word),
            };
            if value.is_empty() {
                return Err(FilterError(format!(
                    "nothing to look for in {word:?}: give it as id:..., payload:..., reason:..., \
                     class:... or header:..., or as a plain word"
                )));
            }
            terms.push(Term {
                negated,
                field,
                value: value.to_lowercase(),
            });
        }
        Ok(Self {
            text: text.trim().to_owned(),
            terms,
            group: None,
        })
    }

    /// The same, and of dead letters only those of one group.
    #[must_use]
    pub fn in_group(mut self, group: Option<String>) -> Self {
        self.group = group;
        self
    }

    /// The group, if one is set.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// What was typed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True when it means all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty() && self.group.is_none()
    }

    /// True when it looks into payloads.
    #[must_use]
    pub fn reads_payloads(&self) -> bool {
        let looks = |term: &Term| matches!(term.field, Field::Any | Field::Payload);
        self.terms.iter().any(looks)
    }

    /// Whether a message is meant.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        self.terms
            .iter()
            .all(|term| term.is_in(record) != term.negated)
            && self
                .group
                .as_ref()
                .is_none_or(|group| *group == group_of(record))
    }
}

impl Term {
    fn is_in(&self, record: &Record) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.value);
        let is = |field| self.field == Field::Any || self.field == field;
        let payload = || record.payload.as_deref().map(String::from_utf8_lossy);
        let last = record.last_attempt();
        is(Field::Id) && has(record.id.as_str())
            || is(Field::Payload) && payload().is_some_and(|text| has(&text))
            || is(Field::Reason) && last.is_some_and(|attempt| has(&attempt.reason))
            || is(Field::Class) && last.is_some_and(|attempt| has(&attempt.class))
            || is(Field::Header)
                && record
                    .headers
                    .iter()
                    .any(|(key, value)| has(&format!("{key}={value}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Attempt, HistoryEntry, State};
    use proptest::prelude::*;

    fn dead(payload: &str, class: &str, reason: &str) -> Record {
        Record {
            id: "0196-abc".into(),
            state: State::Dead,
            at_ms: Some(1),
            attempts: 1,
            retries_left: 0,
            headers: vec![("Kind".to_owned(), "Invoice".to_owned())],
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
            payload: Some(payload.as_bytes().to_vec()),
        }
    }

    #[test]
    fn every_word_must_be_found_and_no_negated_one() {
        let record = dead(r#"{"order": 7}"#, "nacked", "HTTP 503");
        for (filter, expected) in [
            ("", true),
            ("ORDER", true),
            ("order 503", true),
            ("order !503", false),
            ("!404", true),
            ("payload:503", false),
            ("reason:503 class:nacked id:0196", true),
            ("header:kind=invoice", true),
            ("http://x", false),
        ] {
            assert_eq!(
                Filter::parse(filter).unwrap().matches(&record),
                expected,
                "{filter}"
            );
        }
        assert!(Filter::parse("reason:").is_err() && Filter::parse("!").is_err());
    }

    #[test]
    fn a_group_is_chosen_by_its_reason() {
        let one = Filter::default().in_group(Some("nacked: HTTP 503".to_owned()));
        assert!(one.matches(&dead("", "nacked", "HTTP 503")));
        assert!(!one.matches(&dead("", "nacked", "HTTP 504")));
    }

    proptest! {
        #[test]
        fn filters_and_records_of_any_kind_are_survived(
            text in "(!?(id|payload|reason|class|header|x)?:?[a-zßİ0-9]{0,3} ?){0,4}|.*",
            payload: Vec<u8>,
            class: String,
            reason in ".*|[a0-9 ]{400,500}",
        ) {
            let mut record = dead("", &class, &reason);
            record.payload = Some(payload);
            prop_assert!(group_of(&record).len() <= class.len() + 2 + 4 * 401);
            let Ok(filter) = Filter::parse(&text) else {
                return Ok(());
            };
            let group = filter.clone().in_group(Some(group_of(&record)));
            prop_assert_eq!(group.matches(&record), filter.matches(&record));
            prop_assert_eq!(filter.is_empty(), text.split_whitespace().next().is_none());
        }
    }
}
