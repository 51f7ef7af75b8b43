//! Takes secrets out of what handlers say, in whatever usual form they say it.
//!
//! A secret is found as it is, escaped as in `{:?}`, JSON and URLs, in Base64 (both alphabets, also
//! within a longer text) and in hexadecimal. One of 1 to 3 bytes is found only as a word of its own, and
//! not in Base64 or hexadecimal: it would be found in ordinary text. What a handler takes apart, turns
//! round or encrypts cannot be recognised.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use self::views::View;
use crate::text::hex;

mod views;

/// Lines of a secret that are shorter are not looked for by themselves: they would be found in
/// ordinary words.
const LINE_MIN: usize = 8;

/// Shorter secrets are found only as words. It is also the length of the shortest beginning of a secret
/// that is found at the place where a text was cut, and what needles are found by.
pub(super) const CUT_MIN: usize = 4;

/// A form of a secret, as bytes, and the name of the secret.
type Needle = (Box<[u8]>, String);

/// What is looked for.
#[derive(Default)]
pub(super) struct Secrets {
    needles: Vec<Needle>,
    /// The needles by their first bytes, and a filter in front of it.
    by_start: HashMap<[u8; CUT_MIN], Vec<usize>>,
    starts: Filter,
    /// Those that are found only as words.
    words: Vec<Needle>,
    /// The length of the longest secret.
    longest: usize,
    has_space: bool,
}

impl fmt::Debug for Secrets {
    /// Without their values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// A place where a secret is in a text: from, to, and its name.
type Span<'a> = (usize, usize, &'a str);

impl Secrets {
    /// Of secrets with their names. Each line of one is looked for as well, since what is printed is
    /// kept by lines.
    pub(super) fn new(named: &[(String, String)]) -> Self {
        let mut all = Self::default();
        for (name, value) in named {
            let lines = value.lines().filter(|line| line.len() >= LINE_MIN);
            for secret in lines.chain([value.as_str()]) {
                all.add(secret, name);
            }
        }
        all
    }

    fn add(&mut self, secret: &str, name: &str) {
        self.longest = self.longest.max(secret.len());
        self.has_space |= secret.contains(' ');
        if secret.len() < CUT_MIN {
            if !secret.is_empty() {
                self.words.push((secret.as_bytes().into(), name.to_owned()));
            }
            return;
        }
        let hex = hex(secret.as_bytes());
        let mut forms = vec![secret.to_owned(), hex.to_uppercase(), hex];
        for before in 0..3 {
            forms.push(base64_of(&STANDARD_NO_PAD, before, secret));
            forms.push(base64_of(&URL_SAFE_NO_PAD, before, secret));
        }
        forms.sort_unstable();
        forms.dedup();
        for form in forms {
            let Some(start) = form.as_bytes().first_chunk() else {
                continue;
            };
            self.starts.add(*start);
            self.by_start
                .entry(*start)
                .or_default()
                .push(self.needles.len());
            self.needles
                .push((form.into_bytes().into(), name.to_owned()));
        }
    }

    /// The text with every secret replaced by its name.
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
        let end = text.floor_char_boundary(max.saturating_add(self.longest));
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

    /// Where secrets are, in order. Those that overlap are one, so that no rest of either stays.
    fn spans(&self, text: &str, is_cut: bool) -> Vec<Span<'_>> {
        if self.needles.is_empty() && self.words.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for view in View::all(text, is_cut, self.has_space) {
            self.find(&view, is_cut, &mut found);
            self.find_words(&view, &mut found);
        }
        for (start, end, _) in &mut found {
            *start = text.floor_char_boundary(*start);
            *end = text.ceil_char_boundary(*end);
        }
        found.sort_by_key(|&(start, end, _)| (start, Reverse(end)));
        let mut spans: Vec<Span<'_>> = Vec::with_capacity(found.len());
        for (start, end, name) in found {
            match spans.last_mut() {
                Some(last) if start < last.1 => last.1 = last.1.max(end),
                _ => spans.push((start, end, name)),
            }
        }
        spans
    }

    fn find<'a>(&'a self, view: &View, is_cut: bool, found: &mut Vec<Span<'a>>) {
        for (at, start) in view.bytes.array_windows().enumerate() {
            if !self.starts.may_have(*start) {
                continue;
            }
            let rest = &view.bytes[at..];
            for &index in self.by_start.get(start).into_iter().flatten() {
                let (needle, name) = &self.needles[index];
                let is_begun = || is_cut && needle.starts_with(rest);
                if rest.starts_with(needle) || is_begun() {
                    let end = at + needle.len().min(rest.len());
                    found.push((view.origin(at), view.origin(end), name.as_str()));
                }
            }
        }
    }

    fn find_words<'a>(&'a self, view: &View, found: &mut Vec<Span<'a>>) {
        let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii();
        for (word, name) in &self.words {
            for (at, part) in view.bytes.windows(word.len()).enumerate() {
                let end = at + word.len();
                let is_alone = || {
                    let before = at.checked_sub(1).map(|at| &view.bytes[at]);
                    !before
                        .into_iter()
                        .chain(view.bytes.get(end))
                        .any(is_of_word)
                };
                if *part == **word && is_alone() {
                    found.push((view.origin(at), view.origin(end), name.as_str()));
                }
            }
        }
    }
}

