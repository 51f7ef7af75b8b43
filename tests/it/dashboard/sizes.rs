//! At any size and with any numbers: no panic, no number without some of its digits, no panel over
//! another.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dqhost::control::{
    Counts, Ended, FailedAt, Filter, History, QueryResult, Snapshot, TaskView, Totals,
};
use dqhost::dashboard::picture;
use proptest::prelude::*;

use super::sample::{Sample, theme};

/// Where everything has room.
const LARGE: (u16, u16) = (300, 100);

/// Where there is one line, and room for all of it.
const ONE_LINE: (u16, u16) = (300, 5);

/// That of the hosts, which is shown where it has room.
const VERSION: &str = "0.1.0";

/// How the screens are reached.
const SCREENS: [&str; 15] = [
    "", "2", "2]]", "3", "3j", "3\n", "3\n\n", "3tx\n", "4", "5", "5\n", "6", "2\n", ",", ",jj\n",
];

/// How what lies on top is.
const ON_TOP: [&str; 10] = [
    "?", "3\nD", ":send", "3\n\ne", "/", "q", "3t", "3tx\nr", "5d", "5/x\n",
];

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..200_u64,
        any::<u64>(),
        Just(u64::MAX),
        (0_u32..64).prop_map(|bits| 1 << bits),
        (0_u32..20).prop_map(|digits| 10_u64.pow(digits) - 1),
    ]
}

/// Puts the numbers wherever there is one.
fn fill(snapshot: &mut Snapshot, numbers: &[u64]) {
    let mut numbers = numbers.iter().copied().cycle();
    let mut next = || numbers.next().unwrap();
    for view in &mut snapshot.queues {
        view.overview.counts = Counts {
            pending: next(),
            ready: next(),
            unack: next(),
            retry: next(),
            dead: next(),
            moving: next(),
            totals: Totals {
                sent: next(),
                acked: next(),
                nacked: next(),
                dead: next(),
                ..Totals::default()
            },
        };
        view.overview.oldest_ready_ms = Some(next());
        view.overview.next_due_ms = Some(next());
        view.overview.failed.backing_off = next();
        for at in &mut view.overview.failed.by_failed {
            *at = FailedAt {
                failed: u32::try_from(next() % 1000).unwrap(),
                count: next(),
                last: next(),
            };
        }
        for host in &mut view.hosts {
            host.info.slots = usize::try_from(next()).unwrap();
            host.info.in_flight = usize::try_from(next()).unwrap();
            host.seen_ms_ago = next();
        }
        if let Some(report) = &mut view.report {
            report.took.count = next();
            report.took.p50 = Duration::from_micros(next());
            report.took.p99 = Duration::from_micros(next());
            report.late.p50 = Duration::from_micros(next());
        }
    }
    let host = snapshot.host.as_mut().unwrap();
    host.slots = usize::try_from(next()).unwrap();
    host.busy = usize::try_from(next()).unwrap();
    host.summary.refused = next();
    for in_flight in &mut snapshot.in_flight {
        in_flight.attempt = u32::try_from(next() % (1 << 32)).unwrap();
        in_flight.attempts_max = u32::try_from(next() % (1 << 32)).unwrap();
    }
    snapshot.task = Some(TaskView {
        what: "redriving",
        done: next(),
        failed: next(),
        total: Some(next()),
    });
    fill_result(&mut snapshot.result, next);
}

fn fill_result(result: &mut QueryResult, mut next: impl FnMut() -> u64) {
    match result {
        QueryResult::Messages { records, .. } => {
            for record in Arc::make_mut(records) {
                record.attempts = u32::try_from(next() % (1 << 32)).unwrap();
                record.at_ms = Some(next());
            }
        }
        QueryResult::Groups { groups, .. } => {
            for group in Arc::make_mut(groups) {
                group.count = next();
                group.latest_ms = next();
                group.first_ms = next();
                group.trend.add(next());
            }
        }
        QueryResult::Ended {
            history: Ok(history),
            ..
        } => {
            let mut latest: Vec<Ended> = (history.lines.iter())
                .map(|line| line.ended.clone())
                .collect();
            for ended in &mut latest {
                ended.attempt = u32::try_from(next() % (1 << 32)).unwrap();
                ended.at_ms = next();
                ended.duration_ms = next();
                ended.due_at_ms = Some(next());
            }
            *history = Arc::new(History::of(
                latest,
                next().is_multiple_of(2),
                &Filter::default(),
            ));
        }
        QueryResult::Due {
            ahead: Ok(ahead), ..
        } => {
            for span in &mut Arc::make_mut(ahead).spans {
                span.count = next();
                span.failed = next().min(span.count);
                span.is_more = span.count % 64 == 63;
            }
        }
        _ => {}
    }
}

