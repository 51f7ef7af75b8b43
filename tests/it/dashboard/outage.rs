//! The store goes away and comes back.

use rustix::process::Signal;

use super::tty::Tty;
use crate::support::{RedisServer, guest, run};

#[test]
fn the_screen_says_when_the_store_is_away_and_when_it_is_back() {
    let mut server = RedisServer::start();
    let handler = guest("noop");
    let mut tty = Tty::start(
        &server.url(),
        &["--handler", handler.to_str().unwrap()],
        (120, 30),
    );
    tty.wait_for("> default");
    tty.wait_for("live");
    run(Some(&server.url()), &["send", "x"], 0);
    server.kill();
    tty.wait_for("! figures are");
    tty.keys(":send lost\r");
    tty.wait_until("it is told", |text| {
        text.contains("is not reachable (send)")
    });
    server.restart();
    tty.wait_for("● live");
    tty.keys(":send found\r");
    tty.wait_for("sent ");
    tty.keys("4");
    tty.wait_for("nothing is in flight");
    tty.keys("q");
    tty.end(0);
}

#[test]
fn a_store_that_does_not_answer_is_told_from_one_that_does() {
    let server = RedisServer::start();
    run(Some(&server.url()), &["send", "x", "--in", "1h"], 0);
    let mut tty = Tty::start(&server.url(), &["top"], (120, 30));
    tty.wait_for("> default");
    tty.wait_for("live");
    server.signal(Signal::STOP);
    tty.wait_for("! the store has not answered for");
    server.signal(Signal::CONT);
    tty.wait_for("● live");
    tty.keys("q");
    tty.end(0);
}
