//! HTTP requests of handlers: what comes of them, and what is refused before a packet leaves.

use std::time::{Duration, Instant};

use dqhost::runtime::{Call, Limits, Permissions, Report};
use dqhost::store::address::Endpoints;
use dqhost::verdict::Outcome;

use super::web::Web;
use crate::guests::{call, load_with};
use crate::support::{Host, dqhost, eventually, expect, guest, read_request, run, stdout};

pub(super) fn allowing(rules: &[&str]) -> Permissions {
    Permissions {
        http: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        ..Permissions::default()
    }
}

pub(super) fn limits() -> Limits {
    Limits {
        time: Duration::from_mins(1),
        time_max: Duration::from_mins(1),
        ..Limits::default()
    }
}

fn to(url: &str, payload: &[u8]) -> Call {
    Call {
        headers: vec![
            ("url".to_owned(), url.to_owned()),
            ("content-type".to_owned(), "application/json".to_owned()),
            ("http-x-own".to_owned(), "mine".to_owned()),
            ("http-connection".to_owned(), "upgrade".to_owned()),
        ],
        ..call(payload, 3)
    }
}

async fn post(url: &str, permissions: Permissions, limits: Limits) -> Report {
    let (_runtime, handler) = load_with(&guest("webhook"), limits, permissions);
    handler.run(to(url, b"{}")).await
}

#[tokio::test]
async fn the_answer_decides_what_becomes_of_the_message() {
    let web = Web::start();
    let here = format!("127.0.0.1:{}", web.port);
    let reason_of = |outcome: &Outcome| (outcome.class(), outcome.reason());
    for (path, class, reason) in [
        ("/200", "acked", ""),
        ("/204", "acked", ""),
        ("/404", "rejected", "HTTP 404: the body"),
        ("/429", "nacked", "HTTP 429: slow down"),
        ("/500", "nacked", "HTTP 500: the body"),
        ("/503", "nacked", "HTTP 503: the body"),
        (
            "/302",
            "rejected",
            "HTTP 302: it redirects to http://127.0.0.1:1/, which is not followed",
        ),
        ("/nonsense", "nacked", "HttpProtocolError"),
    ] {
        let report = post(&web.url(path), allowing(&[&here]), limits()).await;
        assert_eq!(
            reason_of(&report.outcome),
            (class, reason.to_owned()),
            "{path}"
        );
        let delay = match report.outcome {
            Outcome::Nacked { delay, .. } => delay,
            _ => None,
        };
        let expected = (path == "/429").then_some(Duration::from_secs(7));
        assert_eq!(delay, expected, "{path}");
    }
    // Nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = free.local_addr().unwrap();
    drop(free);
    let report = post(
        &format!("http://{closed}/"),
        allowing(&[&closed.to_string()]),
        limits(),
    )
    .await;
    assert_eq!(
        reason_of(&report.outcome),
        ("nacked", "ConnectionRefused".to_owned())
    );
}

#[tokio::test]
async fn a_request_belongs_to_the_trace_of_its_message() {
    let web = Web::start();
    let permissions = allowing(&[&format!("127.0.0.1:{}", web.port)]);
    let (_runtime, handler) = load_with(&guest("webhook"), limits(), permissions);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for traceparent in [parent, "00-broken"] {
        let mut call = to(&web.url("/200"), b"x");
        let trace = [("traceparent", traceparent), ("baggage", "user=1")];
        let trace = trace.map(|(name, value)| (name.to_owned(), value.to_owned()));
        call.headers.extend(trace);
        let report = handler.run(call).await;
        assert_eq!(report.outcome, Outcome::Acked, "{:?}", report.log);
    }
    let requests = web.requests();
    assert_eq!(requests[0].headers["traceparent"], parent);
    assert!(!requests[0].headers.contains_key("baggage"));
    assert!(!requests[1].headers.contains_key("traceparent"));
}

