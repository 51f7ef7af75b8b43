//! Spans: what was done with a message, for a collector of OpenTelemetry.
//!
//! A message carries the trace of its producer in its headers (W3C Trace Context). Spans of one message are in
//! that trace. An attempt is linked to the send and is not its child, since between them lies the delay.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::message::{HEADERS_MAX, Headers, headers_size};

#[cfg(feature = "otlp")]
pub mod otlp;

/// The header that names a trace.
pub const PARENT: &str = "traceparent";
/// The header that goes with it, for what vendors add.
pub const STATE: &str = "tracestate";

/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// What a `traceparent` says (Trace Context, 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not zero.
    pub trace: u128,
    /// The span in it; not zero.
    pub span: u64,
    /// Bit 0: the trace is recorded.
    pub flags: u8,
}

impl TraceParent {
    /// A trace that begins here. The part of all numbers that are recorded is told by their lower half.
    fn begin(trace: u128, ratio: f64) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "the lower half, as a part of all"
        )]
        let is_sampled = (trace as u64 as f64) < ratio * u64::MAX as f64;
        Self {
            trace: trace.max(1),
            span: fastrand::u64(1..),
            flags: if is_sampled { SAMPLED } else { 0 },
        }
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn next(self) -> Self {
        Self {
            span: fastrand::u64(1..),
            ..self
        }
    }

    fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }
}

/// It is not a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoTraceParent;

/// Of version 00, or of a later one that begins like it (Trace Context, 3.2 and 4.3).
impl FromStr for TraceParent {
    type Err = NoTraceParent;

    fn from_str(value: &str) -> Result<Self, NoTraceParent> {
        let mut parts = value.splitn(5, '-');
        let mut part = |length: usize| {
            let part = parts.next().filter(|part| part.len() == length);
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            part.filter(|part| part.bytes().all(is_hex))
                .ok_or(NoTraceParent)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let is_whole = parts.next().is_none();
        let is_known = version != "ff" && (version != "00" || is_whole);
        let parent = Self {
            trace: u128::from_str_radix(trace, 16).map_err(|_| NoTraceParent)?,
            span: u64::from_str_radix(span, 16).map_err(|_| NoTraceParent)?,
            flags: u8::from_str_radix(flags, 16).map_err(|_| NoTraceParent)?,
        };
        if is_known && parent.trace != 0 && parent.span != 0 {
            Ok(parent)
        } else {
            Err(NoTraceParent)
        }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, flags } = self;
        write!(f, "00-{trace:032x}-{span:016x}-{flags:02x}")
    }
}

/// What a span was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Messages were sent.
    Producer,
    /// A message was handled.
    Consumer,
    /// The store was told something.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// What was done, from when to when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What it is called: what was done, and the queue.
    pub name: String,
    /// What it was.
    pub kind: Kind,
    /// Its trace, and its own number in it.
    pub own: TraceParent,
    /// The span that it is a part of.
    pub parent: Option<u64>,
    /// The span that led to it.
    pub link: Option<TraceParent>,
    /// What vendors have added to the trace.
    pub state: Option<String>,
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// What is known of it, by the names of the conventions for messaging.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed: a short class, and words.
    pub error: Option<(String, String)>,
}

/// Who takes spans that have ended. Taking one never waits.
pub trait Export: Send + Sync {
    /// Takes a span, or drops it if there are too many.
    fn take(&self, span: Span);
    /// Sends what is there, for at most this long.
    fn end(&self, limit: Duration);
}

/// Where spans go; by default nowhere, which costs nothing.
#[derive(Clone, Default)]
pub struct Spans(Option<Arc<Exported>>);

struct Exported {
    to: Box<dyn Export>,
    /// The part of the messages without a trace that begin one.
    ratio: f64,
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_on = self.0.is_some();
        f.debug_tuple("Spans").field(&is_on).finish()
    }
}

impl Spans {
    /// Spans of recorded traces go there, and this part of the messages without a trace begin one.
    #[must_use]
    pub fn to(to: impl Export + 'static, ratio: f64) -> Self {
        let to = Box::new(to);
        Self(Some(Arc::new(Exported { to, ratio })))
    }

