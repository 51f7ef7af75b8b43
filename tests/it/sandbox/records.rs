//! HTTP requests by records (`dqhost:queue/http`): the permissions and limits are those of wasi:http.

use std::time::Duration;

use dqhost::runtime::{Handler, Limits, Permissions, Report, Runtime};
use dqhost::store::address::Endpoints;
use dqhost::verdict::Outcome;

use super::http::{allowing, limits};
use super::web::Web;
use crate::guests::{call, load_in};
use crate::support::{eventually, guest, run, stdout};

/// The engine of its own, and the one for asynchronous components.
const ENGINES: [fn(Runtime) -> Runtime; 2] = [|runtime| runtime, Runtime::always_async];

/// Loads a handler in both engines.
fn in_both(name: &str, limits: Limits, permissions: &Permissions) -> Vec<(Runtime, Handler)> {
    ENGINES
        .map(|engine| load_in(engine, &guest(name), limits, permissions.clone()))
        .into()
}

async fn report(handler: &Handler, payload: &str) -> Report {
    handler.run(call(payload.as_bytes(), 1)).await
}

#[tokio::test]
async fn a_request_arrives_as_it_was_made_and_its_response_as_it_came() {
    let web = Web::start();
    let here = format!("127.0.0.1:{}", web.port);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (_runtime, handler) in in_both("fetch", limits(), &allowing(&[&here])) {
        let url = web.url("/429?a=b#c");
        let payload = format!("PUT {url}\nx-own: mine\nx-own: too\n\nthe order");
        let mut call = call(payload.as_bytes(), 1);
        let trace = ("traceparent".to_owned(), parent.to_owned());
        call.headers.push(trace);
        let report = handler.run(call).await;
        assert_eq!(report.outcome, Outcome::Acked);
        assert_eq!(
            report.log_text(),
            "429\ncontent-length: 9\nretry-after: 7\nslow down\n"
        );
        let request = web.requests().pop().unwrap();
        assert_eq!(request.method, "PUT");
        assert_eq!(request.path, "/429?a=b");
        assert_eq!(request.body, b"the order");
        assert_eq!(request.headers["host"], here);
        assert!(request.headers.contains_key("x-own"));
        assert_eq!(request.headers["traceparent"], parent);
    }
}

