//! What the queues and the runs of one host leave to each other.

use std::cell::Cell;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dqhost::host::{Host as Hosting, QueueSettings, Served, SlotCount, Stage, Workers};
use dqhost::message::NewMessage;
use dqhost::runtime::{Call, Limits, Permissions};
use dqhost::store::address::{self, StoreSettings};
use dqhost::verdict::{Backoff, Delays, Outcome};

use super::web::Web;
use crate::guests::{call, load_with};
use crate::support::{
    Host, RedisServer, dqhost, eventually, guest, host_config, run, stats, stderr, stdout,
    with_message,
};

fn send(store: &str, queue: &str, payload: &str, more: &[&str]) -> String {
    let args = [&["send", "--queue", queue, payload], more].concat();
    stdout(&run(Some(store), &args, 0)).trim().to_owned()
}

/// Does this on a Redis server and on a file.
fn on_both(what: impl Fn(&str)) {
    let server = RedisServer::start();
    what(&server.url());
    let folder = tempfile::TempDir::new().unwrap();
    what(folder.path().join("dqhost.db").to_str().unwrap());
}

fn queue(name: &str, handler: &str) -> String {
    format!("--queue={name}={}", guest(handler).display())
}

fn posting(url: &str) -> Call {
    Call {
        headers: vec![("url".to_owned(), url.to_owned())],
        ..call(b"x", 1)
    }
}

fn one_connection(web: &Web) -> (Permissions, Limits) {
    let permissions = Permissions {
        http: vec![format!("127.0.0.1:{}", web.port).parse().unwrap()],
        ..Permissions::default()
    };
    let limits = Limits {
        http_connections: 1,
        http_connect: Duration::from_millis(100),
        ..Limits::default()
    };
    (permissions, limits)
}

#[test]
fn four_messages_of_one_queue_leave_half_of_the_connections_to_others() {
    on_both(|store| {
        let web = Web::start();
        let allowed = format!("127.0.0.1:{}", web.port);
        let (greedy, well) = (queue("greedy", "slow-loris-http"), queue("well", "webhook"));
        let args = [&greedy, &well, "--allow-http", &allowed, "--timeout", "1h"];
        let mut host = Host::start(store, &args);
        for _ in 0..4 {
            send(store, "greedy", &format!("many {}", web.url("/keep")), &[]);
        }
        eventually("it holds what it can", || (web.kept() >= 100).then_some(()));
        let url = format!("url={}", web.url("/200"));
        for n in 0..20 {
            let id = send(store, "well", &n.to_string(), &["--header", &url]);
            let line = host.wait_for("acked", |line| line["id"] == id.as_str());
            assert_eq!(line["attempt"], 1);
        }
        assert!(web.kept() <= 128, "{}", web.kept());
        assert_eq!(stats(store, "well")["totals"]["nacked"], 0);
    });
}

#[test]
fn what_the_host_could_not_provide_costs_no_attempt() {
    on_both(|store| {
        let web = Web::start();
        let allowed = format!("127.0.0.1:{}", web.port);
        let handler = queue("q", "webhook");
        let mut args = vec![&*handler, "--allow-http", &allowed, "--slots", "4"];
        args.extend(["--timeout", "1h", "--limit", "http-connections=2"]);
        args.extend(["--limit", "http-connect=100ms,http-total=1h"]);
        let mut host = Host::start(store, &args);
        let url = |path: &str| format!("url={}", web.url(path));
        let hangs = url("/hang-once");
        let first = [(); 2].map(|()| send(store, "q", "x", &["--header", &hangs]));
        eventually("both are held", || (web.held() == 2).then_some(()));
        let late = send(
            store,
            "q",
            "x",
            &["--header", &url("/200"), "--retries", "0"],
        );
        let released = "released: this attempt does not count";
        // Twice, so it was delivered again after the first time.
        let count = Cell::new(0);
        host.wait_for(released, |line| {
            let is_late = line["id"] == late.as_str() && line["attempt"] == 1;
            count.set(count.get() + usize::from(is_late));
            count.get() == 2
        });
        web.hang_up();
        let line = host.wait_for("acked", |line| line["id"] == late.as_str());
        assert_eq!(line["attempt"], 1);
        // Whoever had a connection has had an attempt.
        for id in &first {
            let line = host.wait_for("acked", |line| line["id"] == id.as_str());
            assert_eq!(line["attempt"], 2);
        }
        let totals = &stats(store, "q")["totals"];
        assert_eq!(
            (&totals["acked"], &totals["nacked"]),
            (&3.into(), &2.into())
        );
        host.signal(rustix::process::Signal::TERM);
        let (_, lines) = host.end();
        let released = with_message(&lines, released).len();
        assert_eq!(with_message(&lines, "stopped")[0]["released"], released);
    });
}

