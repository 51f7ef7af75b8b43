//! What comes from outside is full of escape sequences, and none of them reaches the terminal.

use std::io::Write;

use tempfile::TempDir;

use super::tty::Tty;
use crate::support::{RedisServer, dqhost, eventually, expect, feed, guest, stats};

/// Clipboard, question to the terminal, device control, C1 control, direction, width, a bell.
const EVIL: &str = "evil\x1b]52;c;aGk=\x07\x1b[6n\x1bP$q\x1b\\\u{9b}6n\u{202e}rtl\u{2066}\u{200b}\u{feff}\x07\x7f\x08end";

/// True for what the program itself may send: no question, no clipboard, no title, no C1.
fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for bad in [
        "\x1b]", "\x1bP", "\x1b[6n", "\u{9b}", "\u{202e}", "\u{2066}", "\u{200b}", "\u{feff}",
        "\x07", "\x7f", "\x08",
    ] {
        assert!(!text.contains(bad), "{bad:?} was sent to the terminal");
    }
}

#[test]
fn nothing_from_outside_is_obeyed_by_the_terminal() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let file = folder.path().join("payload");
    std::fs::File::create(&file)
        .unwrap()
        .write_all(EVIL.as_bytes())
        .unwrap();
    let handler = guest("trap");
    let mut tty = Tty::start(
        &store,
        &["--handler", handler.to_str().unwrap(), "--log", "debug"],
        (120, 40),
    );
    tty.wait_for("> default");
    // As a payload and a header; the handler prints it, and traps with it.
    let send = |header: &str, file: &str| {
        let args = [
            "send",
            "--retries",
            "0",
            "--max-payload",
            "2000000",
            "--header",
            header,
            file,
        ];
        let command = dqhost(Some(&store), &args);
        expect(feed(command, b""), 0);
    };
    send(&format!("k={EVIL}"), &format!("@{}", file.display()));
    let long = format!("{}{}", EVIL.repeat(20), "x".repeat(1 << 20));
    std::fs::write(&file, long).unwrap();
    send("a=b", &format!("@{}", file.display()));
    eventually("both are dead", || {
        (stats(&store, "default")["totals"]["dead"] == 2).then_some(())
    });
    look_at_all_of_it(&mut tty);
    tty.keys("q");
    let bytes = tty.bytes();
    tty.end(0);
    check(&bytes);
}

/// A wide list shows a part of the message beside it, so that alone is not the open message.
fn wait_for_the_message(tty: &mut Tty) {
    tty.wait_until("the message is open", |text| {
        text.contains("attempts") && !text.contains("LAST FAILURE")
    });
}

/// Every screen that shows what a message, a handler or a person has brought.
fn look_at_all_of_it(tty: &mut Tty) {
    tty.keys("3");
    tty.wait_for("all of them");
    tty.wait_for("evil\\u{");
    tty.keys("\r");
    tty.wait_for("LAST FAILURE");
    tty.keys("/evil\r");
    tty.wait_for("/evil");
    tty.wait_for("> 0");
    for line in ["", "j"] {
        tty.keys(line);
        tty.keys("\r");
        wait_for_the_message(tty);
        for _ in 0..3 {
            tty.keys("v");
            tty.wait_for("payload ");
        }
        tty.keys("\x7f");
        tty.wait_for("LAST FAILURE");
    }
    tty.keys("\r");
    wait_for_the_message(tty);
    tty.keys("e");
    tty.wait_for("^S sends it");
    tty.keys("\x1b");
    tty.wait_until("the editor is left", |text| !text.contains("^S sends it"));
    tty.keys("6");
    tty.wait_for("dqhost.log");
    tty.keys(":send \x1b[200~");
    tty.keys(EVIL.split('\x1b').next().unwrap());
    tty.keys("\x1b[201~");
    tty.wait_for(":send evil");
    tty.keys("\x1b");
    tty.wait_until("the prompt is left", |text| !text.contains(":send"));
}

#[test]
fn ids_and_queue_names_of_others_are_harmless_too() {
    let server = RedisServer::start();
    let id = format!("id{EVIL}");
    let key = format!("{{dp:default}}:msg:{id}");
    server.command::<String>(&["SET", &key, "x"]);
    server.command::<u32>(&["ZADD", "{dp:default}:pending", "99999999999", &id]);
    server.command::<u32>(&["SADD", "dqhost:queues", "default", &format!("q{EVIL}")]);
    let mut tty = Tty::start(&server.url(), &["top"], (100, 30));
    tty.wait_for("> default");
    tty.keys("2");
    tty.wait_for("idevil\\u");
    tty.keys("\r");
    tty.wait_for("state     pending");
    tty.keys("C");
    tty.wait_for("sure?");
    tty.keys("n");
    tty.wait_until("the question is left", |text| !text.contains("sure?"));
    tty.keys("q");
    let bytes = tty.bytes();
    tty.end(0);
    check(&bytes);
}
