//! At most one live handler for each message, whatever happens to leases.
//!
//! Whether a handler lives is seen from outside: it waits for the answer to a request, and its
//! connection is closed when it is stopped.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use super::web::Web;
use crate::support::{Host, RedisServer, eventually, guest, run, stats};

/// Messages whose handlers lose their leases at once.
const TRIES: usize = 500;

/// Stands between a host and Redis. While it holds, nothing passes in either direction, and no
/// connection ends.
struct Proxy {
    url: String,
    holds: Arc<AtomicBool>,
}

impl Proxy {
    fn start(to: &RedisServer) -> Self {
        let path = to.url().trim_start_matches("unix://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let holds = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&holds);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = std::os::unix::net::UnixStream::connect(&path).unwrap();
                let (from, into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                pass(from, into, Arc::clone(&shared));
                pass(server, client, Arc::clone(&shared));
            }
        });
        Self { url, holds }
    }

    fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::SeqCst);
    }
}

fn pass(
    mut from: impl Read + Send + 'static,
    mut into: impl Write + Send + 'static,
    holds: Arc<AtomicBool>,
) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            while holds.load(Ordering::SeqCst) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if into.write_all(&buffer[..read]).is_err() {
                return;
            }
        }
    });
}

#[test]
fn a_handler_whose_lease_cannot_be_renewed_is_stopped_before_another_runs() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let web = Web::start();
    let header = format!("url={}", web.url("/hang-once"));
    let lines = "{\"payload\": \"x\"}\n".repeat(TRIES);
    let mut sender = crate::support::dqhost(
        Some(&server.url()),
        &["send", "--ndjson", "--header", &header],
    );
    sender.stdout(std::process::Stdio::null());
    assert!(
        crate::support::feed(sender, lines.as_bytes())
            .status
            .success()
    );
    let (handler, slots) = (guest("webhook"), TRIES.to_string());
    let allowed = format!("127.0.0.1:{}", web.port);
    let args = [
        "--handler",
        handler.to_str().unwrap(),
        "--slots",
        &slots,
        // A fifth of it is there to stop all of them, in a build that is not optimised.
        "--lease",
        "10s",
        "--timeout",
        "10m",
        "--allow-http",
        &allowed,
        "--limit",
        "http-total=10m",
        "--limit",
        "http-connections=1000",
    ];
    let mut first = Host::start(&proxy.url, &args);
    eventually("all wait for an answer", || {
        (web.held() == TRIES).then_some(())
    });
    proxy.hold(true);
    let _second = Host::start(&server.url(), &args);
    eventually("all are acked", || {
        (stats(&server.url(), "default")["totals"]["acked"] == TRIES).then_some(())
    });
    assert_eq!(web.overlaps(), Vec::<String>::new());
    assert_eq!(web.requests().len(), 2 * TRIES);
    first.wait_for_start("stopped: its lease could not be renewed in time");
    // What comes too late is refused by the token.
    proxy.hold(false);
    assert_eq!(stats(&server.url(), "default")["totals"]["expired"], TRIES);
    run(Some(&server.url()), &["send", "x", "--header", &header], 0);
    eventually("the queue goes on", || {
        let counts = stats(&server.url(), "default");
        (counts["unack"] == 1 || counts["totals"]["acked"] == TRIES + 1).then_some(())
    });
}

#[test]
fn a_frozen_host_that_wakes_late_changes_nothing() {
    let server = RedisServer::start();
    let url = server.url();
    run(Some(&url), &["send", "2000", "--retries", "5"], 0);
    let handler = guest("sleeper");
    let args = [
        "--handler",
        handler.to_str().unwrap(),
        "--lease",
        "1s",
        "--slots",
        "1",
    ];
    let frozen = Host::start(&url, &args);
    eventually("it is in flight", || {
        (stats(&url, "default")["unack"] == 1).then_some(())
    });
    frozen.signal(Signal::STOP);
    let mut other = Host::start(&url, &args);
    let line = other.wait_for("acked", |_| true);
    assert_eq!(line["attempt"], 2);
    // How it ended is told later than that it did.
    let before = eventually("it is told how it ended", || {
        let dump = server.dump();
        dump.contains(":ended").then_some(dump)
    });
    frozen.signal(Signal::CONT);
    frozen.signal(Signal::TERM);
    let (status, lines) = frozen.end();
    assert!(status.success());
    let last = crate::support::with_message(&lines, "stopped")[0];
    let late = last["stale"].as_u64().unwrap() + last["lost"].as_u64().unwrap();
    assert_eq!((late, &last["acked"]), (1, &0.into()), "{last}");
    // Only its own heartbeat is gone.
    let messages = |dump: &str| -> Vec<String> {
        let lines = dump.lines().filter(|line| !line.contains(":host"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(messages(&server.dump()), messages(&before));
}