    /// True if anything may be recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The start of something with these headers; none if nobody records it. A trace that begins here may be
    /// one that is not recorded: then its spans go nowhere, and whoever comes later knows.
    #[must_use]
    ///
    /// What begins a trace gives it this number.
    pub fn start(&self, headers: &Headers, trace: u128) -> Option<Started> {
        let exported = self.0.as_ref()?;
        let from = parent_of(headers);
        let own = match from {
            Some(from) if !from.is_sampled() => return None,
            Some(from) => from.next(),
            None => TraceParent::begin(trace, exported.ratio),
        };
        let state = from.and_then(|_| value_of(headers, STATE));
        Some(Started {
            spans: self.clone(),
            own,
            from,
            state: state.map(str::to_owned),
            began: SystemTime::now(),
        })
    }

    /// Takes a span that has ended.
    pub fn end(&self, span: Span) {
        if let Some(exported) = &self.0 {
            exported.to.take(span);
        }
    }

    /// Sends what is there, for at most this long. It blocks.
    pub fn close(&self, limit: Duration) {
        if let Some(exported) = &self.0 {
            exported.to.end(limit);
        }
    }
}

/// Something that has begun and is recorded.
#[derive(Debug, Clone)]
pub struct Started {
    spans: Spans,
    /// Its trace, and its own number in it.
    pub own: TraceParent,
    /// What led to it.
    pub from: Option<TraceParent>,
    state: Option<String>,
    began: SystemTime,
}

impl Started {
    /// A part of it, from now on.
    #[must_use]
    pub fn part(&self) -> Self {
        Self {
            spans: self.spans.clone(),
            own: self.own.next(),
            from: Some(self.own),
            state: self.state.clone(),
            began: SystemTime::now(),
        }
    }

    /// Puts itself into the headers, in place of what led to it. Headers that would be too long stay as
    /// they are.
    pub fn enter(&self, headers: &mut Headers) {
        let own = self.own.to_string();
        let is_parent = |(name, _): &&mut (String, String)| name.eq_ignore_ascii_case(PARENT);
        let before = headers.clone();
        match headers.iter_mut().find(is_parent) {
            Some((_, value)) => *value = own,
            None => headers.push((PARENT.to_owned(), own)),
        }
        if headers_size(headers) > HEADERS_MAX {
            *headers = before;
        }
    }

    /// It ended just now: a part of what led to it.
    pub fn end(self, ended: Ended) {
        self.finish(ended, true);
    }

    /// It ended just now: linked to what led to it.
    pub fn end_linked(self, ended: Ended) {
        self.finish(ended, false);
    }

    fn finish(self, ended: Ended, is_part: bool) {
        if !self.own.is_sampled() {
            return;
        }
        let Ended {
            name,
            kind,
            attributes,
            error,
        } = ended;
        let (parent, link) = match self.from {
            Some(from) if is_part => (Some(from.span), None),
            from => (None, from),
        };
        self.spans.end(Span {
            name,
            kind,
            own: self.own,
            parent,
            link,
            state: self.state,
            began: self.began,
            ended: SystemTime::now(),
            attributes,
            error,
        });
    }
}

/// What is known of something when it has ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// What was done, and the queue.
    pub name: String,
    /// What it was.
    pub kind: Kind,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed: a short class, and words.
    pub error: Option<(String, String)>,
}

impl Ended {
    /// Of an operation on a queue, by the conventions for messaging.
    #[must_use]
    pub fn operation(kind: Kind, operation: &'static str, queue: &str) -> Self {
        let of_kind = match kind {
            Kind::Producer => "send",
            Kind::Consumer => "process",
            Kind::Client => "settle",
        };
        Self {
            name: format!("{operation} {queue}"),
            kind,
            attributes: vec![
                ("messaging.system", "dqhost".into()),
                ("messaging.operation.name", operation.into()),
                ("messaging.operation.type", of_kind.into()),
                ("messaging.destination.name", queue.into()),
            ],
            error: None,
        }
    }

    /// With one more thing that is known.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// It failed if there is an error.
    #[must_use]
    pub fn failed(mut self, error: Option<(String, String)>) -> Self {
        self.error = error;
        self
    }
}