#[tokio::test]
async fn a_request_carries_the_payload_whole_and_says_what_it_is() {
    let web = Web::start();
    let payload: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let permissions = Permissions {
        env: vec![("WEBHOOK_URL".into(), web.url("/200?from=env"))],
        secrets: vec![("WEBHOOK_AUTHORIZATION".into(), "Bearer hunter2".into())],
        ..allowing(&[&format!("127.0.0.1:{}", web.port)])
    };
    let (_runtime, handler) = load_with(&guest("webhook"), limits(), permissions);
    let report = handler.run(to(&web.url("/200"), &payload)).await;
    assert_eq!(report.outcome, Outcome::Acked, "{:?}", report.log);
    let by_env = Call {
        headers: Vec::new(),
        ..call(b"x", 1)
    };
    let answer = handler.run(by_env).await;
    assert_eq!(answer.outcome, Outcome::Acked, "{:?}", answer.log);
    let requests = web.requests();
    let (first, second) = (&requests[0], &requests[1]);
    assert_eq!((first.method.as_str(), &first.body), ("POST", &payload));
    let header = |name: &str| first.headers.get(name).map(String::as_str);
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("idempotency-key"), Some("id"));
    assert_eq!(header("x-attempt"), Some("3"));
    assert_eq!(header("x-own"), Some("mine"));
    assert_eq!(header("connection"), None);
    let host = format!("127.0.0.1:{}", web.port);
    assert_eq!(header("host"), Some(host.as_str()));
    // The secret goes only to the URL of the environment, which the log shows without its query.
    assert_eq!(header("authorization"), None);
    assert_eq!(second.headers["authorization"], "Bearer hunter2");
    assert_eq!(second.path, "/200?from=env");
    assert!(!answer.log_text().contains("from=env"), "{:?}", answer.log);
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_before_a_packet_leaves() {
    let web = Web::start();
    let port = web.port;
    let any = format!("*:{port}");
    let below = format!("*.localhost:{port}");
    for (host, rules) in [
        // Not named at all.
        ("127.0.0.1", vec![]),
        ("localhost", vec!["127.0.0.1:1"]),
        ("127.0.0.1", vec!["https://127.0.0.1", "10.0.0.0/8"]),
        // Named by what does not reach so far.
        ("127.0.0.1", vec![any.as_str()]),
        ("127.0.0.2", vec![any.as_str()]),
        ("169.254.169.254", vec![any.as_str()]),
        ("[::1]", vec![any.as_str()]),
        ("[::ffff:127.0.0.1]", vec![any.as_str()]),
        ("[::ffff:169.254.169.254]", vec![any.as_str()]),
        ("0.0.0.0", vec![any.as_str()]),
        ("localhost", vec![any.as_str()]),
        ("localhost", vec!["localhost"]),
        ("localhost.", vec![any.as_str(), below.as_str()]),
        // What the system's resolver takes for addresses.
        ("2130706433", vec![any.as_str()]),
        ("0x7f.1", vec![any.as_str()]),
    ] {
        let url = format!("http://{host}:{port}/200");
        let report = post(&url, allowing(&rules), limits()).await;
        assert_eq!(report.outcome.class(), "nacked", "{url} {rules:?}");
        let reason = report.outcome.reason();
        assert!(reason.contains("dqhost does not allow"), "{url}: {reason}");
        assert_eq!(report.refused, 1, "{url}");
        let log = report.log_text();
        assert!(log.contains("[refused: "), "{url}: {log}");
    }
    // A user before the host is no way around.
    let url = format!("http://allowed.example@127.0.0.1:{port}/200");
    let report = post(&url, allowing(&["allowed.example"]), limits()).await;
    assert_eq!(report.outcome.class(), "rejected");
    assert_eq!(web.connections(), 0);
    // The same places, named.
    for (host, rule) in [
        ("127.0.0.1", format!("127.0.0.0/8:{port}")),
        ("[::ffff:127.0.0.1]", format!("127.0.0.1:{port}")),
    ] {
        let url = format!("http://{host}:{port}/200");
        let report = post(&url, allowing(&[&rule]), limits()).await;
        assert_eq!(report.outcome, Outcome::Acked, "{url}: {:?}", report.log);
    }
    let named = [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
    ];
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let url = format!("http://localhost:{port}/200");
    let report = post(&url, allowing(&named), limits()).await;
    assert_eq!(report.outcome, Outcome::Acked, "{:?}", report.log);
}

