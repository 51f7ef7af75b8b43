//! A host as a service: what its manager is told, credentials, and a log that others rotate.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tempfile::TempDir;

use crate::dashboard::tty::Tty;
use crate::http_api::Api;
use crate::support::{
    Host, PATIENCE, RedisServer, dqhost, eventually, guest, run, stats, stdout, with_hangups,
    with_message,
};

/// What systemd is for a service: a socket, and what was said at it.
struct Manager {
    socket: UnixDatagram,
    name: String,
    seen: Vec<String>,
}

impl Manager {
    fn at_path(folder: &TempDir) -> Self {
        let path = folder.path().join("notify");
        Self::of(UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap())
    }

    fn abstract_one() -> Self {
        let name = format!("dqhost-test-{}", uuid::Uuid::new_v4());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        Self::of(socket, &format!("@{name}"))
    }

    fn of(socket: UnixDatagram, name: &str) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            name: name.to_owned(),
            seen: Vec::new(),
        }
    }

    fn next(&mut self) -> Option<String> {
        let mut bytes = [0; 4096];
        let count = self.socket.recv(&mut bytes).ok()?;
        let message = String::from_utf8(bytes[..count].to_vec()).unwrap();
        self.seen.push(message.clone());
        Some(message)
    }

    /// The next message that starts so.
    fn wait_for(&mut self, start: &str) -> String {
        while let Some(message) = self.next() {
            if message.starts_with(start) {
                return message;
            }
        }
        panic!("no {start}; there was: {:#?}", self.seen)
    }

    /// What was said but for signs of life and the status alone, by first lines.
    fn states(&self) -> Vec<&str> {
        let first = self.seen.iter().filter_map(|one| one.lines().next());
        first
            .filter(|line| *line != "WATCHDOG=1" && !line.starts_with("STATUS="))
            .collect()
    }
}

fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1000).unwrap()
}

fn database(folder: &TempDir) -> String {
    folder.path().join("dqhost.db").display().to_string()
}

/// A host that tells this manager, with a watchdog of two seconds.
fn start(store: &str, args: &[&str], manager: &Manager) -> Host {
    let mut command = dqhost(Some(store), args);
    command.env("NOTIFY_SOCKET", &manager.name);
    command.env("WATCHDOG_USEC", "2000000");
    Host::start_command(with_hangups(&command))
}

fn tells_its_manager(store: &str, mut manager: Manager) {
    let handler = guest("echo").display().to_string();
    let host = start(store, &["--handler", &handler], &manager);
    let ready = manager.wait_for("READY=1");
    let status = "STATUS=serving queue default: 0 of 16 slots busy, 0 acked, 0 failed";
    assert_eq!(ready, format!("READY=1\n{status}"));
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
    }
    run(Some(store), &["send", "a"], 0);
    manager.wait_for("STATUS=serving queue default: 0 of 16 slots busy, 1 acked");
    let before = monotonic();
    host.signal(Signal::HUP);
    let reloading = manager.wait_for("RELOADING=1");
    let at = reloading
        .lines()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    let at: u64 = at.unwrap().parse().unwrap();
    assert!((before..=monotonic()).contains(&at), "{before} {reloading}");
    manager.wait_for("READY=1");
    manager.wait_for("WATCHDOG=1");
    host.signal(Signal::TERM);
    manager.wait_for("STOPPING=1\nSTATUS=stopping: 0 handlers may finish within 25s");
    assert!(host.end().0.success());
    assert_eq!(
        manager.states(),
        ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
    );
}

#[test]
fn a_host_on_a_file_tells_its_manager_at_a_path() {
    let folder = TempDir::new().unwrap();
    tells_its_manager(&database(&folder), Manager::at_path(&folder));
}

#[test]
fn a_host_on_redis_tells_its_manager_at_an_abstract_socket() {
    let server = RedisServer::start();
    tells_its_manager(&server.url(), Manager::abstract_one());
}

