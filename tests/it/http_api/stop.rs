//! How the API ends, and Unix sockets.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Answer, Api, request};
use crate::support::{Host, PATIENCE, dqhost, guest, stats, with_message};

const MESSAGES: &str = "/queues/q/messages";

#[test]
fn a_request_that_has_begun_is_finished_and_a_connection_at_rest_is_closed() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let api = Api::serve(&store, &[]);
    let mut idle = api.connect();
    idle.write_all(&request("GET", "/stats", &[], b"")).unwrap();
    assert_eq!(Answer::read(&mut idle).unwrap().status, 200);
    let mut begun = api.connect();
    let whole = request("POST", MESSAGES, &[("expect", "100-continue")], b"hello");
    let (head, body) = whole.split_at(whole.len() - 5);
    begun.write_all(head).unwrap();
    // It is asked for the body, so it has begun.
    let mut go_on = [0; 25];
    begun.read_exact(&mut go_on).unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100 "));
    api.host.signal(Signal::TERM);
    assert_eq!(idle.read(&mut [0; 10]).unwrap(), 0);
    begun.write_all(body).unwrap();
    assert_eq!(Answer::read(&mut begun).unwrap().status, 201);
    let (status, lines) = api.host.end();
    assert_eq!(status.code(), Some(0));
    assert_eq!(with_message(&lines, "stopped").len(), 1);
    assert_eq!(stats(&store, "q")["ready"], 1);
}

#[test]
fn a_host_that_drains_goes_on_answering_until_it_ends() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let handler = guest("sleeper").display().to_string();
    let args = ["--queue", "q", "--handler", &handler, "--slots", "1"];
    let mut api = Api::beside(&store, &args);
    let id = api.post(MESSAGES, &[], "10000").is(201).id();
    crate::support::eventually("it is in flight", || {
        (stats(&store, "q")["unack"] == 1).then_some(())
    });
    api.host.signal(Signal::TERM);
    api.host.wait_for_start("stopping; ");
    api.post(MESSAGES, &[], "0").is(201);
    api.host.wait_for("acked", |line| line["id"] == id.as_str());
    let (status, _) = api.host.end();
    assert_eq!(status.code(), Some(0));
    assert_eq!(stats(&store, "q")["ready"], 1);
}

#[test]
fn a_store_in_memory_is_one_for_the_host_and_the_api() {
    let handler = guest("noop").display().to_string();
    let mut api = Api::beside(":memory:", &["--queue", "q", "--handler", &handler]);
    let id = api.post(MESSAGES, &[], "x").is(201).id();
    api.host.wait_for("acked", |line| line["id"] == id.as_str());
}

#[test]
fn a_unix_socket_lets_only_this_user_in_and_goes_with_the_program() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let path = folder.path().join("api.sock");
    let address = format!("unix:{}", path.display());
    let mut host = Host::start_command(dqhost(Some(&store), &["serve", "--listen", &address]));
    host.wait_for("listening", |line| line["address"] == address.as_str());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(&request("POST", MESSAGES, &[("host", "any")], b"x"))
        .unwrap();
    assert_eq!(Answer::read(&mut stream).unwrap().status, 201);
    host.signal(Signal::TERM);
    assert_eq!(host.end().0.code(), Some(0));
    assert!(!path.exists());
}
