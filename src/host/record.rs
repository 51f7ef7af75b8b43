//! What is said of a run: in the log, and in the message's history.

use std::time::{Duration, SystemTime};

use super::in_flight::InFlightId;
use crate::message::{Attempt, MessageId, QueueName};
use crate::runtime::{Level, LogLine, RUN_LINES_MAX, Report, Source};
use crate::store::{Settled, Settlement};
use crate::text::{cut_for_json, printable};

/// Bytes that are kept of a failed attempt's reason and of what the guest printed, as JSON.
const KEPT_REASON_MAX: usize = 512;
const KEPT_LOG_MAX: usize = 1024;

/// The run that ended.
#[derive(Debug)]
pub(super) struct Run {
    pub in_flight_id: InFlightId,
    pub attempt: u32,
    pub attempts_max: u32,
    pub report: Report,
}

/// What is kept of a failed attempt.
pub(super) fn attempt(number: u32, report: &Report, host: &str, handler: &str) -> Attempt {
    let at = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Attempt {
        attempt: number,
        at_ms: millis(at),
        class: report.outcome.class().to_owned(),
        reason: cut_for_json(&report.outcome.reason(), KEPT_REASON_MAX).into_owned(),
        duration_ms: Some(millis(report.duration)),
        host: host.to_owned(),
        handler: handler.to_owned(),
        log: cut_for_json(&report.log_text(), KEPT_LOG_MAX).into_owned(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// One line for each settled delivery, after the lines that its handler printed.
pub(super) fn log(
    queue: &QueueName,
    id: &MessageId,
    run: &Run,
    settlement: &Settlement,
    answer: Settled,
) {
    let id = printable(id.as_str());
    log_lines(queue, &id, run);
    let Run {
        attempt,
        attempts_max,
        report,
        ..
    } = run;
    // In seconds, like every length of time in the log.
    let (class, took) = (report.outcome.class(), report.duration.as_secs_f64());
    let reason = report.outcome.reason();
    let reason = printable(&reason);
    match (answer, settlement) {
        (Settled::LeaseLost | Settled::Refused, _) => tracing::warn!(
            %queue, %id, attempt, class, "refused: its lease had expired, or an earlier try had settled it"),
        (Settled::Done, Settlement::Ack { .. }) => {
            tracing::info!(%queue, %id, attempt, took, "acked");
        }
        (Settled::Done, Settlement::Nack { delay, .. }) if attempt < attempts_max => {
            let delay = delay.unwrap_or_default().as_secs_f64();
            tracing::info!(
                %queue, %id, attempt, attempts_max, class, %reason, took, delay, "to be retried");
        }
        (Settled::Done, Settlement::Nack { .. } | Settlement::Reject { .. }) => tracing::warn!(
            %queue, %id, attempt, attempts_max, class, %reason, took, "dead"),
    }
}

/// One line for a delivery that was released, after the lines that its handler printed.
pub(super) fn log_released(queue: &QueueName, id: &MessageId, run: &Run, answer: Settled) {
    let id = printable(id.as_str());
    log_lines(queue, &id, run);
    let (attempt, class) = (run.attempt, run.report.outcome.class());
    let reason = run.report.outcome.reason();
    if answer == Settled::Done {
        tracing::warn!(
            %queue, %id, attempt, class, %reason, "released: this attempt does not count");
    } else {
        tracing::warn!(%queue, %id, attempt, class, %reason, "refused: its lease had expired");
    }
}

fn log_lines(queue: &QueueName, id: &str, run: &Run) {
    let (attempt, report) = (run.attempt, &run.report);
    report.lines.scope(|| {
        for line in report.log.iter().take(RUN_LINES_MAX) {
            log_line(queue, id, attempt, line);
        }
    });
    let more = report.log.len().saturating_sub(RUN_LINES_MAX);
    report.lines.leave_out(more);
}

/// One line of what a guest printed or logged, or of what was refused to it.
fn log_line(queue: &QueueName, id: &str, attempt: u32, line: &LogLine) {
    /// The level of an event has to be a constant.
    macro_rules! say {
        ($level:ident, $($field:tt)*) => {
            tracing::$level!(target: "guest", %queue, id, attempt, $($field)*)
        };
    }
    let text = printable(&line.text);
    match &line.source {
        Source::Stdout => say!(info, stream = "stdout", "{text}"),
        Source::Stderr => say!(info, stream = "stderr", "{text}"),
        Source::Host => say!(warn, source = "host", "{text}"),
        Source::Log { level, context } => {
            let context = printable(context);
            match level {
                Level::Trace => say!(trace, %context, "{text}"),
                Level::Debug => say!(debug, %context, "{text}"),
                Level::Info => say!(info, %context, "{text}"),
                Level::Warn => say!(warn, %context, "{text}"),
                Level::Error => say!(error, %context, "{text}"),
                Level::Critical => say!(error, %context, critical = true, "{text}"),
            }
        }
    }
}
