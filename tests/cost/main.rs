//! What does not depend on the clock: round trips, commands and allocations of what a host does, counted
//! for fixed work and compared with `recorded.txt`. A rise of more than a tenth fails.
//!
//! `DQHOST_RECORD_COSTS=1 cargo test --test cost` records what is counted now; the difference then says
//! in a review what became dearer.

#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

#[path = "../it/support.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
mod support;

mod counted;
mod work;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use counted::Costs;

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cost/recorded.txt")
}

const HEAD: &str = "\
# What work costs: round trips to Redis, commands that it is sent, commands that its scripts run, and
# allocations in the process. Recorded by `DQHOST_RECORD_COSTS=1 cargo test --test cost`.
#
# work                                    trips  sent  in scripts  allocations
";

fn text(costs: &BTreeMap<String, Costs>) -> String {
    let mut text = HEAD.to_owned();
    for (work, costs) in costs {
        let [trips, sent, inner, allocations] = costs.numbers();
        writeln!(
            text,
            "{work:<40} {trips:>6} {sent:>5} {inner:>11} {allocations:>12}"
        )
        .unwrap();
    }
    text
}

fn parse(text: &str) -> BTreeMap<String, Costs> {
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let numbers = words.split_off(words.len() - 4);
        let numbers: Vec<u64> = numbers.iter().map(|n| n.parse().unwrap()).collect();
        let numbers: [u64; 4] = numbers.try_into().unwrap();
        (words.join(" "), Costs::from(numbers))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(line).collect()
}

/// What became dearer by more than a tenth, and what is new or gone.
fn complaints(now: &BTreeMap<String, Costs>, recorded: &BTreeMap<String, Costs>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (work, costs) in now {
        let Some(before) = recorded.get(work) else {
            complaints.push(format!("{work}: not recorded"));
            continue;
        };
        let names = [
            "round trips",
            "commands sent",
            "commands in scripts",
            "allocations",
        ];
        for ((name, now), before) in names.into_iter().zip(costs.numbers()).zip(before.numbers()) {
            if now * 10 > before * 11 {
                complaints.push(format!("{work}: {now} {name}, recorded are {before}"));
            }
        }
    }
    let gone = recorded.keys().filter(|work| !now.contains_key(*work));
    complaints.extend(gone.map(|work| format!("{work}: recorded, but not counted any more")));
    complaints
}

#[test]
fn nothing_became_dearer() {
    let now = work::count_all();
    if std::env::var_os("DQHOST_RECORD_COSTS").is_some() {
        std::fs::write(file(), text(&now)).unwrap();
        return;
    }
    let recorded = parse(&std::fs::read_to_string(file()).unwrap());
    let complaints = complaints(&now, &recorded);
    assert!(
        complaints.is_empty(),
        "dearer than recorded:\n  {}\nnow:\n{}",
        complaints.join("\n  "),
        text(&now)
    );
}

#[test]
fn a_rise_of_more_than_a_tenth_is_told() {
    let costs = |numbers| BTreeMap::from([("x".to_owned(), Costs::from(numbers))]);
    let recorded = costs([1, 10, 100, 1000]);
    assert!(complaints(&costs([1, 11, 110, 1100]), &recorded).is_empty());
    assert!(complaints(&costs([0, 0, 0, 0]), &recorded).is_empty());
    for (place, dearer) in [[2, 0, 0, 0], [0, 12, 0, 0], [0, 0, 111, 0], [0, 0, 0, 1101]]
        .into_iter()
        .enumerate()
    {
        assert_eq!(complaints(&costs(dearer), &recorded).len(), 1, "{place}");
    }
    assert_eq!(complaints(&BTreeMap::new(), &recorded).len(), 1);
    assert_eq!(complaints(&recorded, &BTreeMap::new()).len(), 1);
    assert_eq!(parse(&text(&recorded)), recorded);
}
