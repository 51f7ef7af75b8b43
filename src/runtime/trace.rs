//! The trace that a message belongs to (W3C Trace Context and Baggage), carried on for handlers that know
//! nothing of it: into their HTTP requests and into what they send.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::message::{HEADERS_MAX, Headers, headers_size};
use crate::spans::{PARENT, STATE, TraceParent};

/// Goes to messages only: it may hold what no other server should see.
const BAGGAGE: &str = "baggage";

/// Bytes of one of these headers that are carried on. Trace Context asks for at least 512, and Baggage for
/// at least 8,192 of all together; a longer one is left out.
const BYTES_MAX: usize = 1024;

/// The headers of a message that tell its trace; none without a valid `traceparent`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trace(Vec<(&'static str, String)>);

impl Trace {
    pub(super) fn of(headers: &Headers) -> Self {
        let find = |wanted: &'static str| {
            let mut found = headers.iter();
            let (_, value) = found.find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
            let is_fit = value.len() <= BYTES_MAX && HeaderValue::from_str(value).is_ok();
            is_fit.then(|| (wanted, value.clone()))
        };
        match find(PARENT) {
            Some(parent) if parent.1.parse::<TraceParent>().is_ok() => {
                let others = [STATE, BAGGAGE].into_iter().filter_map(find);
                Self(std::iter::once(parent).chain(others).collect())
            }
            _ => Self::default(),
        }
    }

    /// Into a request, unless the handler has put a trace there.
    pub(super) fn enter_request(&self, headers: &mut HeaderMap) {
        if headers.contains_key(PARENT) {
            return;
        }
        for (name, value) in self.0.iter().filter(|(name, _)| *name != BAGGAGE) {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers
                    .entry(HeaderName::from_static(name))
                    .or_insert(value);
            }
        }
    }

    /// Into what the handler sends, unless it has put a trace there, or its headers would be too long.
    pub(super) fn enter_message(&self, headers: &mut Headers) {
        let has = |wanted: &str| {
            let mut names = headers.iter().map(|(name, _)| name);
            names.any(|name| name.eq_ignore_ascii_case(wanted))
        };
        if has(PARENT) {
            return;
        }
        let ours = self.0.iter().filter(|(name, _)| !has(name));
        let ours: Headers = ours
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        if headers_size(headers) + headers_size(&ours) <= HEADERS_MAX {
            headers.extend(ours);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn only_a_valid_parent_is_carried_on() {
        for valid in [
            VALID,
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-holds",
        ] {
            assert!(valid.parse::<TraceParent>().is_ok(), "{valid}");
        }
        for wrong in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        ] {
            assert!(wrong.parse::<TraceParent>().is_err(), "{wrong}");
            let trace = Trace::of(&headers(&[("traceparent", wrong), ("tracestate", "a=1")]));
            assert_eq!(trace, Trace::default());
        }
    }

    #[test]
    fn a_trace_enters_what_has_none_of_its_own() {
        let trace = Trace::of(&headers(&[
            ("Traceparent", VALID),
            ("tracestate", "a=1"),
            ("baggage", "user=1"),
            ("other", "x"),
        ]));
        let mut request = HeaderMap::new();
        trace.enter_request(&mut request);
        assert_eq!(request[PARENT], VALID);
        assert_eq!(request[STATE], "a=1");
        assert_eq!(request.len(), 2);
        let mut message = headers(&[("k", "v")]);
        trace.enter_message(&mut message);
        let names: Vec<&str> = message.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["k", PARENT, STATE, BAGGAGE]);
        let own = headers(&[("TraceParent", "its own")]);
        let mut message = own.clone();
        trace.enter_message(&mut message);
        assert_eq!(message, own);
        let mut request = HeaderMap::new();
        request.insert(PARENT, HeaderValue::from_static("its own"));
        trace.enter_request(&mut request);
        assert_eq!(request[PARENT], "its own");
        assert_eq!(request.len(), 1);
    }

    #[test]
    fn what_a_handler_has_set_stays_and_comes_once() {
        let trace = Trace::of(&headers(&[("traceparent", VALID), ("tracestate", "a=1")]));
        let mut request = HeaderMap::new();
        request.insert(STATE, HeaderValue::from_static("b=2"));
        trace.enter_request(&mut request);
        assert_eq!(request[STATE], "b=2");
        assert_eq!(request.len(), 2);
        let mut message = headers(&[("Tracestate", "b=2")]);
        trace.enter_message(&mut message);
        let expected = headers(&[("Tracestate", "b=2"), ("traceparent", VALID)]);
        assert_eq!(message, expected);
    }

    #[test]
    fn what_is_too_long_or_no_header_is_left_out() {
        let long = "x".repeat(BYTES_MAX + 1);
        let trace = Trace::of(&headers(&[
            ("traceparent", VALID),
            ("tracestate", "a\r\nhost: b"),
            ("baggage", &long),
        ]));
        let mut message = Headers::new();
        trace.enter_message(&mut message);
        assert_eq!(message, headers(&[("traceparent", VALID)]));
        let full = headers(&[("k", &"v".repeat(HEADERS_MAX - 20))]);
        let mut message = full.clone();
        trace.enter_message(&mut message);
        assert_eq!(message, full);
    }
}
