//! Spans, as a collector gets them.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;

use super::{Api, with_each_store};
use crate::support::{PATIENCE, Request, guest, read_request, run};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT: &str = "b7ad6b7169203331";

/// A server that answers each request with the number in its path, or 200, and tells of it.
fn server() -> (String, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let Some(request) = read_request(&stream) else {
                continue;
            };
            let status: u16 = request.path[1..].parse().unwrap_or(200);
            let answer =
                format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes());
            let _ = sender.send(request);
        }
    });
    (address, requests)
}

/// The next spans that a collector is sent, until it has so many.
fn spans(requests: &Receiver<Request>, count: usize) -> Vec<Span> {
    let mut all = Vec::new();
    while all.len() < count {
        let request = requests.recv_timeout(PATIENCE).unwrap();
        assert_eq!((&*request.method, &*request.path), ("POST", "/v1/traces"));
        assert_eq!(request.headers["content-type"], "application/x-protobuf");
        let batch = ExportTraceServiceRequest::decode(request.body.as_slice()).unwrap();
        for of in batch.resource_spans {
            let resource = of.resource.unwrap().attributes;
            assert_eq!(value(&resource, "service.name").as_deref(), Some("dqhost"));
            all.extend(of.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    assert_eq!(all.len(), count, "{all:?}");
    all
}

fn value(attributes: &[KeyValue], name: &str) -> Option<String> {
    let value = &attributes.iter().find(|one| one.key == name)?.value;
    match value.as_ref()? {
        AnyValue {
            value: Some(Value::StringValue(text)),
        } => Some(text.clone()),
        AnyValue {
            value: Some(Value::IntValue(number)),
        } => Some(number.to_string()),
        other => panic!("{name} is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[track_caller]
fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found
        .next()
        .unwrap_or_else(|| panic!("no {name}: {spans:?}"));
    assert!(found.next().is_none(), "{name} twice: {spans:?}");
    span
}

/// A host with the webhook handler, and what it is to be sent.
fn api(store: &str, collector: &str, target: &str, more: &[&str]) -> Api {
    let handler = guest("webhook").display().to_string();
    let args = [
        &["--handler", &handler, "--queue", "q", "--otlp", collector][..],
        &["--allow-http", target.strip_prefix("http://").unwrap()],
        more,
    ];
    Api::beside(store, &args.concat())
}

#[test]
fn one_trace_leads_from_a_send_to_the_request_of_its_handler() {
    with_each_store(|store| {
        let ((collector, batches), (target, requests)) = (server(), server());
        let api = api(store, &collector, &target, &[]);
        let (url, parent) = (format!("{target}/204"), format!("00-{TRACE}-{CLIENT}-01"));
        let headers = [
            ("traceparent", &*parent),
            ("tracestate", "a=1"),
            ("dqhost-header-url", &url),
        ];
        let id = api
            .post("/queues/q/messages", &headers, "hello")
            .is(201)
            .id();
        let all = spans(&batches, 3);
        assert!(
            all.iter().all(|span| hex(&span.trace_id) == TRACE),
            "{all:?}"
        );
        assert!(all.iter().all(|span| span.trace_state == "a=1"), "{all:?}");
        let (send, process, ack) = (
            named(&all, "send q"),
            named(&all, "process q"),
            named(&all, "ack q"),
        );
        let kind = |span: &Span| SpanKind::try_from(span.kind).unwrap();
        assert_eq!(
            (kind(send), kind(process), kind(ack)),
            (SpanKind::Producer, SpanKind::Consumer, SpanKind::Client)
        );
        // A part of what the client does; linked to the send; a part of the attempt.
        assert_eq!(hex(&send.parent_span_id), CLIENT);
        assert_eq!(process.parent_span_id, b"");
        assert_eq!(process.links[0].span_id, send.span_id);
        assert_eq!(ack.parent_span_id, process.span_id);
        let request = requests.recv_timeout(PATIENCE).unwrap();
        let expected = format!("00-{TRACE}-{}-01", hex(&process.span_id));
        assert_eq!(request.headers["traceparent"], expected);
        for (name, expected) in [
            ("messaging.system", "dqhost"),
            ("messaging.operation.type", "process"),
            ("messaging.destination.name", "q"),
            ("messaging.message.id", &id),
            ("messaging.message.body.size", "5"),
            ("dqhost.attempt", "1"),
        ] {
            assert_eq!(
                value(&process.attributes, name).as_deref(),
                Some(expected),
                "{name}"
            );
        }
        for span in &all {
            assert!(
                span.start_time_unix_nano <= span.end_time_unix_nano,
                "{span:?}"
            );
            assert_ne!(
                span.status.clone().unwrap_or_default().code(),
                StatusCode::Error
            );
        }
    });
}

#[test]
fn a_send_to_a_topic_is_in_the_trace_of_each_copy() {
    with_each_store(|store| {
        let ((collector, batches), (target, _requests)) = (server(), server());
        run(Some(store), &["topic", "subscribe", "orders", "q"], 0);
        let api = api(store, &collector, &target, &[]);
        let (url, parent) = (format!("{target}/204"), format!("00-{TRACE}-{CLIENT}-01"));
        let headers = [("traceparent", &*parent), ("dqhost-header-url", &url)];
        api.post("/topics/orders/messages", &headers, "hello")
            .is(201);
        let all = spans(&batches, 3);
        let (send, process) = (named(&all, "send orders"), named(&all, "process q"));
        assert_eq!(hex(&send.parent_span_id), CLIENT);
        assert_eq!(process.links[0].span_id, send.span_id);
        assert!(
            all.iter().all(|span| hex(&span.trace_id) == TRACE),
            "{all:?}"
        );
    });
}

#[test]
fn an_attempt_that_fails_says_why_and_a_trace_that_is_not_recorded_has_no_spans() {
    with_each_store(|store| {
        let ((collector, batches), (target, requests)) = (server(), server());
        let api = api(store, &collector, &target, &["--trace-ratio", "0"]);
        let post = |parent: &str, path: &str| {
            let url = format!("{target}/{path}");
            let headers = [("traceparent", parent), ("dqhost-header-url", &url)];
            let headers = if parent.is_empty() {
                &headers[1..]
            } else {
                &headers[..]
            };
            api.post("/queues/q/messages", headers, "hello").is(201);
            requests
                .recv_timeout(PATIENCE)
                .unwrap()
                .headers
                .remove("traceparent")
        };
        // Not recorded: by its sender, and by the ratio.
        let not_recorded = format!("00-{TRACE}-{CLIENT}-00");
        assert_eq!(post(&not_recorded, "200"), Some(not_recorded));
        assert!(post("", "200").unwrap().ends_with("-00"));
        post(&format!("00-{TRACE}-{CLIENT}-01"), "404");
        api.host.signal(rustix::process::Signal::TERM);
        let (status, _) = api.host.end();
        assert!(status.success());
        let all = spans(&batches, 3);
        let process = named(&all, "process q");
        let status = process.status.clone().unwrap();
        assert_eq!(status.code(), StatusCode::Error);
        assert!(status.message.contains("HTTP 404"), "{status:?}");
        assert_eq!(
            value(&process.attributes, "error.type").as_deref(),
            Some("rejected")
        );
        named(&all, "reject q");
        named(&all, "send q");
    });
}

#[test]
fn a_collector_that_is_away_costs_spans_only() {
    with_each_store(|store| {
        // Nobody listens there.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let away = format!("http://{}", free.local_addr().unwrap());
        drop(free);
        let (target, requests) = server();
        let mut api = api(store, &away, &target, &[]);
        let url = format!("{target}/200");
        let body = r#"[{"payload":"1"},{"payload":"2"}]"#;
        let headers = [
            ("content-type", "application/json"),
            ("dqhost-header-url", &*url),
        ];
        api.post("/queues/q/messages", &headers, body).is(201);
        let traces: Vec<String> = (0..2)
            .map(|_| {
                requests.recv_timeout(PATIENCE).unwrap().headers["traceparent"][..35].to_owned()
            })
            .collect();
        assert_eq!(traces[0], traces[1], "a batch is one send");
        api.host
            .wait_for_start("the collector takes no spans, and they are lost");
        api.host.signal(rustix::process::Signal::TERM);
        let (status, _) = api.host.end();
        assert!(status.success());
    });
}
