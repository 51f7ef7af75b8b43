//! `dqhost audit`.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;

use super::open::Missing;
use super::queues::QueuesArgs;
use super::{Exit, StoreArgs, log, open, print};
use crate::message::QueueName;
use crate::store::{Audit, AuditReport, FindingKind, Findings, Store, StoreError};
use crate::text::{cut, printable};

/// Bytes of a sample that are shown in the table.
const SAMPLE_SHOWN: usize = 80;

#[derive(Debug, Args)]
pub(super) struct AuditArgs {
    /// Repair what can be repaired
    ///
    /// What can be no message any more becomes a dead letter.
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    queues: QueuesArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

/// What came of the audit of a queue.
type Audited = (QueueName, Result<AuditReport, String>);

pub(super) async fn audit(args: AuditArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    // What is asked for of some queues changes nothing else.
    let repairs_store = args.repair && args.queues.named().is_empty();
    let of_store = store.audit_store(repairs_store).await?;
    // Then nothing that it says of its messages can be relied upon.
    let is_unusable = |findings: &Findings| findings.kind == FindingKind::Damaged;
    let (queues, complete) = if of_store.0.iter().any(is_unusable) {
        (Vec::new(), true)
    } else {
        let chosen = args.queues.choose(&*store).await?;
        if let Some(note) = chosen.note {
            tell!("{note}");
        }
        let audited = audit_queues(&*store, chosen.queues, args.repair).await?;
        (audited, chosen.complete)
    };
    if args.json {
        let queues: Vec<_> = queues
            .iter()
            .map(|(queue, result)| match result {
                Ok(report) => json!({"queue": queue, "findings": report}),
                Err(error) => json!({"queue": queue, "error": error}),
            })
            .collect();
        print::json_line(&json!({
            "store": store.describe(), "repair": args.repair,
            "findings": of_store, "queues": queues,
        }))?;
    } else {
        print_audit(&store.describe(), &of_store, &queues, args.repair)?;
    }
    for queue in args.queues.missing(&*store).await? {
        tell!("there is no queue {queue}: nobody has sent to it");
    }
    let is_fine = |(_, result): &Audited| result.as_ref().is_ok_and(AuditReport::is_repaired);
    Ok(match of_store.is_repaired() && queues.iter().all(is_fine) {
        true if complete => Exit::Done,
        true => Exit::Partly,
        false => Exit::Failed,
    })
}

/// Audits one queue after the other. What one of them is refused for does not keep it from the next;
/// when the store is lost, what was done before is told all the same.
async fn audit_queues(
    store: &dyn Store,
    queues: Vec<QueueName>,
    repair: bool,
) -> anyhow::Result<Vec<Audited>> {
    let how = Audit {
        repair,
        settling: Audit::SETTLING,
    };
    let mut audited = Vec::with_capacity(queues.len());
    for queue in queues {
        let result = store.audit(&queue, how).await;
        let is_lost = result
            .as_ref()
            .is_err_and(|error| !matches!(error, StoreError::Refused { .. }));
        if is_lost && audited.is_empty() {
            return Ok(vec![(queue, Ok(result?))]);
        }
        audited.push((queue, result.map_err(|error| error.to_string())));
        if is_lost {
            break;
        }
    }
    Ok(audited)
}

/// A line for each kind of finding, and what to do about what is left.
fn print_audit(
    store: &str,
    of_store: &AuditReport,
    queues: &[Audited],
    repair: bool,
) -> io::Result<()> {
    let mut out = print::stdout();
    writeln!(out, "store {}", printable(store))?;
    let reports = queues.iter().filter_map(|(queue, result)| {
        let report = result.as_ref().ok()?;
        Some((queue.as_str(), report))
    });
    let reports = std::iter::once(("-", of_store)).chain(reports);
    let lines: Vec<(&str, &Findings)> = reports
        .flat_map(|(queue, report)| report.0.iter().map(move |findings| (queue, findings)))
        .collect();
    if !lines.is_empty() {
        writeln!(
            out,
            "{:<20} {:<15} {:>8} {:>8} {:>8} {:>8}  SUCH AS",
            "QUEUE", "FINDING", "FOUND", "REPAIRED", "DEAD", "LEFT"
        )?;
    }
    for (queue, findings) in &lines {
        writeln!(
            out,
            "{:<20} {:<15} {:>8} {:>8} {:>8} {:>8}  {}",
            queue,
            findings.kind.as_str(),
            findings.found,
            findings.repaired,
            findings.dead_lettered,
            findings.left,
            samples(findings),
        )?;
    }
    for (queue, result) in queues {
        match result {
            Ok(report) if report.0.is_empty() => writeln!(out, "{queue}: nothing is wrong")?,
            Ok(_) => {}
            Err(error) => writeln!(out, "{queue}: not audited: {}", printable(error))?,
        }
    }
    let mut said = Vec::new();
    for (_, findings) in &lines {
        for advice in advice(findings, repair) {
            if !said.contains(&advice) {
                writeln!(out, "{advice}")?;
                said.push(advice);
            }
        }
    }
    Ok(())
}

fn samples(findings: &Findings) -> String {
    let shown: Vec<_> = findings
        .samples
        .iter()
        .map(|sample| printable(&cut(sample, SAMPLE_SHOWN)).into_owned())
        .collect();
    let more = if findings.found > shown.len() as u64 {
        ", ..."
    } else {
        ""
    };
    format!("{}{more}", shown.join(", "))
}

/// What to do about findings that are left.
fn advice(findings: &Findings, repair: bool) -> Vec<&'static str> {
    let mut advice = Vec::new();
    if findings.left == 0 {
        return advice;
    }
    if findings.in_flight > 0 {
        advice.push(
            "a host has some of these in flight: run it again when they are settled or their leases \
             have ended",
        );
    }
    match findings.kind {
        FindingKind::Damaged => advice.push(
            "the file is damaged, so nothing else was looked at and nothing was changed: stop all \
             hosts, keep a copy of the file with its -wal, save what can be read with \
             `sqlite3 FILE .recover | sqlite3 NEW`, and audit that",
        ),
        FindingKind::WrongType => advice.push(
            "a key of a wrong type is none of dqhost's: find out who writes it, then rename or \
             delete it, and run this again",
        ),
        FindingKind::UnknownQueue => {
            advice.push("`dqhost audit --repair`, without --queue, puts these right");
        }
        _ if !repair && findings.left > findings.in_flight => {
            advice.push("`dqhost audit --repair` puts these right");
        }
        _ if findings.left > findings.in_flight => {
            advice.push(
                "some of these could not be repaired while others changed them, or since \
                         a key has a wrong type: run it again",
            );
        }
        _ => {}
    }
    advice
}