/// In both engines, and before anything was connected to.
async fn is_rejected(permissions: &Permissions, payload: &str, refused: usize, says: &str) {
    for (_runtime, handler) in in_both("fetch", limits(), permissions) {
        let report = report(&handler, payload).await;
        let reason = report.outcome.reason();
        assert_eq!(report.outcome.class(), "rejected", "{payload}: {reason}");
        assert!(reason.contains(says), "{payload}: {reason}");
        assert_eq!(report.refused, refused, "{payload}");
    }
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_before_a_packet_leaves() {
    let web = Web::start();
    let port = web.port;
    let never = Endpoints::default();
    never.add("127.0.0.1", port);
    let not_the_store = Permissions {
        never,
        ..allowing(&[&format!("127.0.0.1:{port}")])
    };
    let any = allowing(&[&format!("*:{port}")]);
    for (permissions, host) in [
        (&allowing(&[]), "127.0.0.1"),
        (&any, "127.0.0.1"),
        (&any, "localhost"),
        (&not_the_store, "127.0.0.1"),
    ] {
        let payload = format!("GET http://{host}:{port}/200");
        is_rejected(permissions, &payload, 1, "dqhost does not allow").await;
    }
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn a_request_that_is_not_valid_is_not_made() {
    let web = Web::start();
    let here = format!("127.0.0.1:{}", web.port);
    let allowed = allowing(&[&here]);
    let url = web.url("/200");
    for (payload, says) in [
        ("GET file:///etc/passwd".to_owned(), "the URL is not one"),
        (format!("GET ftp://{here}/"), "the URL is not one"),
        ("GET /path".to_owned(), "the URL is not one"),
        (format!("GET http://a@{here}/"), "without a user"),
        (format!("GET {url}?{}", "x".repeat(20_000)), "a URL 16384"),
        (format!("G\u{e9}T {url}"), "is not a method"),
        (
            format!("GET {url}\nx-a: {}", "x".repeat(40_000)),
            "more than 32768 bytes",
        ),
        (format!("GET {url}\nhost: other"), "the header host is"),
        (format!("GET {url}\nUpgrade: x"), "the header upgrade is"),
        (format!("GET {url}\ncontent-length: 1"), "content-length"),
        (format!("GET {url}\na b: c"), "the name of a header"),
        (format!("GET {url}\na: \u{7}"), "the value of the header a"),
    ] {
        is_rejected(&allowed, &payload, 0, says).await;
    }
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn a_long_response_and_a_slow_server_cost_an_error_and_no_connection() {
    let web = Web::start();
    let here = format!("127.0.0.1:{}", web.port);
    let quick = Limits {
        http_total: Duration::from_millis(300),
        ..limits()
    };
    for (_runtime, handler) in in_both("fetch", quick, &allowing(&[&here])) {
        let long = report(&handler, &format!("GET {}", web.url("/long"))).await;
        assert_eq!(
            long.outcome.reason(),
            "the response has more than 524288 bytes (--limit call-bytes)"
        );
        for (path, says) in [
            ("/keep", "timeout"),
            ("/drip", "timeout"),
            ("/103", "protocol"),
            ("/nonsense", "protocol"),
        ] {
            let slow = report(&handler, &format!("GET {}", web.url(path))).await;
            let reason = slow.outcome.reason();
            assert_eq!(slow.outcome.class(), "nacked", "{path}");
            assert!(reason.contains(says), "{path}: {reason}");
        }
        eventually("no connection is left", || (web.kept() == 0).then_some(()));
    }
    // The handler is told before its own time is over.
    let short = Limits {
        time: Duration::from_secs(4),
        time_max: Duration::from_secs(4),
        ..limits()
    };
    for (_runtime, handler) in in_both("fetch", short, &allowing(&[&here])) {
        let asked = ["/keep", "/drip"].map(|path| format!("GET {}", web.url(path)));
        let [keep, drip] = &asked;
        let (keep, drip) = tokio::join!(report(&handler, keep), report(&handler, drip));
        for slow in [keep, drip] {
            assert_eq!(slow.outcome.class(), "nacked", "{:?}", slow.outcome);
        }
    }
}

#[tokio::test]
async fn one_that_wants_more_than_is_allowed_is_held_to_its_limits() {
    let web = Web::start();
    let here = format!("127.0.0.1:{}", web.port);
    let few = Limits {
        http_requests: 5,
        ..limits()
    };
    for (_runtime, handler) in in_both("fetch-hog", few, &allowing(&[&here])) {
        let before = web.connections();
        let asked = report(&handler, &web.url("/200")).await;
        let reason = "5 answered; too many HTTP requests (--limit http-requests)";
        assert_eq!(asked.outcome.reason(), reason);
        assert_eq!((asked.refused, web.connections()), (295, before + 5));
        let body = report(&handler, "body").await;
        assert_eq!(body.outcome.class(), "over-limit", "{:?}", body.outcome);
        // Either what one call may hand over, or what headers may take.
        let headers = report(&handler, "headers").await;
        assert_eq!(
            headers.outcome.class(),
            "over-limit",
            "{:?}",
            headers.outcome
        );
    }
}

#[test]
fn check_says_that_records_need_the_permission_for_http() {
    let file = guest("fetch");
    let check = |more: &[&str]| {
        stdout(&run(
            None,
            &[&["check", file.to_str().unwrap()], more].concat(),
            0,
        ))
    };
    let import = "dqhost:queue/http@0.1.0: ";
    assert!(check(&[]).contains(&format!("{import}refused without --allow-http HOST")));
    assert!(check(&["--allow-http", "example.com"]).contains(&format!("{import}allowed")));
}