#[test]
fn the_http_api_alone_tells_its_manager_too() {
    let folder = TempDir::new().unwrap();
    let mut manager = Manager::at_path(&folder);
    let args = ["serve", "--listen", "127.0.0.1:0"];
    let host = start(&database(&folder), &args, &manager);
    let ready = manager.wait_for("READY=1");
    assert!(
        ready.contains("STATUS=serving the HTTP API at http://127.0.0.1:"),
        "{ready}"
    );
    for _ in 0..2 {
        manager.wait_for("WATCHDOG=1");
    }
    host.signal(Signal::HUP);
    manager.wait_for("RELOADING=1\nMONOTONIC_USEC=");
    manager.wait_for("READY=1");
    host.signal(Signal::TERM);
    manager.wait_for("STOPPING=1");
    assert!(host.end().0.success());
}

#[test]
fn the_status_of_an_http_api_with_tls_is_where_it_can_be_reached() {
    let folder = TempDir::new().unwrap();
    let mut manager = Manager::at_path(&folder);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let certificate = params.self_signed(&key).unwrap();
    fs::write(path("server.crt"), certificate.pem()).unwrap();
    fs::write(path("server.key"), key.serialize_pem()).unwrap();
    let (certificate, key) = (path("server.crt"), path("server.key"));
    let mut args = vec!["serve", "--listen", "127.0.0.1:0"];
    args.extend(["--tls-cert", &certificate, "--tls-key", &key]);
    let host = start(&database(&folder), &args, &manager);
    let ready = manager.wait_for("READY=1");
    assert!(
        ready.contains("STATUS=serving the HTTP API at https://127.0.0.1:"),
        "{ready}"
    );
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
}

#[test]
fn a_refused_handler_ends_a_reload_as_well_and_the_status_tells_of_it() {
    let folder = TempDir::new().unwrap();
    let mut manager = Manager::at_path(&folder);
    let handler = folder.path().join("handler.wasm");
    fs::copy(guest("echo"), &handler).unwrap();
    let args = ["--handler", handler.to_str().unwrap()];
    let host = start(&database(&folder), &args, &manager);
    manager.wait_for("READY=1");
    fs::write(&handler, "no component").unwrap();
    host.signal(Signal::HUP);
    manager.wait_for("RELOADING=1");
    manager.wait_for("READY=1");
    let status = manager.wait_for("STATUS=serving");
    assert!(
        status.ends_with("; the changed handler of 1 queue was refused, see the log"),
        "{status}"
    );
}

#[test]
fn a_store_that_is_away_does_not_end_a_host_by_its_watchdog() {
    let mut server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let mut manager = Manager::at_path(&folder);
    let handler = guest("echo").display().to_string();
    let mut host = start(&server.url(), &["--handler", &handler], &manager);
    manager.wait_for("READY=1");
    server.kill();
    host.wait_for_start("trying again until the store answers");
    for _ in 0..4 {
        manager.wait_for("WATCHDOG=1");
    }
}

#[test]
fn a_host_that_hangs_gives_no_sign_of_life() {
    let folder = TempDir::new().unwrap();
    let mut manager = Manager::at_path(&folder);
    let handler = guest("echo").display().to_string();
    let mut command = dqhost(Some(&database(&folder)), &["--handler", &handler]);
    command.env("NOTIFY_SOCKET", &manager.name);
    command.env("WATCHDOG_USEC", "2000000");
    // Whatever thread comes to it stands still for ever.
    command.env("FAILPOINTS", "before advance=4*off->pause");
    let _host = Host::start_command(command);
    manager.wait_for("READY=1");
    manager
        .socket
        .set_read_timeout(Some(Duration::from_secs(6)))
        .unwrap();
    let signs = std::iter::from_fn(|| manager.next()).take(60).count();
    assert!(signs < 60, "{signs} signs of life");
}

