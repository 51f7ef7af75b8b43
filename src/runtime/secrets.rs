//! Takes secrets out of what handlers say.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;

/// Lines of a secret that are shorter are not looked for by themselves: they would be found in
/// ordinary words.
const LINE_MIN: usize = 8;

/// The same for the beginning of a secret at the place where a text was cut.
pub(super) const CUT_MIN: usize = 4;

/// What is looked for, longest first, with the name of the secret that it belongs to.
pub(super) struct Secrets(Vec<(String, String)>);

impl fmt::Debug for Secrets {
    /// Without their values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

impl Secrets {
    /// Of secrets with their names. Each line of one is looked for as well, since what is printed is
    /// kept by lines.
    pub(super) fn new(named: &[(String, String)]) -> Self {
        let mut all = Vec::new();
        for (name, value) in named {
            let lines = value.lines().filter(|line| line.len() >= LINE_MIN);
            for needle in lines.chain([value.as_str()]) {
                if !needle.is_empty() {
                    all.push((needle.to_owned(), name.clone()));
                }
            }
        }
        all.sort_by_key(|(needle, _)| Reverse(needle.len()));
        all.dedup();
        Self(all)
    }

    /// The text with every secret replaced by its name. What a handler takes apart, encodes or sends
    /// elsewhere cannot be recognised.
    pub(super) fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.hide_in(text, false)
    }

    /// The same for a text that was cut, which may end in the middle of a secret.
    pub(super) fn hide_cut<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.hide_in(text, true)
    }

    /// The text with every secret replaced, and then cut to at most `max` bytes, with a mark when it
    /// was cut. Nothing is searched that lies so far behind the cut that it cannot matter.
    pub(super) fn hide_and_cut(&self, text: &str, max: usize) -> String {
        let longest = self.0.first().map_or(0, |(needle, _)| needle.len());
        let end = text.floor_char_boundary(max.saturating_add(longest));
        let (head, rest) = text.split_at(end);
        let hidden = self.hide_in(head, !rest.is_empty());
        if rest.is_empty() && hidden.len() <= max {
            return hidden.into_owned();
        }
        let end = hidden.floor_char_boundary(max);
        let more = hidden.len() - end + rest.len();
        format!("{}[cut: {more} bytes more]", &hidden[..end])
    }

    fn hide_in<'a>(&self, text: &'a str, is_cut: bool) -> Cow<'a, str> {
        let spans = self.spans(text, is_cut);
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut hidden, mut from) = (String::with_capacity(text.len()), 0);
        for (start, end, name) in spans {
            hidden.push_str(&text[from..start]);
            hidden.push_str(&mark(name));
            from = end;
        }
        hidden.push_str(&text[from..]);
        Cow::Owned(hidden)
    }

    /// Where secrets are, from and to, in order. Those that overlap are one, so that no rest of either
    /// stays.
    fn spans(&self, text: &str, is_cut: bool) -> Vec<(usize, usize, &str)> {
        let mut found = Vec::new();
        for (needle, name) in &self.0 {
            let mut from = 0;
            while let Some(at) = text[from..].find(needle.as_str()) {
                let start = from + at;
                found.push((start, start + needle.len(), name.as_str()));
                // Not behind it: an occurrence may overlap the one before.
                from = text.ceil_char_boundary(start + 1);
            }
            if is_cut {
                let lengths = (CUT_MIN..needle.len()).rev();
                let mut starts = lengths.filter_map(|length| needle.get(..length));
                if let Some(start) = starts.find(|start| text.ends_with(start)) {
                    found.push((text.len() - start.len(), text.len(), name.as_str()));
                }
            }
        }
        found.sort_by_key(|&(start, end, _)| (start, Reverse(end)));
        let mut spans: Vec<(usize, usize, &str)> = Vec::with_capacity(found.len());
        for (start, end, name) in found {
            match spans.last_mut() {
                Some(last) if start < last.1 => last.1 = last.1.max(end),
                _ => spans.push((start, end, name)),
            }
        }
        spans
    }
}

fn mark(name: &str) -> String {
    format!("[secret {name}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(named: &[(&str, &str)]) -> Secrets {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Secrets::new(&named.iter().map(owned).collect::<Vec<_>>())
    }

    #[test]
    fn secrets_are_replaced_by_their_names_longest_first() {
        let secrets = secrets(&[("A", "abc"), ("B", "abcdef"), ("NONE", "")]);
        assert_eq!(secrets.hide("x abcdef abc"), "x [secret B] [secret A]");
        assert_eq!(secrets.hide("nothing"), "nothing");
    }

    #[test]
    fn each_line_of_a_secret_is_one() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nAB\n-----END KEY-----\n";
        let secrets = secrets(&[("KEY", key)]);
        assert_eq!(secrets.hide("MIIEvQIBADANBg"), "[secret KEY]");
        assert_eq!(secrets.hide("ABBA"), "ABBA");
    }

    #[test]
    fn the_beginning_of_a_secret_at_a_cut_is_hidden() {
        let secrets = secrets(&[("KEY", "hunter2hunter2")]);
        assert_eq!(secrets.hide_cut("it is hunter2hun"), "it is [secret KEY]");
        assert_eq!(secrets.hide_cut("it is hun"), "it is hun");
    }

    #[test]
    fn no_rest_of_secrets_that_overlap_stays() {
        let secrets = secrets(&[("A", "aaaabbbb"), ("B", "bbbbcccc"), ("C", "dededede")]);
        assert_eq!(secrets.hide("aaaabbbbcccc."), "[secret A].");
        assert_eq!(secrets.hide("dedededededede."), "[secret C].");
        assert_eq!(secrets.hide("aaaabbbbaaaabbbb"), "[secret A][secret A]");
    }
}
