//! Ids that are named by their beginnings.

use super::{Filter, Walk};
use crate::message::{MessageId, QueueName, State};
use crate::store::{Store, StoreResult};

/// Messages that are looked at for the ids that begin so.
pub const PREFIX_LOOKED_AT_MAX: usize = 100_000;

/// Ids of several that are named at most.
pub const CANDIDATES_MAX: usize = 8;

/// The fewest characters of a beginning. Shorter ones are often ids that somebody chose.
const PREFIX_MIN: usize = 8;

/// A UUID as text.
pub(super) const UUID_LEN: usize = 36;

/// The ids that begin so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Candidates {
    /// At most [`CANDIDATES_MAX`].
    pub ids: Vec<MessageId>,
    /// There are more of them.
    pub is_more: bool,
    /// Not everything was looked at: there are more than [`PREFIX_LOOKED_AT_MAX`] messages.
    pub is_partial: bool,
}

/// The text as the beginning of a UUID, in lower case; none for what is none. A whole UUID is the beginning of no
/// other. Ids of another form are never guessed: `order-1` begins as `order-10` does, and is not that.
#[must_use]
pub fn prefix_of_id(text: &str) -> Option<String> {
    let fits = |(at, c): (usize, char)| match at {
        8 | 13 | 18 | 23 => c == '-',
        _ => c.is_ascii_hexdigit(),
    };
    let is_prefix = (PREFIX_MIN..UUID_LEN).contains(&text.len()) && text.char_indices().all(fits);
    is_prefix.then(|| text.to_ascii_lowercase())
}

/// Looks in these states for the ids that begin so, which are UUIDs.
pub async fn candidates(
    store: &dyn Store,
    (queue, states): (&QueueName, &[State]),
    prefix: &str,
) -> StoreResult<Candidates> {
    let mut found = Candidates::default();
    let mut looked_at = 0;
    for &state in states {
        let mut walk = Walk::begin(store, queue, state, (&Filter::default(), 0)).await?;
        while !walk.is_over() {
            if looked_at + walk.looked_at() >= PREFIX_LOOKED_AT_MAX {
                found.is_partial = true;
                return Ok(found);
            }
            for record in walk.next(store, queue).await? {
                let id = record.id.as_str();
                let begins_so = id.len() == UUID_LEN && id.starts_with(prefix);
                // It may have moved on into the next state.
                if !begins_so || found.ids.contains(&record.id) {
                    continue;
                }
                if found.ids.len() == CANDIDATES_MAX {
                    found.is_more = true;
                    return Ok(found);
                }
                found.ids.push(record.id);
            }
        }
        looked_at += walk.looked_at();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_beginning_of_a_uuid_is_one() {
        for (text, expected) in [
            ("0193aaaa", true),
            ("019AB000-b", true),
            ("0193aaaa-bbbb-7ccc-8ddd-eeeeeeeeeee", true),
            ("0193aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee", false),
            ("0193aaa", false),
            ("order-1", false),
            ("0193aaaab", false),
            ("0193-aaa", false),
            ("", false),
        ] {
            assert_eq!(prefix_of_id(text).is_some(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn each_beginning_of_an_id_of_ours_is_one(length in PREFIX_MIN..UUID_LEN) {
            let id = MessageId::new();
            prop_assert_eq!(prefix_of_id(&id.as_str()[..length]), Some(id.as_str()[..length].to_owned()));
        }

        #[test]
        fn any_text_is_survived(text in ".*") {
            let _ = prefix_of_id(&text);
        }
    }
}
