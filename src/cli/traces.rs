//! `--otlp`: where spans go.

use std::time::Duration;

use clap::Args;
#[cfg(feature = "otlp")]
use http::Uri;

use super::Usage;
use crate::spans::Spans;
#[cfg(feature = "otlp")]
use crate::spans::otlp::Collector;

/// How long the last spans may take to arrive when the program stops.
const LAST_LIMIT: Duration = Duration::from_secs(2);

/// Where spans go, and how many.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Traces")]
pub(super) struct TraceArgs {
    /// Send spans to this collector of OpenTelemetry
    ///
    /// It speaks OTLP over HTTP at an address such as http://127.0.0.1:4318, or https://. Spans of sends over HTTP, of attempts and of
    /// settlements go to /v1/traces below it. OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and
    /// OTEL_EXPORTER_OTLP_HEADERS are heeded.
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", env = "DQHOST_OTLP", value_parser = address)]
    otlp: Option<Uri>,
    /// Begin traces for this part of the messages without one
    ///
    /// From 0 to 1. A message of a trace is recorded if its sender records the trace.
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, env = "DQHOST_TRACE_RATIO", value_parser = ratio)]
    trace_ratio: f64,
}

#[cfg(feature = "otlp")]
fn address(text: &str) -> Result<Uri, String> {
    let wanted = "use http://HOST:PORT or https://HOST:PORT";
    let address: Uri = text.parse().map_err(|_| wanted.to_owned())?;
    let is_http = matches!(address.scheme_str(), Some("http" | "https"));
    let is_plain = address
        .authority()
        .is_some_and(|a| !a.as_str().contains('@'));
    if is_http && is_plain && address.query().is_none() {
        Ok(address)
    } else {
        Err(wanted.to_owned())
    }
}

#[cfg(feature = "otlp")]
fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text
        .parse()
        .ok()
        .filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "use a number from 0 to 1".to_owned())
}

impl TraceArgs {
    /// Where the spans of this process go, which has this name.
    #[cfg(feature = "otlp")]
    pub(super) fn spans(&self, instance: &str) -> Result<Spans, Usage> {
        let Some(address) = &self.otlp else {
            return Ok(Spans::default());
        };
        let collector = Collector::at(address, instance)
            .map_err(|error| Usage(format!("--otlp {address}: {error}")))?;
        Ok(Spans::to(collector, self.trace_ratio))
    }

    /// Nowhere: this program is built without `otlp`.
    #[cfg(not(feature = "otlp"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with it")]
    pub(super) fn spans(&self, _instance: &str) -> Result<Spans, Usage> {
        Ok(Spans::default())
    }
}

/// Sends the last spans, without keeping the runtime waiting.
pub(super) async fn close(spans: Spans) {
    let _ = tokio::task::spawn_blocking(move || spans.close(LAST_LIMIT)).await;
}
