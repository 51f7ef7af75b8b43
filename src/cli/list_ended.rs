//! `dqhost list ended`: how the latest messages ended.

use std::io::Write;

use super::open::Missing;
use super::page::{Output, PageArgs};
use super::{Exit, StoreArgs, log, open, print};
use crate::control::{ended_ago, ended_failure, ended_matches, ended_took};
use crate::format::{self, time::rfc3339};
use crate::message::QueueName;
use crate::store::{BATCH_MAX, Ended, Store, StoreResult};
use crate::text::printable;

pub(super) async fn show(
    store: &StoreArgs,
    queue: &QueueName,
    args: &PageArgs,
) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(store, Missing::Refuse).await?;
    let found = wanted(&*store, queue, args).await?;
    match args.output() {
        Output::Json => {
            for ended in &found {
                print::json_line(&format::json::ended(ended, None))?;
            }
        }
        Output::Lines => {
            let mut out = print::stdout();
            for ended in &found {
                writeln!(out, "{}", line(ended))?;
            }
        }
        Output::Wide if found.is_empty() => {
            tell!("it is not kept how any such message of {queue} ended");
        }
        Output::Wide => {
            let now_ms = store.overview(queue).await?.now_ms;
            print::stdout().write_all(table(&found, now_ms).as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

/// Those of the page.
async fn wanted(store: &dyn Store, queue: &QueueName, args: &PageArgs) -> StoreResult<Vec<Ended>> {
    let (mut found, mut at) = (Vec::new(), 0);
    let mut to_pass = args.offset;
    while found.len() < args.wanted() {
        let page = store.ended(queue, at, BATCH_MAX).await?;
        if page.is_empty() {
            break;
        }
        at += BATCH_MAX;
        let filter = args.filter.as_ref();
        let mut page: Vec<_> = page
            .into_iter()
            .filter(|ended| filter.is_none_or(|filter| ended_matches(filter, ended)))
            .collect();
        let passed = to_pass.min(page.len());
        to_pass -= passed;
        found.extend(page.drain(passed..));
    }
    found.truncate(args.wanted());
    Ok(found)
}

fn line(ended: &Ended) -> String {
    let id = printable(ended.id.as_str());
    let (at, end, took) = (rfc3339(ended.at_ms), ended.end.as_str(), ended_took(ended));
    let host = printable(&ended.host);
    let line = format!(
        "{id}  {at}  {end}  took {took}  attempt {}  host {host}",
        ended.attempt
    );
    match ended_failure(ended) {
        failure if failure.is_empty() => line,
        failure => format!("{line}  {failure}"),
    }
}

/// With a header, and columns below each other.
fn table(all: &[Ended], now_ms: u64) -> String {
    const HEADER: [&str; 7] = ["ID", "ENDED", "HOW", "TOOK", "ATTEMPT", "HOST", "FAILURE"];
    let cells = |ended: &Ended| {
        [
            printable(ended.id.as_str()).into_owned(),
            ended_ago(ended, now_ms),
            ended.end.as_str().to_owned(),
            ended_took(ended),
            ended.attempt.to_string(),
            printable(&ended.host).into_owned(),
            match ended_failure(ended) {
                failure if failure.is_empty() => "-".to_owned(),
                failure => failure,
            },
        ]
    };
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(all.iter().map(cells));
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::End;

    #[test]
    fn each_is_one_line_whatever_it_has() {
        let acked = Ended {
            id: "a\nb".into(),
            at_ms: 1_000,
            end: End::Acked,
            attempt: 1,
            duration_ms: 12,
            due_at_ms: None,
            host: "h\x1b1".to_owned(),
            handler: String::new(),
            class: String::new(),
            reason: String::new(),
            has_result: false,
        };
        let died = Ended {
            id: "c".into(),
            end: End::Died,
            class: "rejected".to_owned(),
            reason: "no\norder".to_owned(),
            ..acked.clone()
        };
        assert_eq!(
            table(&[acked.clone(), died.clone()], 4_100),
            "ID    ENDED     HOW    TOOK  ATTEMPT  HOST      FAILURE\n\
             a\\nb  3.1s ago  acked  12ms  1        h\\u{1b}1  -\n\
             c     3.1s ago  died   12ms  1        h\\u{1b}1  rejected: no\\norder\n"
        );
        assert_eq!(
            line(&acked),
            "a\\nb  1970-01-01T00:00:01Z  acked  took 12ms  attempt 1  host h\\u{1b}1"
        );
        assert_eq!(line(&died).lines().count(), 1);
    }
}