#[tokio::test]
async fn a_run_that_gets_no_connection_ends_as_the_host_s_fault_and_its_holder_as_its_own() {
    let web = Web::start();
    let (permissions, limits) = one_connection(&web);
    let (_runtime, handler) = load_with(&guest("webhook"), limits, permissions.clone());
    let mut holder = Box::pin(handler.run(posting(&web.url("/hang"))));
    while web.held() == 0 {
        let moment = tokio::time::sleep(Duration::from_millis(1));
        tokio::select! {
            report = &mut holder => panic!("it ended: {report:?}"),
            () = moment => {}
        }
    }
    let busy = Outcome::HostBusy {
        what: "HTTP connection",
    };
    let report = handler.run(posting(&web.url("/200"))).await;
    assert_eq!(report.outcome, busy);
    assert!(
        report.log_text().contains("ConnectionTimeout"),
        "{:?}",
        report.log
    );
    web.hang_up();
    assert_eq!(holder.await.outcome.class(), "nacked");
    // Nor is a run at fault that is stopped while it waits. The one that holds moves its limit.
    let limits = Limits {
        time: Duration::from_secs(2),
        time_max: Duration::from_mins(10),
        http_connect: Duration::from_mins(1),
        ..limits
    };
    let (_runtime, handler) = load_with(&guest("slow-loris-http"), limits, permissions);
    let payload = format!("hold {}", web.url("/head"));
    let mut holder = Box::pin(handler.run(call(payload.as_bytes(), 1)));
    while web.held() == 0 {
        let moment = tokio::time::sleep(Duration::from_millis(1));
        tokio::select! {
            report = &mut holder => panic!("it ended: {report:?}"),
            () = moment => {}
        }
    }
    let payload = web.url("/200");
    let waits = handler.run(call(payload.as_bytes(), 1));
    tokio::select! {
        report = &mut holder => panic!("it ended: {report:?}"),
        report = waits => assert_eq!(report.outcome, busy),
    }
}

#[test]
fn connections_are_driven_while_no_thread_of_a_handler_is_free() {
    let web = Web::start();
    let (permissions, limits) = one_connection(&web);
    let limits = Limits {
        http_connect: Duration::from_mins(1),
        http_total: Duration::from_millis(500),
        ..limits
    };
    let threads = |count| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(count)
            .enable_all()
            .build()
            .unwrap()
    };
    let (here, handlers, http) = (threads(2), threads(1), threads(1));
    let (_runtime, handler) = load_with(&guest("slow-loris-http"), limits, permissions);
    let queue: dqhost::message::QueueName = "q".parse().unwrap();
    let served = Served {
        queue: queue.clone(),
        handler: Arc::new(handler),
        settings: QueueSettings {
            lease: Duration::from_mins(1),
            backoff: Backoff {
                delays: Delays::Fixed(Duration::from_secs(1)),
                max: Duration::from_secs(1),
                ..Backoff::default()
            },
            ..QueueSettings::default()
        },
    };
    let workers = Workers {
        quick: handlers.handle().clone(),
        patient: handlers.handle().clone(),
        http: http.handle().clone(),
        settling: here.handle().clone(),
    };
    let config = host_config(SlotCount::Fixed(2), Duration::ZERO);
    let (_stage, stages) = tokio::sync::watch::channel(Stage::Run);
    let host = here.spawn(async move {
        let memory = ":memory:".parse().unwrap();
        let store = address::open(&memory, StoreSettings::default())
            .await
            .unwrap();
        let payload = format!("hold {}", web.url("/head"));
        store
            .send(&queue, &[NewMessage::new(payload)])
            .await
            .unwrap();
        let host = Hosting::new(store, vec![served], config, workers).run(stages);
        let ended = tokio::task::spawn_blocking(move || {
            eventually("the response is held", || (web.held() == 1).then_some(()));
            let (free, until_free) = std::sync::mpsc::channel::<()>();
            let (tell, occupied) = std::sync::mpsc::channel();
            handlers.spawn(async move {
                let _ = tell.send(());
                let _ = until_free.recv();
            });
            occupied.recv().unwrap();
            web.wait_until_hung_up();
            drop(free);
            handlers.shutdown_background();
        });
        tokio::select! {
            _ = host => panic!("the host ended"),
            ended = ended => ended.unwrap(),
        }
    });
    here.block_on(host).unwrap();
    http.shutdown_background();
}