/// The characters of Base64 that depend on the secret alone if so many bytes are before it, whatever
/// they are and whatever follows.
fn base64_of(alphabet: &impl Engine, before: usize, secret: &str) -> String {
    let bytes = [&[0; 2][..before], secret.as_bytes()].concat();
    let encoded = alphabet.encode(&bytes);
    encoded[(before * 8).div_ceil(6)..bytes.len() * 8 / 6].to_owned()
}

/// Tells quickly that no needle begins with some bytes.
struct Filter(Box<[u64; 1024]>);

impl Default for Filter {
    fn default() -> Self {
        Self(Box::new([0; 1024]))
    }
}

impl Filter {
    /// The bit for these bytes.
    fn place(start: [u8; CUT_MIN]) -> (usize, u64) {
        let hash = u32::from_le_bytes(start).wrapping_mul(0x9e37_79b1) >> 16;
        ((hash >> 6) as usize, 1 << (hash & 63))
    }

    fn add(&mut self, start: [u8; CUT_MIN]) {
        let (word, bit) = Self::place(start);
        self.0[word] |= bit;
    }

    fn may_have(&self, start: [u8; CUT_MIN]) -> bool {
        let (word, bit) = Self::place(start);
        self.0[word] & bit != 0
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

    /// As `{:?}` and JSON escape and as URLs do, each with the number of bytes of its quotes.
    fn escaped(text: &str) -> Vec<(String, usize)> {
        let percent = |is_kept: fn(u8) -> bool| -> String {
            let encode = |byte: u8| match byte {
                byte if is_kept(byte) => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            };
            text.bytes().map(encode).collect()
        };
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        let json = serde_json::Value::from(text).to_string();
        let is_kept = |byte: u8| byte.is_ascii_graphic() && byte != b'%' && byte != b'+';
        vec![
            (text.to_owned(), 0),
            (format!("{text:?}"), 1),
            (format!("{:?}", format!("{text:?}")), 3),
            (text.escape_unicode().to_string(), 0),
            (text.as_bytes().escape_ascii().to_string(), 0),
            (format!("{json:?}"), 3),
            (json, 1),
            (units.collect(), 0),
            (percent(|byte| byte.is_ascii_alphanumeric()), 0),
            (percent(is_kept).replace("%20", "+"), 0),
            (percent(|_| false).to_lowercase(), 0),
            (percent(|_| false).replace('%', "%25"), 0),
            (hex(text.as_bytes()), 0),
            (hex(text.as_bytes()).to_uppercase(), 0),
        ]
    }

    /// Both alphabets, and what URLs and JSON make of them.
    fn base64_forms(before: usize, text: &str) -> [String; 4] {
        let standard = base64_of(&STANDARD_NO_PAD, before, text);
        [
            base64_of(&URL_SAFE_NO_PAD, before, text),
            standard.replace('/', "%2F").replace('+', "%2B"),
            standard.replace('/', "\\/"),
            standard,
        ]
    }

    /// What a handler may say that has the text in it.
    fn forms(text: &str) -> Vec<String> {
        let escaped = escaped(text).into_iter().map(|(form, _)| form);
        escaped.chain(base64_forms(0, text)).collect()
    }

    /// What tells the text wherever it stands.
    fn cores(text: &str) -> Vec<String> {
        let escaped = escaped(text).into_iter();
        let cores = escaped.map(|(form, quotes)| form[quotes..form.len() - quotes].to_owned());
        cores
            .chain((0..3).flat_map(|before| base64_forms(before, text)))
            .collect()
    }

    #[test]
    fn each_form_of_a_secret_is_hidden() {
        let secrets = secrets(&[("KEY", "hunter2"), ("TOKEN", "a/b?c>d~e\"f g\u{e9}")]);
        for (text, hidden) in [
            ("x aHVudGVyMg== y", "x [secret KEY]g== y"),
            (
                "Authorization: Basic dXNlcjpodW50ZXIy",
                "Authorization: Basic dXNlcjp[secret KEY]",
            ),
            ("68756E74657232", "[secret KEY]"),
            ("%68unter%32", "[secret KEY]"),
            ("\\u0068unter\\x32", "[secret KEY]"),
            (r#""a/b?c>d~e\"f g\u{e9}""#, "\"[secret TOKEN]\""),
            (
                r#"{"k":"a\/b?c\u003ed~e\"f g\u00e9"}"#,
                r#"{"k":"[secret TOKEN]"}"#,
            ),
            ("k=a%2Fb%3fc%3Ed~e%22f+g%C3%A9&l", "k=[secret TOKEN]&l"),
        ] {
            assert_eq!(secrets.hide(text), hidden, "{text}");
        }
        for plain in [
            "hunter",
            "aHVudGVy",
            "%6",
            "\\u{1",
            "100% \\o/",
            "68756E7465723",
        ] {
            assert_eq!(secrets.hide(plain), plain);
        }
    }

    #[test]
    fn a_short_secret_is_hidden_only_as_a_word() {
        let secrets = secrets(&[("PIN", "42"), ("A", "a")]);
        assert_eq!(
            secrets.hide("pin=42, 1420 a cat a"),
            "pin=[secret PIN], 1420 [secret A] cat [secret A]"
        );
        assert_eq!(secrets.hide("3432 NDI"), "3432 NDI");
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]

        #[test]
        fn nothing_of_a_secret_can_be_decoded_wherever_it_stands_and_is_cut(
            secret in "[0-9/+?>\"\\\\ \n\u{e9}\u{2603}\u{1f600}\u{fe0f}\u{1}]{4,12}[0-9]{0,12}",
            before in "[x-z]{0,20}",
            after in "[x-z]{0,20}",
            cut in 0_usize..300,
        ) {
            let secrets = secrets(&[("KEY", &secret)]);
            let parts = if secret.len() < 8 { vec![secret.as_str()] } else { runs_of_eight(&secret) };
            let cores: Vec<String> = parts.into_iter().flat_map(cores).collect();
            let said = format!("{before}{secret}{after}");
            for form in forms(&said).iter().flat_map(|form| [form.clone(), format!("{before} {form} {after}")]) {
                let end = form.floor_char_boundary(cut);
                let shown = [
                    secrets.hide(&form).into_owned(),
                    secrets.hide_cut(&form[..end]).into_owned(),
                    secrets.hide_and_cut(&form, cut),
                ];
                for shown in &shown {
                    let left = cores.iter().find(|core| shown.contains(*core));
                    proptest::prop_assert!(left.is_none(), "{:?} in {:?} of {:?}", left, shown, form);
                }
            }
        }

        #[test]
        fn texts_without_a_secret_stay_as_they_are(text: String) {
            let secrets = secrets(&[("KEY", "\u{1f511} of ours"), ("OTHER", "0123456789abcdef")]);
            proptest::prop_assert_eq!(secrets.hide(&text), text.as_str());
            proptest::prop_assert_eq!(secrets.hide_cut(&text), text.as_str());
        }
    }

    /// Each part of at least eight bytes that has no shorter one in it.
    fn runs_of_eight(secret: &str) -> Vec<&str> {
        let starts = (0..secret.len()).filter(|at| secret.is_char_boundary(*at));
        let run = |start: usize| {
            let end = secret.ceil_char_boundary(start + 8);
            (start + 8 <= secret.len()).then(|| &secret[start..end])
        };
        starts.filter_map(run).collect()
    }
}
