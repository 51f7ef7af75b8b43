//! What the log says of a run.

use super::finished::Finished;
use crate::message::QueueName;
use crate::runtime::{Level, LogLine, RUN_LINES_MAX, Source};
use crate::store::{Settled, Settlement};
use crate::text::printable;

/// One line for each settled delivery, after the lines that its handler printed.
pub(super) fn log(
    queue: &QueueName,
    finished: &Finished,
    settlement: &Settlement,
    answer: Settled,
) {
    let id = printable(finished.claim.id.as_str());
    log_lines(queue, &id, finished);
    let Finished {
        attempt,
        attempts_max,
        report,
        ..
    } = finished;
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
pub(super) fn log_released(queue: &QueueName, finished: &Finished, answer: Settled) {
    let id = printable(finished.claim.id.as_str());
    log_lines(queue, &id, finished);
    let (attempt, outcome) = (finished.attempt, &finished.report.outcome);
    let (class, reason) = (outcome.class(), outcome.reason());
    if answer == Settled::Done {
        tracing::warn!(
            %queue, %id, attempt, class, %reason, "released: this attempt does not count");
    } else {
        tracing::warn!(%queue, %id, attempt, class, %reason, "refused: its lease had expired");
    }
}

fn log_lines(queue: &QueueName, id: &str, finished: &Finished) {
    let (attempt, report) = (finished.attempt, &finished.report);
    if report.log.is_empty() {
        return;
    }
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
