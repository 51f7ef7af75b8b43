//! Clients that mean harm, and a host beside the API that goes on handling.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use super::{Answer, Api, request, with_each_store};
use crate::support::{eventually, guest, run, stats};

const MESSAGES: &str = "/queues/q/messages";

/// A host with the API beside it, and its file.
fn host(folder: &TempDir) -> (Api, String) {
    let store = folder.path().join("dqhost.db").display().to_string();
    let handler = guest("noop").display().to_string();
    let api = Api::beside(&store, &["--queue", "q", "--handler", &handler]);
    (api, store)
}

/// The host handles a message that comes another way.
fn handles(api: &mut Api, store: &str) {
    let id = run(Some(store), &["send", "x", "--queue", "q"], 0);
    let id = crate::support::stdout(&id).trim().to_owned();
    api.host.wait_for("acked", |line| line["id"] == id.as_str());
}

/// What the other side says until it closes the connection.
fn rest(mut stream: &TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset is closed as well.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_body_that_ends_too_early_changes_nothing() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        for length in ["content-length: 10", "transfer-encoding: chunked"] {
            let head = format!("POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\n{length}\r\n\r\n");
            let mut stream = api.connect();
            stream
                .write_all(format!("{head}5\r\nhal").as_bytes())
                .unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert!(!rest(&stream).contains(" 201 "));
        }
        assert_eq!(stats(store, "q")["totals"]["sent"], 0);
    });
}

#[test]
fn a_request_with_two_lengths_is_refused_and_what_follows_it_is_never_read() {
    let folder = TempDir::new().unwrap();
    let (mut api, store) = host(&folder);
    let smuggled =
        format!("POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\nx");
    for lengths in [
        "content-length: 1\r\ncontent-length: 2",
        "content-length: 1, 2",
        "content-length: +1",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "content-length: 5\r\ntransfer-encoding: chunked",
        "content-length : 1",
    ] {
        let mut stream = api.connect();
        let head = format!("GET /stats HTTP/1.1\r\nhost: localhost\r\n{lengths}\r\n\r\n");
        stream
            .write_all(format!("{head}0\r\n\r\n{smuggled}").as_bytes())
            .unwrap();
        let said = rest(&stream);
        assert!(said.matches("HTTP/1.1 ").count() <= 1, "{lengths}: {said}");
        assert!(!said.contains(" 201 "), "{lengths}: {said}");
    }
    assert_eq!(stats(&store, "q")["totals"]["sent"], 0);
    handles(&mut api, &store);
}

#[test]
fn heads_that_are_too_large_or_no_http_are_refused() {
    let folder = TempDir::new().unwrap();
    let (mut api, store) = host(&folder);
    let many = "h: x\r\n".repeat(200);
    let long = format!("h: {}\r\n", "x".repeat(1 << 20));
    for (headers, status) in [(many, " 431 "), (long, " 431 ")] {
        let mut stream = api.connect();
        let head = format!("GET /stats HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        // The other side may have stopped reading.
        let _ = stream.write_all(head.as_bytes());
        let said = rest(&stream);
        // One that was cut off while it wrote may not see the answer.
        assert!(said.is_empty() || said.contains(status), "{said}");
    }
    for bytes in [
        b"\x16\x03\x01\x02\x00".as_slice(),
        b"GET /stats\r\n\r\n",
        b"GET /stats HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /stats HTTP/1.1\r\n\r\n",
        b"GET /stats HTTP/1.1\r\nhost: local\x00host\r\n\r\n",
    ] {
        let mut stream = api.connect();
        stream.write_all(bytes).unwrap();
        let _ = stream.shutdown(Shutdown::Write);
        let said = rest(&stream);
        assert!(
            said.is_empty() || said.contains(" 400 "),
            "{bytes:?}: {said}"
        );
    }
    handles(&mut api, &store);
}

#[test]
fn a_head_that_never_ends_and_an_idle_connection_are_closed() {
    let folder = TempDir::new().unwrap();
    let (mut api, store) = host(&folder);
    let silent = api.connect();
    let mut slow = api.connect();
    slow.write_all(b"GET /stats HTTP/1.1\r\nhost: localhost\r\n")
        .unwrap();
    let dripping = slow.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        let mut dripping = dripping;
        // Until the other side has closed it.
        while dripping.write_all(b"h: x\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    let mut idle = api.connect();
    idle.write_all(&request("GET", "/stats", &[], b"")).unwrap();
    assert_eq!(Answer::read(&mut idle).unwrap().status, 200);
    handles(&mut api, &store);
    // Each read ends, since the other side closes.
    for stream in [&silent, &slow, &idle] {
        assert!(!rest(stream).contains(" 200 "));
    }
    drip.join().unwrap();
    handles(&mut api, &store);
}

#[test]
fn two_thousand_open_connections_keep_neither_the_host_nor_a_client_out() {
    let folder = TempDir::new().unwrap();
    let (mut api, store) = host(&folder);
    // The other end of each is in this process.
    let files = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: files
            .maximum
            .map_or(Some(8192), |most| Some(most.min(8192))),
        ..files
    };
    setrlimit(Resource::Nofile, wanted).unwrap();
    let mut open: Vec<TcpStream> = Vec::new();
    for _ in 0..2000 {
        let mut stream = api.connect();
        // Half a head, so that each waits for more.
        let _ = stream.write_all(b"GET /stats HTTP/1.1\r\n");
        open.push(stream);
    }
    handles(&mut api, &store);
    drop(open);
    eventually("a client is let in again", || {
        let mut stream = api.connect();
        stream.write_all(&request("GET", "/stats", &[], b"")).ok()?;
        Answer::read(&mut stream).filter(|answer| answer.status == 200)
    });
    handles(&mut api, &store);
}

#[test]
fn a_client_that_reads_nothing_holds_nothing_up() {
    let folder = TempDir::new().unwrap();
    let (mut api, store) = host(&folder);
    let payload = "x".repeat(200_000);
    let later = [("dqhost-in", "1h")];
    for _ in 0..20 {
        api.post(MESSAGES, &later, &payload).is(201);
    }
    let list = format!("{MESSAGES}?state=pending");
    let mut slow: Vec<TcpStream> = Vec::new();
    // More than the requests that may be under way.
    for _ in 0..150 {
        let mut stream = api.connect();
        stream.write_all(&request("GET", &list, &[], b"")).unwrap();
        slow.push(stream);
    }
    eventually("others are answered", || {
        (api.get(&list).status == 200).then_some(())
    });
    handles(&mut api, &store);
}
