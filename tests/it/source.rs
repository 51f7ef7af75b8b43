//! Handlers that come from servers and registries, by their digests; and those that have to be signed.

mod registry;
mod signed;

use std::collections::HashMap;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dqhost::text::hex;
use rustix::process::Signal;
use rustls::pki_types::PrivateKeyDer;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::{
    Host, Request, dqhost, expect, guest, read_request, run, stats, stderr, stdout, with_hangups,
};

type Answers = dyn Fn(&Request) -> Vec<u8> + Send + Sync;

/// A server that answers as a test wants it.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Server {
    fn start(tls: Option<Arc<rustls::ServerConfig>>, answers: Arc<Answers>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let (tls, answers) = (tls.clone(), Arc::clone(&answers));
                std::thread::spawn(move || serve(stream, tls, &*answers));
            }
        });
        Self { port, connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(stream: TcpStream, tls: Option<Arc<rustls::ServerConfig>>, answers: &Answers) {
    let Some(tls) = tls else {
        if let Some(request) = read_request(stream.try_clone().unwrap()) {
            let _ = (&stream).write_all(&answers(&request));
        }
        return;
    };
    let connection = rustls::ServerConnection::new(tls).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, stream);
    if let Some(request) = read_request(&mut stream) {
        let _ = stream.write_all(&answers(&request));
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }
}

fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut all =
        format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n{headers}\r\n").into_bytes();
    all.extend_from_slice(body);
    all
}

/// A web server with TLS that has some files, and what a client needs to trust it.
struct Web {
    server: Server,
    files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    /// Of one client: what it trusts, and what it keeps.
    home: TempDir,
}

impl Web {
    fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let files = Arc::<Mutex<HashMap<String, Vec<u8>>>>::default();
        let there = Arc::clone(&files);
        let answers = move |request: &Request| match there.lock().unwrap().get(&request.path) {
            Some(body) => answer(200, "", body),
            None if request.path == "/moved" => answer(302, "location: /h.wasm\r\n", b""),
            None if request.path == "/unsafe" => {
                answer(302, "location: http://127.0.0.1/h.wasm\r\n", b"")
            }
            None => answer(404, "", b"\x1b[2Jnothing is here"),
        };
        let home = TempDir::new().unwrap();
        std::fs::write(home.path().join("roots.pem"), made.cert.pem()).unwrap();
        Self {
            server: Server::start(Some(Arc::new(tls)), Arc::new(answers)),
            files,
            home,
        }
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let mut files = self.files.lock().unwrap();
        files.insert(path.to_owned(), bytes.to_vec());
    }

    /// Where a client finds these bytes, if they are at this path.
    fn url(&self, path: &str, bytes: &[u8]) -> String {
        let digest = hex(&Sha256::digest(bytes));
        format!(
            "https://localhost:{}{path}#sha256={digest}",
            self.server.port
        )
    }

    /// The client.
    fn client(&self, args: &[&str]) -> Command {
        self.with_home(dqhost(None, args))
    }

    fn with_home(&self, mut command: Command) -> Command {
        command
            .env("SSL_CERT_FILE", self.home.path().join("roots.pem"))
            .env("XDG_CACHE_HOME", self.home.path());
        command
    }

    fn run(&self, args: &[&str], code: i32) -> String {
        let args = [&["run"], args].concat();
        let output = expect(self.client(&args).output().unwrap(), code);
        stdout(&output) + &stderr(&output)
    }
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(guest(name)).unwrap()
}

#[test]
fn a_handler_comes_from_a_server_once_and_by_its_digest_alone() {
    let web = Web::start();
    let echo = bytes_of("echo");
    web.put("/h.wasm", &echo);
    let url = web.url("/h.wasm", &echo);
    let told = web.run(&[&url, "--payload", "hello"], 0);
    assert!(told.contains("hello"), "{told}");
    // The server is not asked again.
    let before = web.server.connections();
    web.files.lock().unwrap().clear();
    web.run(&[&url], 0);
    assert_eq!(web.server.connections(), before);
    // What was kept and then changed is not used.
    let kept = std::fs::read_dir(web.home.path().join("dqhost")).unwrap();
    let kept: Vec<PathBuf> = kept.map(|entry| entry.unwrap().path()).collect();
    let is_fetched = |path: &&PathBuf| path.extension().is_some_and(|end| end == "fetched");
    let fetched = kept.iter().find(is_fetched).unwrap();
    std::fs::write(fetched, "another").unwrap();
    let told = web.run(&[&url], 4);
    assert!(told.contains("answered 404 Not Found"), "{told}");
    assert!(
        told.contains("nothing is here") && !told.contains('\u{1b}'),
        "{told:?}"
    );
    web.put("/h.wasm", &echo);
    web.run(&[&web.url("/moved", &echo)], 0);
}