/// The trace that these headers name.
#[must_use]
pub fn parent_of(headers: &Headers) -> Option<TraceParent> {
    value_of(headers, PARENT)?.parse().ok()
}

fn value_of<'h>(headers: &'h Headers, wanted: &str) -> Option<&'h str> {
    let mut headers = headers.iter();
    let (_, value) = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const SENDER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Span>>>);

    impl Export for Kept {
        fn take(&self, span: Span) {
            self.0.lock().unwrap().push(span);
        }

        fn end(&self, _limit: Duration) {}
    }

    fn of(parent: &str) -> Headers {
        vec![("TraceParent".to_owned(), parent.to_owned())]
    }

    #[test]
    fn a_name_of_a_trace_is_written_as_it_was_read() {
        assert_eq!(SENDER.parse::<TraceParent>().unwrap().to_string(), SENDER);
        // Version 00 knows one flag; those of later versions are passed on.
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-more";
        let ours = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03";
        assert_eq!(later.parse::<TraceParent>().unwrap().to_string(), ours);
    }

    #[test]
    fn an_attempt_is_linked_to_its_send_and_its_settlement_is_a_part_of_it() {
        let (kept, sender) = (Kept::default(), SENDER.parse::<TraceParent>().unwrap());
        let spans = Spans::to(kept.clone(), 0.0);
        let mut headers = of(SENDER);
        let attempt = spans.start(&headers, 7).unwrap();
        attempt.enter(&mut headers);
        assert_eq!(headers, of(&attempt.own.to_string()));
        let settlement = attempt.part();
        let process = Ended::operation(Kind::Consumer, "process", "q");
        attempt.end_linked(process.failed(Some(("nacked".into(), "why".into()))));
        settlement.end(Ended::operation(Kind::Client, "nack", "q"));
        let kept = kept.0.lock().unwrap();
        let [process, nack] = kept.as_slice() else {
            panic!("{kept:?}")
        };
        assert_eq!((process.parent, process.link), (None, Some(sender)));
        assert_eq!((nack.parent, nack.link), (Some(process.own.span), None));
        assert!(kept.iter().all(|span| span.own.trace == sender.trace));
        assert_eq!(process.error, Some(("nacked".into(), "why".into())));
        assert_eq!(nack.name, "nack q");
    }

    #[test]
    fn what_its_sender_does_not_record_is_not_recorded_here() {
        let kept = Kept::default();
        let spans = Spans::to(kept.clone(), 1.0);
        assert!(spans.start(&of(&SENDER.replace("-01", "-00")), 7).is_none());
        assert!(spans.start(&Headers::new(), 7).is_some());
        // Whoever comes later knows that it is not to be recorded.
        let spans = Spans::to(kept.clone(), 0.0);
        let (started, mut headers) = (spans.start(&Headers::new(), 7).unwrap(), Headers::new());
        started.enter(&mut headers);
        started.end(Ended::operation(Kind::Producer, "send", "q"));
        assert!(kept.0.lock().unwrap().is_empty());
        assert!(spans.start(&headers, 7).is_none());
        assert!(Spans::default().start(&of(SENDER), 7).is_none());
    }

    #[test]
    fn the_number_of_a_trace_says_whether_it_is_recorded() {
        let part = |ratio: f64| {
            let of = |n: u64| TraceParent::begin(u128::from(n << 54), ratio);
            (0..1024).filter(|n| of(*n).is_sampled()).count()
        };
        assert_eq!((part(0.0), part(0.25), part(1.0)), (0, 256, 1024));
    }

    #[test]
    fn headers_do_not_grow_beyond_their_limit() {
        let spans = Spans::to(Kept::default(), 1.0);
        let short = ("TraceParent".to_owned(), "none".to_owned());
        let filled = |more: Headers| {
            let left = HEADERS_MAX - headers_size(&more) - 7;
            [vec![("x".to_owned(), "y".repeat(left))], more].concat()
        };
        for long in [filled(vec![]), filled(vec![short])] {
            assert_eq!(headers_size(&long), HEADERS_MAX);
            let mut headers = long.clone();
            spans
                .start(&headers, fastrand::u128(1..))
                .unwrap()
                .enter(&mut headers);
            assert_eq!(headers, long);
        }
    }
}