/// The screen behind these keys, with these numbers.
fn shown(size: (u16, u16), keys: &str, numbers: &[u64]) -> String {
    let mut sample = Sample::new(theme(), size);
    for key in keys.chars() {
        match key {
            '\n' => sample.enter(),
            key => sample.type_in(&key.to_string()),
        };
    }
    // Two readings, so that there are rates of any size.
    for turn in 0..2 {
        sample.now += Duration::from_secs(1);
        let now = sample.now;
        sample.change(|snapshot| {
            fill(snapshot, &numbers[turn..]);
            snapshot.read_at = Some(now);
            for view in &mut snapshot.queues {
                view.read_at = now;
            }
        });
    }
    let now = sample.now;
    picture(&mut sample.state, now).text()
}

/// Words with a digit, without those of a text that is cut with a mark.
fn numbers_in(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let is_word = |c: char| c.is_alphanumeric() || c == '.' || c == 'µ';
        let mut rest = line;
        while let Some(start) = rest.find(is_word) {
            let before = rest[..start].chars().next_back();
            let word = &rest[start..];
            let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
            let after = word[end..].chars().next();
            let is_cut = before == Some('…') || after == Some('…');
            let word = word[..end].trim_matches('.');
            if word.contains(|c: char| c.is_ascii_digit()) && !is_cut {
                found.insert(word.to_owned());
            }
            rest = &rest[start + end..];
        }
    }
    found
}

/// True for a length of time, which has its unit: how long the graphs go back depends on their width.
fn is_time(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    unit.len() < word.len() && ["ms", "s", "m", "h", "d", "µs"].contains(&unit)
}

/// Every panel is whole.
fn check_panels(text: &str) -> Result<(), TestCaseError> {
    let grid: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
    let at = |x: usize, y: usize| grid.get(y).and_then(|row| row.get(x)).copied();
    let mut corners = [0; 4];
    for (y, row) in grid.iter().enumerate() {
        for (x, c) in row.iter().enumerate() {
            if let Some(which) = "╭╮╰╯".chars().position(|corner| corner == *c) {
                corners[which] += 1;
            }
            if *c != '╭' {
                continue;
            }
            let right = (x..row.len()).find(|x| row[*x] == '╮');
            prop_assert!(right.is_some(), "no right corner\n{}", text);
            let right = right.unwrap();
            let mut bottom = y + 1;
            while at(x, bottom) == Some('│') {
                prop_assert_eq!(at(right, bottom), Some('│'), "{}", text);
                bottom += 1;
            }
            prop_assert_eq!(at(x, bottom), Some('╰'), "{}", text);
            prop_assert_eq!(at(right, bottom), Some('╯'), "{}", text);
            for x in x + 1..right {
                prop_assert_eq!(at(x, bottom), Some('─'), "{}", text);
            }
        }
    }
    prop_assert!(corners.iter().all(|count| *count == corners[0]), "{}", text);
    Ok(())
}

/// No number of this screen is cut, and no panel lies on another.
fn check_numbers(
    (columns, rows): (u16, u16),
    keys: &str,
    numbers: &[u64],
) -> Result<(), TestCaseError> {
    let large = if columns < 30 || rows < 6 {
        ONE_LINE
    } else {
        LARGE
    };
    let known = numbers_in(&shown(large, keys, numbers));
    let text = shown((columns, rows), keys, numbers);
    for word in numbers_in(&text) {
        let is_known = known.contains(&word) || is_time(&word) || word == VERSION;
        prop_assert!(
            is_known || text.contains("further"),
            "{:?} in\n{}",
            word,
            text
        );
    }
    check_panels(&text)
}

/// The name of a host stood on two lines of the details once.
#[test]
fn the_details_of_the_history_are_whole_with_the_largest_numbers() {
    for below in 0..8 {
        for columns in [118, 119, 120, 121, 140] {
            let numbers: Vec<u64> = (0..60).map(|n| u64::MAX - below * n).collect();
            check_numbers((columns, 20), "5", &numbers).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn no_number_is_cut_and_no_panel_lies_on_another(
        columns in 20_u16..=300,
        rows in 5_u16..=100,
        keys in prop::sample::select(SCREENS.to_vec()),
        numbers in prop::collection::vec(any_number(), 40..60),
    ) {
        check_numbers((columns, rows), keys, &numbers)?;
    }

    #[test]
    fn no_size_is_a_panic(
        columns in 1_u16..=300,
        rows in 1_u16..=100,
        keys in prop::sample::select([&SCREENS[..], &ON_TOP[..]].concat()),
        numbers in prop::collection::vec(any_number(), 40..60),
    ) {
        let text = shown((columns, rows), keys, &numbers);
        prop_assert_eq!(text.lines().count(), usize::from(rows));
        for line in text.lines() {
            prop_assert!(line.chars().count() <= usize::from(columns));
        }
    }
}