/// In a network of its own, in which no name server ever answers.
#[test]
fn names_that_nobody_answers_for_leave_look_ups_to_other_queues() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db");
    let store = store.to_str().unwrap();
    let resolver = folder.path().join("resolv.conf");
    let silent = "nameserver 10.9.9.9\noptions timeout:30 attempts:2\n";
    std::fs::write(&resolver, silent).unwrap();
    let script = "ip link set lo up && ip addr add 10.1.1.1/32 dev lo && \
        ip route add 10.9.9.0/24 dev lo && mount --bind \"$0\" /etc/resolv.conf || exit 99; \
        exec \"$@\"";
    let (greedy, well) = (queue("greedy", "webhook"), queue("well", "webhook"));
    let mut args = vec![&*greedy, &well, "--slots", "128", "--timeout", "1h"];
    for allowed in ["nowhere.example:9", "localhost:9", "127.0.0.1:9", "[::1]:9"] {
        args.extend(["--allow-http", allowed]);
    }
    args.extend(["--limit", "http-connect=1s"]);
    let program = dqhost(Some(store), &args);
    let mut inside = Command::new("unshare");
    inside.args(["-rnm", "sh", "-c", script]).arg(&resolver);
    inside.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    let greed = "{\"payload\": \"x\", \"headers\": {\"url\": \"http://nowhere.example:9/\"}}\n";
    let ndjson = dqhost(Some(store), &["send", "--ndjson", "--queue", "greedy"]);
    let sent = crate::support::feed(ndjson, greed.repeat(100).as_bytes());
    assert!(sent.status.success(), "{}", stderr(&sent));
    let mut host = Host::start_command(inside);
    // Its look-ups go on when its attempts have ended.
    host.wait_for("to be retried", |line| line["queue"] == "greedy");
    let url = ["--header", "url=http://localhost:9/", "--retries", "0"];
    for _ in 0..3 {
        let id = send(store, "well", "x", &url);
        let line = host.wait_for("dead", |line| line["id"] == id.as_str());
        // Nobody listens there.
        assert_eq!(line["reason"], "ConnectionRefused");
    }
}

#[test]
fn without_address_space_for_its_limits_a_host_does_not_start() {
    let handler = guest("echo");
    let limited = |args: &[&str]| {
        let program = dqhost(None, args);
        let mut inside = Command::new("sh");
        inside.args(["-c", "ulimit -v 8000000; exec \"$0\" \"$@\""]);
        inside.arg(program.get_program()).args(program.get_args());
        inside.env("XDG_DATA_HOME", env!("CARGO_TARGET_TMPDIR"));
        inside.output().unwrap()
    };
    let file = handler.to_str().unwrap();
    let up = ["up", "--handler", file, "--no-tui", "--db", ":memory:"];
    for args in [&["run", file][..], &["check", file], &up] {
        let output = limited(args);
        assert!(!output.status.success(), "{args:?}");
        let said = stderr(&output);
        for part in ["`ulimit -v unlimited`", "7812 MiB", "--slots"] {
            assert!(said.contains(part), "{args:?}: {said}");
        }
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}
