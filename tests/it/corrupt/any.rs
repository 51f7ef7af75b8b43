//! What may be found where something else was expected.

use proptest::prelude::*;
use proptest::test_runner::Config;

/// So many cases unless `PROPTEST_CASES` says otherwise. What fails is printed; no file is kept, since
/// the same case may pass on another server.
pub(super) fn cases(few: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok();
    Config {
        cases: asked.and_then(|n| n.parse().ok()).unwrap_or(few),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    }
}

/// The hashes of a queue that have a field for each message or host.
pub(super) const HASHES: [&str; 8] = [
    "retry:cnt",
    "attempts",
    "due",
    "headers",
    "history",
    "repeats",
    "moving:was",
    "hosts:info",
];

/// Ids that have a meaning somewhere on their way: to a terminal, in a key, in a token, as one of ours.
pub(super) const IDS: [&[u8]; 14] = [
    b"a",
    b"",
    b"0",
    b"a/b:c",
    b"\x1b[2J\x07",
    b"line\r\nbreak",
    b"}:ready",
    b"{x}",
    b"\xff\xfe",
    b"\xe2\x80\xae\xc2\x9b6n",
    b"-----------------------------------------------------------------",
    b"019a2b3c-0000-7000-8000-000000000001",
    b"ffffffff-ffff-7fff-bfff-ffffffffffff",
    b"019a2b3c-0000-4000-8000-000000000099",
];

/// Values with which numbers, JSON and text are likely to go wrong.
pub(super) const VALUES: [&[u8]; 30] = [
    b"",
    b"0",
    b"3",
    b"-1",
    b"1.5",
    b"nan",
    b"inf",
    b"-inf",
    b"0x10",
    b"4294967295",
    b"4294967296",
    b"9223372036854775807",
    b"18446744073709551615",
    b"99999999999999999999999999",
    b"1e308",
    b"2:1",
    b"4294967295:4294967295",
    b"4294967295:0:4294967295",
    b"99999999999999999999:1:1",
    b"a/b:c/d",
    b"\xff\x00\xfe",
    b"[]",
    br#"[["k","v"],["\u001b]0;x\u0007","\u202e\u009b"]]"#,
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"{\"attempt\":4294967295,\"at_ms\":18446744073709551615,\"class\":\"\\u001b[2J\",\"reason\":\"\\u202e\",\"duration_ms\":18446744073709551615,\"host\":\"\\n\",\"log\":\"a\\r\\nb\\u0007\"}\n{\"redriven_from\":\"\\u001b[2J\",\"at_ms\":18446744073709551615}\nnot JSON\n{\"redriven_from\":1}",
    br#"{"id":"\u001b[2J","version":"\u202e","handler":"\u009b","slots":18446744073709551615,"in_flight":18446744073709551615}"#,
    b"pending:1",
    b"ready:-1",
    b"dead:99999999999999999999",
    b"moving:moving",
];

pub(super) const SCORES: [&str; 12] = [
    "0",
    "-1",
    "1.5",
    "inf",
    "-inf",
    "1e300",
    "-1e300",
    "9007199254740993",
    "9223372036854775807",
    "1795228395.123",
    "1e-300",
    "4102444800",
];

/// Bytes: mostly what is known to be difficult.
pub(super) fn bytes(known: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> + use<> {
    prop_oneof![
        8 => prop::sample::select(known).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (1_usize..2000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

/// True when nothing in a text could be an order to a terminal. Written once more, so that a mistake in
/// the program's own list is not repeated here.
pub(super) fn is_harmless(text: &str) -> bool {
    text.chars().all(|c| {
        c == '\n'
            || !(c.is_control()
                || ('\u{200b}'..='\u{200f}').contains(&c)
                || ('\u{2028}'..='\u{202e}').contains(&c)
                || ('\u{2060}'..='\u{206f}').contains(&c)
                || matches!(c, '\u{61c}' | '\u{feff}' | '\u{ad}'))
    })
}