#[test]
fn without_a_manager_or_with_one_that_is_gone_a_host_works_the_same() {
    let folder = TempDir::new().unwrap();
    let store = database(&folder);
    let handler = guest("echo").display().to_string();
    for name in ["", "/nowhere/notify", "vsock:2:1", "@nobody"] {
        run(Some(&store), &["send", "a"], 0);
        let args = ["--handler", &handler, "--exit-when-empty", "--log", "debug"];
        let mut command = dqhost(Some(&store), &args);
        command.env("NOTIFY_SOCKET", name).env("WATCHDOG_USEC", "1");
        let (status, lines) = Host::start_command(command).end();
        assert!(status.success(), "{name}: {lines:#?}");
        let is_told = |line: &&Value| {
            let message = line["message"].as_str();
            message.is_some_and(|message| message.starts_with("the service manager "))
        };
        let told: Vec<&Value> = lines.iter().filter(is_told).collect();
        assert_eq!(
            told.len(),
            usize::from(!name.is_empty()),
            "{name}: {told:#?}"
        );
        assert!(
            told.iter().all(|line| line["level"] == "DEBUG"),
            "{told:#?}"
        );
    }
    assert_eq!(stats(&store, "default")["totals"]["acked"], 4);
}

/// The variables that a block of the documentation sets for the service, with `%d` in them.
fn documented_variables() -> Vec<(String, String)> {
    let page = include_str!("../../docs/operations.md");
    let lines = page.lines();
    let set = lines.filter_map(|line| line.strip_prefix("Environment=")?.split_once('='));
    set.filter(|(_, value)| value.contains("%d"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn credentials_of_systemd_are_used_as_the_documentation_says() {
    let folder = TempDir::new().unwrap();
    // As systemd makes it: nothing in it can be changed.
    let credentials = folder.path().join("credentials");
    fs::create_dir(&credentials).unwrap();
    let printed = stdout(&run(None, &["token", "new", "a", "--role", "send"], 0));
    let (token, line) = printed.split_once('\n').unwrap();
    for (name, content) in [
        ("redis-password", "redis-secret\n"),
        ("api-key", "secret-of-the-handler\n"),
        ("tokens", line),
    ] {
        let path = credentials.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    }
    fs::set_permissions(&credentials, Permissions::from_mode(0o500)).unwrap();
    let server = RedisServer::start_with(&["--requirepass", "redis-secret"]);
    let handler = guest("secret-teller").display().to_string();
    let args = ["--handler", &handler, "--listen", "127.0.0.1:0"];
    let mut command = dqhost(Some(&server.url()), &args);
    let variables = documented_variables();
    assert_eq!(variables.len(), 3, "{variables:?}");
    for (name, value) in &variables {
        command.env(name, value.replace("%d", credentials.to_str().unwrap()));
    }
    let api = Api::of(Host::start_command(command));
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    api.post("/queues/default/messages", &[], "API_KEY").is(401);
    api.post("/queues/default/messages", &headers, "API_KEY")
        .is(201);
    let mut host = api.host;
    let dead = host.wait_for("dead", |_| true);
    fs::set_permissions(&credentials, Permissions::from_mode(0o700)).unwrap();
    // The secret itself is hidden.
    let reason = dead["reason"].as_str().unwrap();
    assert!(reason.contains("[secret API_KEY]"), "{dead}");
}

/// The lines of a file of the log.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_log_that_is_moved_away_goes_on_in_a_new_file_and_no_line_is_lost() {
    const ROTATIONS: usize = 5;
    const MESSAGES: usize = 200;
    let folder = TempDir::new().unwrap();
    let store = database(&folder);
    let log = folder.path().join("log");
    let handler = guest("echo").display().to_string();
    let args = ["--handler", &handler, "--log-file", log.to_str().unwrap()];
    let host = Host::start_silently(&store, &args);
    let wait_for = |message: &str| {
        eventually(message, || {
            (!with_message(&lines(&log), message).is_empty()).then_some(())
        });
    };
    wait_for("serving");
    assert_eq!(
        fs::metadata(&log).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let mut sent = BTreeSet::new();
    for rotation in 0..ROTATIONS {
        let messages = "{\"payload\": \"a\"}\n".repeat(MESSAGES);
        let command = dqhost(Some(&store), &["send", "--ndjson"]);
        let ids = stdout(&crate::support::feed(command, messages.as_bytes()));
        sent.extend(ids.lines().map(str::to_owned));
        fs::rename(&log, folder.path().join(format!("log.{rotation}"))).unwrap();
        host.signal(Signal::USR1);
        wait_for("the files of the log are opened again");
    }
    eventually("all are acked", || {
        (stats(&store, "default")["totals"]["acked"] == sent.len()).then_some(())
    });
    host.signal(Signal::TERM);
    let (status, on_stderr) = host.end();
    assert!(status.success());
    assert_eq!(on_stderr, Vec::<Value>::new());
    let mut acked = Vec::new();
    for name in (0..ROTATIONS)
        .map(|n| format!("log.{n}"))
        .chain(["log".to_owned()])
    {
        let lines = lines(&folder.path().join(name));
        let of_messages = with_message(&lines, "acked").into_iter();
        acked.extend(of_messages.map(|line| line["id"].as_str().unwrap().to_owned()));
    }
    assert_eq!(
        (acked.len(), sent.len()),
        (sent.len(), ROTATIONS * MESSAGES)
    );
    assert_eq!(acked.into_iter().collect::<BTreeSet<_>>(), sent);
}

#[test]
fn a_log_file_that_cannot_be_opened_again_goes_on_in_the_old_one() {
    let folder = TempDir::new().unwrap();
    let store = database(&folder);
    let log = folder.path().join("log");
    let handler = guest("echo").display().to_string();
    let args = ["--handler", &handler, "--log-file", log.to_str().unwrap()];
    for bad in ["/nowhere/log", folder.path().to_str().unwrap()] {
        let args = [&args[..3], &[bad]].concat();
        let says = crate::support::stderr(&run(Some(&store), &args, 2));
        assert!(
            says.contains(&format!("--log-file: {bad} cannot be opened")),
            "{says}"
        );
    }
    let mut host = Host::start_silently(&store, &args);
    eventually("it serves", || {
        (!with_message(&lines(&log), "serving").is_empty()).then_some(())
    });
    let old = folder.path().join("log.1");
    fs::rename(&log, &old).unwrap();
    fs::create_dir(&log).unwrap();
    host.signal(Signal::USR1);
    let line = host.wait_for_text("the log goes on in its old file");
    assert!(line.contains("is a directory"), "{line}");
    run(Some(&store), &["send", "a"], 0);
    eventually("it was acked", || {
        (!with_message(&lines(&old), "acked").is_empty()).then_some(())
    });
}

#[test]
fn the_files_beside_a_dashboard_are_opened_again_too() {
    let folder = TempDir::new().unwrap();
    let store = database(&folder);
    let handler = guest("echo").display().to_string();
    let mut tty = Tty::start(
        &store,
        &["--handler", &handler, "--log-format", "json"],
        (120, 40),
    );
    tty.wait_for("> default");
    let state = tty.state.path().join("dqhost");
    let (log, old) = (state.join("dqhost.log"), state.join("dqhost.log.old"));
    fs::rename(&log, &old).unwrap();
    tty.signal(Signal::USR1);
    eventually("there is a new file", || {
        let is_first = "the files of the log are opened again";
        (!with_message(&lines(&log), is_first).is_empty()).then_some(())
    });
    let id = stdout(&run(Some(&store), &["send", "a"], 0))
        .trim()
        .to_owned();
    eventually("it is in the new file", || {
        let lines = lines(&log);
        let acked = with_message(&lines, "acked");
        acked.iter().any(|line| line["id"] == *id).then_some(())
    });
    assert_eq!(with_message(&lines(&old), "serving").len(), 1);
    tty.signal(Signal::TERM);
    tty.end(0);
}