#[tokio::test]
async fn the_store_is_out_of_reach_whatever_is_allowed() {
    let web = Web::start();
    let rule = format!("127.0.0.1:{}", web.port);
    for host in ["127.0.0.1", "localhost"] {
        let never = Endpoints::default();
        never.add(host, web.port);
        let permissions = Permissions {
            never,
            ..allowing(&[&rule])
        };
        let report = post(&web.url("/200"), permissions, limits()).await;
        assert!(
            report.log_text().contains("the store's own address"),
            "{:?}",
            report.log
        );
        assert_eq!(report.outcome.class(), "nacked");
    }
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn the_store_is_out_of_reach_at_every_address_of_this_machine() {
    let web = Web::start();
    let port = web.port;
    let own = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip().to_string())
    });
    for store in ["127.0.0.1", "localhost", "::1", "127.0.0.3"] {
        for host in [
            "127.0.0.1",
            "127.0.0.2",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "localhost",
            own.as_deref().unwrap_or("127.1.2.3"),
        ] {
            let never = Endpoints::default();
            never.add(store, port);
            let rules = [
                format!("{host}:{port}"),
                format!("0.0.0.0/0:{port}"),
                format!("[::/0]:{port}"),
            ];
            let rules = rules.each_ref().map(String::as_str);
            let permissions = Permissions {
                never,
                ..allowing(&rules)
            };
            let url = format!("http://{host}:{port}/200");
            let report = post(&url, permissions, limits()).await;
            let log = report.log_text();
            assert!(
                log.contains("the store's own address"),
                "{store} {url}: {log}"
            );
        }
    }
    assert_eq!(web.connections(), 0);
    // A store elsewhere, through an address that stands for its own.
    let never = Endpoints::default();
    never.add("10.0.0.5", port);
    let permissions = Permissions {
        never,
        ..allowing(&[&format!("[64:ff9b::/96]:{port}")])
    };
    let url = format!("http://[64:ff9b::a00:5]:{port}/200");
    let log = post(&url, permissions, limits()).await.log_text();
    assert!(log.contains("the store's own address"), "{log}");
    // Another port of the same machine is none of the store's.
    let never = Endpoints::default();
    never.add("127.0.0.1", 1);
    let permissions = Permissions {
        never,
        ..allowing(&[&format!("127.0.0.1:{port}")])
    };
    let report = post(&web.url("/200"), permissions, limits()).await;
    assert_eq!(report.outcome, Outcome::Acked, "{:?}", report.log);
}