#[test]
fn what_is_wrong_with_a_server_or_its_answer_is_named() {
    let web = Web::start();
    let echo = bytes_of("echo");
    web.put("/h.wasm", b"something else");
    let other = web.run(&[&web.url("/h.wasm", &echo)], 4);
    assert!(
        other.contains("answered with other bytes: their digest is sha256:"),
        "{other}"
    );
    web.put("/h.wasm", &echo);
    let url = web.url("/h.wasm", &echo);
    let large = web.run(&[&url, "--limit", "component-bytes=1KiB"], 4);
    assert!(
        large.contains("/h.wasm has more than 1024 bytes (--limit component-bytes)"),
        "{large}"
    );
    let unsafe_ = web.run(&[&web.url("/unsafe", &echo)], 4);
    assert!(unsafe_.contains("which is not encrypted"), "{unsafe_}");
    // Nobody is there, or somebody else.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let away = url.replace(&format!(":{}/", web.server.port), &format!(":{port}/"));
    let away = web.run(&[&away], 4);
    assert!(away.contains("is not reached: "), "{away}");
    let stranger = url.replace("localhost", "127.0.0.1");
    let stranger = web.run(&[&stranger], 4);
    assert!(stranger.contains("is not reached: "), "{stranger}");
    // Without a digest nobody is asked.
    let before = web.server.connections();
    let (bare, _) = url.split_once('#').unwrap();
    let bare = web.run(&[bare], 2);
    assert!(
        bare.contains("name the digest: https://HOST/PATH#sha256=HEX"),
        "{bare}"
    );
    let spec = format!("q={}", url.replace("sha256", "md5"));
    let queue = expect(web.client(&["--queue", &spec]).output().unwrap(), 2);
    assert!(stderr(&queue).contains("name the digest"), "{queue:?}");
    assert_eq!(web.server.connections(), before);
}

#[test]
fn a_host_goes_on_with_its_handler_until_a_server_has_the_next_one() {
    let web = Web::start();
    let (echo, reject) = (bytes_of("echo"), bytes_of("reject"));
    web.put("/echo.wasm", &echo);
    let folder = TempDir::new().unwrap();
    let settings = folder.path().join("dqhost.toml");
    let db = folder.path().join("dqhost.db").display().to_string();
    let set = |url: &str| std::fs::write(&settings, format!("handler = {url:?}\n")).unwrap();
    set(&web.url("/echo.wasm", &echo));
    let config = settings.to_str().unwrap();
    let start = || {
        let host = web.with_home(dqhost(Some(&db), &["--config", config]));
        Host::start_command(with_hangups(&host))
    };
    let mut host = start();
    host.wait_for("serving", |_| true);
    set(&web.url("/reject.wasm", &reject));
    host.signal(Signal::HUP);
    let refused = host.wait_for_start("the old handler goes on: ");
    assert!(
        refused["message"].as_str().unwrap().contains("404"),
        "{refused}"
    );
    web.put("/reject.wasm", &reject);
    host.signal(Signal::HUP);
    host.wait_for("the handler was replaced", |_| true);
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
    // It starts again while the server has nothing any more.
    web.files.lock().unwrap().clear();
    let mut host = start();
    host.wait_for("serving", |_| true);
    run(Some(&db), &["send", "x", "--retries", "0"], 0);
    host.wait_for("dead", |_| true);
    assert_eq!(stats(&db, "default")["dead"], 1);
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
}

#[test]
fn a_watching_host_asks_again_for_a_handler_whose_server_was_away() {
    let web = Web::start();
    let (echo, reject) = (bytes_of("echo"), bytes_of("reject"));
    let folder = TempDir::new().unwrap();
    let db = folder.path().join("dqhost.db").display().to_string();
    let here = format!("here={}", guest("echo").display());
    let there = format!("there={}", web.url("/h.wasm", &echo));
    let args = ["--queue", &here, "--queue", &there, "--watch"];
    let host = web.with_home(dqhost(Some(&db), &args));
    let mut host = Host::start_command(with_hangups(&host));
    let told = host.wait_for_start("this queue is not served: ");
    assert_eq!(told["queue"], "there");
    host.wait_for_queue("serving", "here");
    // Other bytes are none either, and then they are right.
    web.put("/h.wasm", &reject);
    host.wait_for_line_with("answered with other bytes");
    web.put("/h.wasm", &echo);
    host.wait_for_queue("serving", "there");
    run(Some(&db), &["send", "x", "--queue", "there"], 0);
    host.wait_for("acked", |line| line["queue"] == "there");
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
}

#[test]
fn a_table_of_the_settings_names_a_server_and_the_digest_of_what_it_has() {
    let web = Web::start();
    let echo = bytes_of("echo");
    web.put("/h.wasm?key=s3cret", &echo);
    let folder = TempDir::new().unwrap();
    let settings = folder.path().join("dqhost.toml");
    let url = format!("https://localhost:{}/h.wasm?key=s3cret", web.server.port);
    let set = |digest: &str| {
        let handler = format!("{{ url = {url:?}, digest = \"sha256:{digest}\" }}");
        let text = format!("db = \"q.db\"\n\n[queue.q]\nhandler = {handler}\n");
        std::fs::write(&settings, text).unwrap();
    };
    let client = |args: &[&str], code| {
        let args = [args, &["--config", text(&settings)]].concat();
        let output = expect(web.client(&args).output().unwrap(), code);
        let told = stdout(&output) + &stderr(&output);
        assert!(!told.contains("s3cret"), "{told}");
        told
    };
    set(&hex(&Sha256::digest(&echo)));
    client(&["send", "hello", "--queue", "q"], 0);
    client(&["up", "--exit-when-empty"], 0);
    let db = folder.path().join("q.db").display().to_string();
    assert_eq!(stats(&db, "q")["totals"]["acked"], 1);
    let shown = client(&["config", "show"], 0);
    assert!(shown.contains("/h.wasm?...#sha256="), "{shown}");
    // What a server has of another digest is not loaded, and what is no digest is told with its place.
    set(&"0".repeat(64));
    let told = client(&["up", "--exit-when-empty"], 4);
    assert!(told.contains("answered with other bytes"), "{told}");
    set("12");
    let told = client(&["config", "check"], 2);
    let place = told.find("dqhost.toml:4:").unwrap();
    assert!(told[place..].contains("64 hexadecimal digits"), "{told}");
}

/// A path as an argument.
fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
