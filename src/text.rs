//! Text from outside, made fit for a terminal or a log line.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// True for what must never reach a terminal as it is: C0 and C1 controls, DEL, the characters
/// that reorder text, those that are invisible (Unicode's `Default_Ignorable_Code_Point`), and line
/// separators.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// True without any unsafe character. Most texts are plain ASCII, which is seen in a fraction of the time.
fn is_safe(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.contains(is_unsafe)
}

/// The text on one line, with every unsafe character written out as `\n`, `\u{1b}` and so on.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if is_safe(text) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c if is_unsafe(c) => {
                let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// JSON with every unsafe character written as an escape: the same value, fit for a terminal.
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if is_safe(json) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// The text cut so that it takes at most `max` bytes within JSON, with a mark when it was cut.
#[must_use]
pub fn cut_for_json(text: &str, max: usize) -> Cow<'_, str> {
    let mut size = 0;
    for (at, c) in text.char_indices() {
        size += match c {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            c if u32::from(c) < 0x20 => 6,
            c => c.len_utf8(),
        };
        if size > max {
            return cut(text, at);
        }
    }
    Cow::Borrowed(text)
}

/// The text cut to at most `max` bytes, at a character's border, with a mark when it was cut.
#[must_use]
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(max);
    Cow::Owned(format!(
        "{}[cut: {} bytes more]",
        &text[..end],
        text.len() - end
    ))
}