/// In a network of its own, in which this machine has public addresses.
#[test]
fn a_public_address_of_this_machine_needs_a_rule_that_names_it() {
    let handler = guest("webhook");
    let script = "ip link set lo up && ip addr add 9.9.9.9/32 dev lo && \
        ip addr add 168.63.129.16/32 dev lo || exit 99; exec \"$@\"";
    let run = |host: &str, rule: &str| {
        let url = format!("url=http://{host}:9/");
        let file = handler.to_str().unwrap();
        let program = dqhost(None, &["run", file, "--header", &url, "--allow-http", rule]);
        let mut inside = std::process::Command::new("unshare");
        inside.args(["-rn", "sh", "-c", script, "sh"]);
        inside.arg(program.get_program()).args(program.get_args());
        inside.output().unwrap()
    };
    let first = run("9.9.9.9", "*:9");
    assert!(
        first.stdout.starts_with(b"verdict"),
        "a network of its own is needed (as root, or where users may have namespaces): {}",
        crate::support::stderr(&first)
    );
    for host in ["9.9.9.9", "168.63.129.16"] {
        let refused = stdout(&expect(run(host, "*:9"), 1));
        assert!(refused.contains("this machine's own"), "{refused}");
        assert!(refused.contains("refused   1"), "{refused}");
        // Nobody listens there.
        let named = stdout(&expect(run(host, &format!("{host}:9")), 1));
        assert!(named.contains("ConnectionRefused"), "{named}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_nobody_reads_ends_with_its_time() {
    let web = Web::start();
    let rule = format!("127.0.0.1:{}", web.port);
    let short = Limits {
        http_total: Duration::from_millis(200),
        http_connections: 1,
        ..limits()
    };
    let (_runtime, handler) = load_with(&guest("slow-loris-http"), short, allowing(&[&rule]));
    let handler = std::sync::Arc::new(handler);
    let holds = tokio::spawn({
        let (handler, payload) = (handler.clone(), format!("hold {}", web.url("/head")));
        async move { handler.run(call(payload.as_bytes(), 1)).await }
    });
    eventually("the response is held", || (web.held() == 1).then_some(()));
    web.wait_until_hung_up();
    // There may be one connection, so this has what was that one's.
    let payload = web.url("/200");
    while handler.run(call(payload.as_bytes(), 1)).await.outcome != Outcome::Acked {}
    assert!(!holds.is_finished());
    holds.abort();
}

#[tokio::test]
async fn a_server_that_sends_informational_responses_without_end_is_hung_up_on() {
    let web = Web::start();
    let rule = format!("127.0.0.1:{}", web.port);
    let report = post(&web.url("/103"), allowing(&[&rule]), limits()).await;
    assert_eq!(
        (report.outcome.class(), report.outcome.reason()),
        ("nacked", "HttpProtocolError".to_owned())
    );
    let report = post(&web.url("/103-and-200"), allowing(&[&rule]), limits()).await;
    assert_eq!(report.outcome, Outcome::Acked, "{:?}", report.log);
}

#[tokio::test]
async fn requests_have_their_limits() {
    let web = Web::start();
    let rule = format!("127.0.0.1:{}", web.port);
    let report = post(
        &web.url("/200"),
        allowing(&[&rule]),
        Limits {
            http_requests: 0,
            ..limits()
        },
    )
    .await;
    assert_eq!(report.outcome.reason(), "ConnectionLimitReached");
    assert!(report.log_text().contains("--limit http-requests"));
    assert_eq!(web.connections(), 0);
    let short = Limits {
        http_total: Duration::from_millis(200),
        ..limits()
    };
    let started = Instant::now();
    let report = post(&web.url("/hang"), allowing(&[&rule]), short).await;
    assert_eq!(report.outcome.reason(), "ConnectionReadTimeout");
    assert!(started.elapsed() >= short.http_total);
    web.wait_until_hung_up();
    // Whoever speaks no TLS keeps the connection from being there.
    let limits = Limits {
        http_connect: Duration::from_millis(200),
        ..limits()
    };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = silent.local_addr().unwrap().to_string();
    let report = post(&format!("https://{place}/"), allowing(&[&place]), limits).await;
    assert_eq!(report.outcome.reason(), "ConnectionTimeout");
}

/// Who gives a message back, or runs it again, does so when the future is gone.
#[test]
fn a_run_that_is_dropped_has_closed_its_connection() {
    let web = Web::start();
    let rule = format!("127.0.0.1:{}", web.port);
    let (_runtime, handler) = load_with(&guest("webhook"), limits(), allowing(&[&rule]));
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (occupied, is_occupied) = std::sync::mpsc::channel();
    let (free, until_free) = std::sync::mpsc::channel::<()>();
    threads.block_on(async {
        let mut run = Box::pin(handler.run(to(&web.url("/hang"), b"{}")));
        while web.held() == 0 {
            let moment = tokio::time::sleep(Duration::from_millis(1));
            tokio::select! {
                report = &mut run => panic!("it ended: {report:?}"),
                () = moment => {}
            }
        }
        // No thread is left that could do what is put off.
        tokio::spawn(async move {
            occupied.send(()).unwrap();
            let _ = until_free.recv();
        });
        is_occupied.recv().unwrap();
        drop(run);
        web.wait_until_hung_up();
    });
    drop(free);
}

#[tokio::test]
async fn a_response_that_drips_ends_with_its_limit_or_that_of_the_handler() {
    let web = Web::start();
    let rule = format!("127.0.0.1:{}", web.port);
    let url = web.url("/drip");
    let by_http = Limits {
        http_total: Duration::from_millis(200),
        ..limits()
    };
    let (_runtime, handler) = load_with(&guest("slow-loris-http"), by_http, allowing(&[&rule]));
    let report = handler.run(call(url.as_bytes(), 1)).await;
    assert_ne!(report.outcome, Outcome::Acked);
    assert!(report.duration >= by_http.http_total);
    let limit = Duration::from_millis(300);
    let by_handler = Limits {
        time: limit,
        time_max: limit,
        ..limits()
    };
    let (_runtime, handler) = load_with(&guest("slow-loris-http"), by_handler, allowing(&[&rule]));
    let report = handler.run(call(url.as_bytes(), 1)).await;
    assert_eq!(report.outcome, Outcome::TimedOut { limit });
}

#[test]
fn https_trusts_what_the_machine_trusts_and_nothing_else() {
    use rustls::pki_types::PrivateKeyDer;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(std::sync::Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(vec![made.cert.der().clone()], key)
    .unwrap();
    let config = std::sync::Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            if read_request(&mut stream).is_some() {
                use std::io::Write;
                let _ = stream.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n");
            }
        }
    });
    let folder = tempfile::TempDir::new().unwrap();
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, made.cert.pem()).unwrap();
    let handler = guest("webhook");
    let run = |host: &str, roots: Option<&std::path::Path>| {
        let url = format!("url=https://{host}:{port}/");
        let (named, address) = (format!("localhost:{port}"), format!("127.0.0.1:{port}"));
        let args = [
            "run",
            handler.to_str().unwrap(),
            "--header",
            &url,
            "--allow-http",
            &named,
            "--allow-http",
            &address,
        ];
        let mut command = dqhost(None, &args);
        if let Some(roots) = roots {
            command.env("SSL_CERT_FILE", roots);
        }
        command.output().unwrap()
    };
    expect(run("localhost", Some(&roots)), 0);
    for (host, roots) in [("localhost", None), ("127.0.0.1", Some(roots.as_path()))] {
        let refused = stdout(&expect(run(host, roots), 1));
        assert!(refused.contains("TlsCertificateError"), "{refused}");
    }
}

#[test]
fn a_refused_call_is_logged_counted_and_kept_with_the_attempt() {
    let web = Web::start();
    let folder = tempfile::TempDir::new().unwrap();
    let db = folder.path().join("dqhost.db");
    let db = db.to_str().unwrap();
    let url = format!("url={}", web.url("/200"));
    let sent = run(
        Some(db),
        &["send", "x", "--header", &url, "--retries", "0"],
        0,
    );
    let handler = guest("webhook");
    let mut host = Host::start(db, &["--handler", handler.to_str().unwrap()]);
    let line = host.wait_for_start("refused: POST http://127.0.0.1:");
    assert_eq!(
        (&line["level"], &line["attempt"]),
        (&"WARN".into(), &1.into())
    );
    host.wait_for("dead", |_| true);
    host.signal(rustix::process::Signal::TERM);
    let (_, lines) = host.end();
    let last = crate::support::with_message(&lines, "stopped");
    assert_eq!(last[0]["refused"], 1);
    let id = stdout(&sent);
    let shown = stdout(&run(Some(db), &["get", id.trim()], 0));
    assert!(
        shown.contains("[refused: POST http://127.0.0.1:"),
        "{shown}"
    );
    assert_eq!(web.connections(), 0);
}
