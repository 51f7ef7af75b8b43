//! Takes secrets out of what handlers say.

use std::borrow::Cow;

/// Lines of a secret that are shorter are not looked for by themselves: they would be found in
/// ordinary words.
const LINE_MIN: usize = 8;

/// The same for the beginning of a secret at the place where a text was cut.
const CUT_MIN: usize = 4;

/// What is looked for, longest first, with the name of the secret that it belongs to.
pub(super) struct Secrets(Vec<(String, String)>);

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
        all.sort_by_key(|(needle, _)| std::cmp::Reverse(needle.len()));
        all.dedup();
        Self(all)
    }

    /// The text with every secret replaced by its name. What a handler takes apart, encodes or sends
    /// elsewhere cannot be recognised.
    pub(super) fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for (needle, name) in &self.0 {
            if text.contains(needle.as_str()) {
                text = Cow::Owned(text.replace(needle.as_str(), &mark(name)));
            }
        }
        text
    }

    /// The same for a text that was cut, which may end in the middle of a secret.
    pub(super) fn hide_cut(&self, text: &str) -> String {
        let mut text = self.hide(text).into_owned();
        for (needle, name) in &self.0 {
            let lengths = (CUT_MIN..needle.len()).rev();
            let mut starts = lengths.filter_map(|length| needle.get(..length));
            if let Some(start) = starts.find(|start| text.ends_with(start)) {
                text.truncate(text.len() - start.len());
                text.push_str(&mark(name));
            }
        }
        text
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
}