/// A length of time in two units at most, rounded down: `850ms`, `1.2s`, `12s`, `4m 05s`, `3h 20m`,
/// `2d 4h`.
#[must_use]
pub fn human_duration(duration: Duration) -> String {
    let (ms, seconds) = (duration.as_millis(), duration.as_secs());
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        _ if ms < 1000 => format!("{ms}ms"),
        0..10 => format!("{}.{}s", seconds, ms % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m {:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

/// `once`, `twice`, `3 times`.
#[must_use]
pub fn times(number: u32) -> String {
    match number {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        number => format!("{number} times"),
    }
}

/// A number of messages in at most five places, rounded down: `12345`, `123k`, `4.5M`, `18E`.
#[must_use]
pub fn short_number(number: u64) -> String {
    const UNITS: [char; 5] = ['M', 'G', 'T', 'P', 'E'];
    match number {
        0..100_000 => return number.to_string(),
        100_000..1_000_000 => return format!("{}k", number / 1000),
        _ => {}
    }
    let (mut unit, mut one) = (0, 1_000_000);
    while number / one >= 1000 {
        unit += 1;
        one *= 1000;
    }
    let (whole, tenths) = (number / one, number % one / (one / 10));
    match whole {
        0..100 => format!("{whole}.{tenths}{}", UNITS[unit]),
        _ => format!("{whole}{}", UNITS[unit]),
    }
}

/// A number with its thousands apart: `1,234`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The text as one word of a shell: as it is, or in single quotes.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&b);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Line and column of a byte of the text, from 1 on.
#[must_use]
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[start..].chars().count() + 1)
}

/// Bytes in hexadecimal, lower case.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A payload as people read it: its text when it is text, else its bytes in hexadecimal; the first
/// `max` bytes of the result, with `…` when there are more.
#[must_use]
pub fn payload(bytes: &[u8], max: usize) -> String {
    // A payload may have been cut within a character before it came here.
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && bytes.len() > max => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    if let Some(text) = text {
        let end = text.floor_char_boundary(max);
        let more = if end < bytes.len() { "…" } else { "" };
        return format!("{}{more}", printable(&text[..end]));
    }
    let shown = &bytes[..bytes.len().min(max / 2)];
    let mut hex = format!("0x{}", hex(shown));
    if shown.len() < bytes.len() {
        hex.push('…');
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escape_sequences_lose_their_power() {
        for (bad, good) in [
            ("\x1b]52;c;aGk=\x07", "\\u{1b}]52;c;aGk=\\u{7}"),
            ("\u{9b}6n", "\\u{9b}6n"),
            ("a\u{202e}b\u{200b}c", "a\\u{202e}b\\u{200b}c"),
            ("one\r\ntwo\u{7f}", "one\\r\\ntwo\\u{7f}"),
        ] {
            assert_eq!(printable(bad), good);
        }
        assert!(matches!(printable("plain ✓ text"), Cow::Borrowed(_)));
    }

    #[test]
    fn fillers_joiners_and_variation_selectors_are_written_out() {
        for c in [
            '\u{3164}',
            '\u{34f}',
            '\u{fe00}',
            '\u{fe0f}',
            '\u{e0100}',
            '\u{e01ef}',
            '\u{ffa0}',
        ] {
            let written = format!("a\\u{{{:x}}}b", u32::from(c));
            assert_eq!(printable(&format!("a{c}b")), written);
            assert_ne!(printable_json(&format!("\"a{c}b\"")), format!("\"a{c}b\""));
        }
    }

    #[test]
    fn lengths_of_time_and_numbers_are_short() {
        for (ms, text) in [
            (0, "0ms"),
            (850, "850ms"),
            (1_250, "1.2s"),
            (12_900, "12s"),
            (245_000, "4m 05s"),
            (12_000_000, "3h 20m"),
            (187_200_000, "2d 4h"),
        ] {
            assert_eq!(human_duration(Duration::from_millis(ms)), text);
        }
        let short = [7, 99_999, 123_456, 4_560_000, 123_456_789].map(short_number);
        assert_eq!(short, ["7", "99999", "123k", "4.5M", "123M"]);
        let short = [999_999_999, 1_000_000_000, 88_800_000_000_000, u64::MAX].map(short_number);
        assert_eq!(short, ["999M", "1.0G", "88.8T", "18.4E"]);
        assert_eq!(
            [0, 1, 2, 3].map(times),
            ["0 times", "once", "twice", "3 times"]
        );
        let numbers = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
        let words = ["a/b.db", "", "a b", "it's"].map(shell_word);
        assert_eq!(words, ["a/b.db", "''", "'a b'", "'it'\\''s'"]);
    }

    #[test]
    fn payloads_are_shown_as_text_or_hexadecimal() {
        assert_eq!(payload(b"{\"a\":1}", 100), "{\"a\":1}");
        assert_eq!(payload(b"\xff\x00\x01", 100), "0xff0001");
        assert_eq!(payload(b"\xff\x00\x01", 4), "0xff00…");
        assert_eq!(payload("ééé".as_bytes(), 3), "é…");
        assert_eq!(payload(&"ééé".as_bytes()[..5], 4), "éé…");
        assert_eq!(payload(&"ééééé".as_bytes()[..7], 3), "é…");
    }

    #[test]
    fn what_goes_into_json_is_cut_by_its_size_there() {
        assert_eq!(cut_for_json("plain", 5), "plain");
        assert_eq!(
            cut_for_json("\u{1}\u{1}\u{1}", 12),
            "\u{1}\u{1}[cut: 1 bytes more]"
        );
        assert_eq!(cut_for_json("\"\"x", 4), "\"\"[cut: 1 bytes more]");
    }

    proptest! {
        #[test]
        fn json_keeps_its_value_and_loses_its_power(text: String) {
            let json = serde_json::json!({ "text": text }).to_string();
            let safe = printable_json(&json);
            prop_assert!(!safe.contains(is_unsafe));
            let back: serde_json::Value = serde_json::from_str(&safe).unwrap();
            prop_assert_eq!(back["text"].as_str(), Some(text.as_str()));
        }

        #[test]
        fn nothing_unsafe_is_left(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            prop_assert!(!printable(&text).contains(is_unsafe));
            prop_assert!(!payload(&bytes, 64).contains(is_unsafe));
        }

        /// By ranges of its own, with what is likely to go wrong often enough.
        #[test]
        fn what_is_shown_stays_as_it_is_and_has_a_bound(
            text in "[a\\\\ \u{0}-\u{1f}\u{7f}-\u{9f}\u{ad}\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{feff}\u{34f}\u{3164}\u{fe00}-\u{fe0f}\u{e0100}-\u{e01ef}é✓]{0,40}",
            max in 0_usize..80,
        ) {
            let safe = printable(&text);
            let bad = |c: char| {
                c < ' ' || ('\u{7f}'..='\u{9f}').contains(&c) || ('\u{200b}'..='\u{200f}').contains(&c)
                    || ('\u{2028}'..='\u{202e}').contains(&c) || ('\u{2060}'..='\u{206f}').contains(&c)
                    || c == '\u{feff}' || c == '\u{ad}' || c == '\u{34f}' || c == '\u{3164}'
                    || ('\u{fe00}'..='\u{fe0f}').contains(&c) || ('\u{e0100}'..='\u{e01ef}').contains(&c)
            };
            prop_assert!(!safe.contains(bad), "{:?}", safe);
            prop_assert_eq!(printable(&safe), safe.clone());
            prop_assert!(safe.chars().count() <= text.chars().count() * 10);
            prop_assert!(cut(&text, max).len() <= max + 40);
            prop_assert!(payload(text.as_bytes(), max).len() <= max * 10 + 10);
            prop_assert!(payload(&[text.as_bytes(), b"\xff"].concat(), max).len() <= max.max(2) + 10);
            let json = serde_json::json!(cut_for_json(&text, max)).to_string();
            prop_assert!(json.len() <= max + 42, "{}", json);
        }
    }
}
