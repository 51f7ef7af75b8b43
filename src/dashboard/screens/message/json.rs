//! JSON with each value on a line of its own, and every value exactly as it was sent.

use serde_json::value::RawValue;

/// Spaces of one level, and the levels that are indented at most.
const STEP: usize = 2;
const LEVELS_MAX: usize = 40;

/// The first `max` bytes or so of the JSON, indented, and whether there are more; none if it is no
/// JSON. Numbers, names that come twice and the order of names stay as they are.
pub(super) fn indented(bytes: &[u8], max: usize) -> Option<(String, bool)> {
    let json: &RawValue = serde_json::from_slice(bytes).ok()?;
    let mut out = String::with_capacity(json.get().len().min(max) * 2);
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut is_escaped = false;
    let mut chars = json.get().chars().peekable();
    while let Some(c) = chars.next() {
        if out.len() > max {
            out.truncate(out.floor_char_boundary(max));
            return Some((out, true));
        }
        if in_string {
            in_string = is_escaped || c != '"';
            is_escaped = c == '\\' && !is_escaped;
            out.push(c);
            continue;
        }
        match c {
            c if c.is_ascii_whitespace() => {}
            '{' | '[' => {
                out.push(c);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => {
                in_string = c == '"';
                out.push(c);
            }
        }
    }
    Some((out, false))
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&" ".repeat(STEP * depth.min(LEVELS_MAX)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(json: &str) -> Option<String> {
        indented(json.as_bytes(), 1 << 16).map(|(text, _)| text)
    }

    #[test]
    fn the_json_view_changes_no_value() {
        let json =
            r#" {"z":1.10,"a":12345678901234567890123,"a":[1e400, {}, [ ]],"s":"a\\\" ,:{}"} "#;
        let expected = r#"{
  "z": 1.10,
  "a": 12345678901234567890123,
  "a": [
    1e400,
    {},
    []
  ],
  "s": "a\\\" ,:{}"
}"#;
        assert_eq!(text(json).unwrap(), expected);
        for bad in ["", "{", "[1,]", "x", "{} {}", "\"a"] {
            assert_eq!(text(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_nested_without_end_is_shown_to_its_bound() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let (text, is_cut) = indented(deep.as_bytes(), 1000).unwrap();
        assert!(is_cut && text.len() <= 1000);
    }

    proptest! {
        #[test]
        fn without_its_blanks_it_is_the_same(text: Vec<String>, numbers: Vec<i64>) {
            let value = serde_json::json!({ "t": text, "n": numbers, "e": {}, "d": [[], [{"x": null}]] });
            let (shown, _) = indented(value.to_string().as_bytes(), 1 << 20).unwrap();
            let again: serde_json::Value = serde_json::from_str(&shown).unwrap();
            prop_assert_eq!(again.to_string(), value.to_string());
        }
    }
}
