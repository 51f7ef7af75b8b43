//! What the handbook shows of the dashboard, as one walk with the real program: from a message that dies to a
//! terminal that is given back. `docs/dashboard.cast` is a recording of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dqhost::control::UNDO_TIME;
use dqhost::message::{Due, MessageId, NewMessage, QueueName};
use dqhost::store::Store;
use dqhost::store::redis::{RedisOptions, RedisStore};
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use rustix::process::Signal;
use tempfile::TempDir;

use super::tty::{Recording, Tty};
use super::{cast, fill, film};
use crate::support::{RedisServer, eventually, guest, run, stats, stdout};

const SIZE: (u16, u16) = (120, 36);
const QUEUE: &str = "orders";

/// Messages among which one is found, unless `DQHOST_WALK_MESSAGES` has another number.
const MANY: usize = 200_000;

fn many() -> usize {
    let wanted = std::env::var("DQHOST_WALK_MESSAGES");
    wanted.map_or(MANY, |wanted| wanted.parse().unwrap())
}

/// Back, as Esc is; an Esc would make an Alt of the key that follows at once.
const BACK: &str = "\x7f";

fn total(store: &str, name: &str) -> u64 {
    stats(store, QUEUE)["totals"][name].as_u64().unwrap()
}

/// All messages that wait for their time, as they are told.
fn pending(store: &str) -> String {
    let args = ["list", "pending", "--queue", QUEUE, "--json"];
    stdout(&run(Some(store), &args, 0))
}

/// The handler of the host, and the one that takes its place.
struct Handlers {
    folder: TempDir,
}

impl Handlers {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::copy(guest("order-timeout"), folder.path().join("orders.wasm")).unwrap();
        fs::copy(guest("echo"), folder.path().join("fixed.wasm")).unwrap();
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn deploy(&self) {
        let [fixed, served] = ["fixed.wasm", "orders.wasm"].map(|name| self.path().join(name));
        fs::rename(fixed, served).unwrap();
    }
}

/// The whole walk. With `many`, one message is found among so many.
fn walk(store: &str, many: Option<usize>) -> Recording {
    let handlers = Handlers::new();
    let spec = format!("{QUEUE}={}/orders.wasm", handlers.path().display());
    let mut tty = Tty::start(store, &["--queue", &spec], SIZE);
    let recording = tty.recording();
    tty.wait_for("> orders");
    tty.wait_for("live");
    assert!(is_taken(&tty));
    tty.note_step();
    see_one_die(store, &mut tty);
    try_another_handler(store, &handlers, &mut tty);
    redrive(store, &handlers, &mut tty);
    cancel_and_undo(store, &mut tty);
    if let Some(many) = many {
        find_among(many, store, &mut tty);
    }
    resize(&mut tty);
    use_the_mouse(&mut tty);
    tty.keys("q");
    let left = tty.end(0);
    assert!(left.contains("the log is in"), "{left}");
    recording
}

/// True while all that the program changes of a terminal is changed.
fn is_taken(tty: &Tty) -> bool {
    tty.on_screen(|screen| {
        let has_mouse = screen.mouse_protocol_mode() == vt100::MouseProtocolMode::PressRelease;
        has_mouse && screen.alternate_screen() && screen.bracketed_paste() && screen.hide_cursor()
    })
}

/// Sends a message from the prompt, which is shown then.
fn send(tty: &mut Tty, line: &str, says: &str) {
    tty.keys("s");
    tty.wait_for(":send");
    tty.keys(line);
    tty.wait_for(line);
    tty.note_step();
    tty.keys("\r");
    tty.wait_until("the answer, and the message", |text| {
        text.contains("sent ") && text.contains(says) && text.contains("message ")
    });
    tty.note_step();
}

fn see_one_die(store: &str, tty: &mut Tty) {
    let refunded = r#"{"order":"A-1","status":"refunded","amount":20}"#;
    send(tty, refunded, "due now");
    tty.wait_for("state     dead");
    tty.wait_for("has the unknown status");
    tty.note_step();
    assert_eq!(stats(store, QUEUE)["dead"], 1);
    tty.keys("1");
    tty.wait_for("▶ DEAD 1 ");
    tty.note_step();
    tty.keys("3");
    tty.wait_for("has the unknown status");
    tty.note_step();
    tty.keys("j\r");
    tty.wait_for("LAST FAILURE");
    tty.wait_for("> 0");
    tty.note_step();
    tty.keys("\r");
    tty.wait_for("attempts, latest first");
    tty.wait_for("\"refunded\"");
    tty.note_step();
}

fn try_another_handler(store: &str, handlers: &Handlers, tty: &mut Tty) {
    tty.keys("t");
    tty.wait_for("try: ");
    // Tab completes it.
    tty.keys(&format!("{}/fix\t", handlers.path().display()));
    tty.wait_for("/fixed.wasm");
    tty.note_step();
    tty.keys("\r");
    tty.wait_for("fixed.wasm acks 1 of 1");
    tty.note_step();
    assert_eq!(
        (stats(store, QUEUE)["dead"].as_u64(), total(store, "acked")),
        (Some(1), 0)
    );
    // The host has the old one, and that is told.
    tty.keys("r");
    tty.wait_for("No host of orders runs this handler");
    tty.note_step();
    tty.answer("n");
    assert_eq!(total(store, "redriven"), 0);
}

fn redrive(store: &str, handlers: &Handlers, tty: &mut Tty) {
    handlers.deploy();
    tty.signal(Signal::HUP);
    tty.keys("6");
    tty.wait_for("the handler was replaced");
    tty.note_step();
    tty.keys("<");
    tty.wait_for("fixed.wasm acks 1 of 1");
    tty.keys("r");
    tty.wait_for("Put 1 dead letter that fixed.wasm acks back into orders");
    tty.note_step();
    tty.answer("y");
    tty.wait_for("1 redriven");
    tty.note_step();
    eventually("it is acked", || (total(store, "acked") == 1).then_some(()));
    assert_eq!(stats(store, QUEUE)["dead"], 0);
    tty.keys("5");
    let past = tty.wait_for("2 ended, 50.0% acked");
    let ends = ["acked", "died"].map(|end| {
        let is_one = |line: &&str| line.contains(&format!(" {end} "));
        past.lines().any(|line| is_one(&line))
    });
    assert_eq!(ends, [true, true], "{past}");
    tty.note_step();
}

fn cancel_and_undo(store: &str, tty: &mut Tty) {
    let later = r#"{"order":"A-2","status":"paid","amount":5} +1h"#;
    loop {
        send(tty, later, "due in ");
        tty.wait_for("state     pending");
        let before = pending(store);
        assert!(before.contains("A-2"), "{before}");
        // Another key first: the message has opened by itself, and a change at once may be meant for what was
        // there before.
        tty.keys("kC");
        tty.wait_for("u undoes it");
        tty.note_step();
        let begin = Instant::now();
        tty.answer("y");
        tty.wait_for("1 message cancelled");
        assert_eq!(pending(store), "");
        tty.note_step();
        tty.keys("u");
        let text = tty.wait_until("it is undone, or too late for that", |text| {
            text.contains("1 of 1 back in orders") || text.contains("nothing to undo")
        });
        if text.contains("nothing to undo") {
            // The machine stood still.
            assert!(begin.elapsed() > UNDO_TIME, "{text}");
            continue;
        }
        tty.wait_for("state     pending");
        assert_eq!(pending(store), before);
        tty.note_step();
        return;
    }
}

/// Fills the queue with so many orders, few of which fall due later than that one. Returns its id.
async fn fill_with(many: usize, number: usize, store: &str) -> MessageId {
    let queue: QueueName = QUEUE.parse().unwrap();
    let store: Arc<dyn Store> = if store.contains("://") {
        Arc::new(RedisStore::open(&RedisOptions::new(store)).await.unwrap())
    } else {
        Arc::new(
            SqliteStore::open(&SqliteOptions::file(store))
                .await
                .unwrap(),
        )
    };
    let order = |n: usize| NewMessage {
        due: Due::In(Duration::from_hours(24) + Duration::from_millis(n as u64)),
        ..NewMessage::new(format!(r#"{{"order":"B-{n}","status":"paid"}}"#))
    };
    let the_one = order(number);
    let id = the_one.id.clone();
    store.send(&queue, &[the_one]).await.unwrap();
    let others = (0..many).filter(|n| *n != number).map(order);
    fill::waiting(&*store, &queue, others).await;
    id
}

fn find_among(many: usize, store: &str, tty: &mut Tty) {
    let number = many - many / 1000;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let id = runtime.block_on(fill_with(many, number, store));
    assert_eq!(stats(store, QUEUE)["pending"], many + 1);
    tty.keys("2");
    let depth = dqhost::text::short_number(many as u64 + 1);
    tty.wait_for(&format!("[pending {depth}]"));
    tty.keys(&format!("/B-{number}\r"));
    let order = format!("\"B-{number}\"");
    let found = tty.wait_until("all were looked at", |text| {
        text.contains(&order) && !text.contains("goes on")
    });
    let rows = found
        .lines()
        .filter(|line| line.contains(r#"{"order":"B-"#));
    assert_eq!(rows.count(), 1, "{found}");
    tty.keys("\r");
    tty.wait_for("state     pending");
    tty.wait_for(&format!("message {id}"));
    tty.keys(BACK);
    tty.wait_for(&format!("/B-{number}"));
    tty.keys(BACK);
    tty.wait_until("all of them are listed", |text| {
        text.contains("A-2") && !text.contains(&format!("/B-{number}"))
    });
}

/// True when a frame fills a screen of so many columns and rows. A part of one for another size may be there
/// before it.
fn fills(text: &str, (columns, rows): (usize, usize)) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else {
        return false;
    };
    let widest = lines.iter().map(|line| line.chars().count()).max();
    let is_whole =
        first.starts_with("dqhost ") && first.contains("5 History") && last.contains("q quit");
    is_whole && lines.len() == rows && widest == Some(columns)
}

fn resize(tty: &mut Tty) {
    tty.keys("1");
    tty.wait_for("[1 Overview");
    for (columns, rows) in [(132, 43), (100, 30)] {
        tty.resize(columns, rows);
        let size = (columns.into(), rows.into());
        tty.wait_until("a frame of this size", |text| fills(text, size));
        tty.note_step();
    }
}

/// The row of the selected line.
fn selected(text: &str) -> Option<usize> {
    let mut lines = text.lines();
    lines.position(|line| line.trim_start_matches(['│', ' ']).starts_with('>'))
}

fn use_the_mouse(tty: &mut Tty) {
    // A click on a tab. Columns and rows count from 1.
    let text = tty.text();
    let tabs = text.lines().next().unwrap();
    let before = &tabs[..tabs.find("5 History").unwrap()];
    let column = before.chars().count() + 1;
    tty.keys(&format!("\x1b[<0;{column};1M\x1b[<0;{column};1m"));
    let text = tty.wait_until("the history with its two lines", |text| {
        text.contains("[5 History]") && text.contains("2 ended") && selected(text).is_some()
    });
    tty.note_step();
    // The wheel, down and up again.
    let row = selected(&text).unwrap();
    for (wheel, to) in [(65, row + 1), (64, row)] {
        tty.keys(&format!("\x1b[<{wheel};10;{}M", row + 1));
        tty.wait_until("the other line is selected", |text| {
            selected(text) == Some(to)
        });
        tty.note_step();
    }
}

#[test]
fn an_operator_goes_all_the_way_on_a_file() {
    let folder = TempDir::new().unwrap();
    walk(
        folder.path().join("dqhost.db").to_str().unwrap(),
        Some(many()),
    );
}

#[test]
fn an_operator_goes_all_the_way_on_redis() {
    let server = RedisServer::start();
    walk(&server.url(), Some(many()));
}

/// `DQHOST_UPDATE_PICTURE=1` (`make picture`) records the walk anew.
#[test]
fn the_recording_of_the_docs_is_this_walk() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let path = docs.join("dashboard.cast");
    if std::env::var_os("DQHOST_UPDATE_PICTURE").is_some() {
        let folder = TempDir::new().unwrap();
        let recording = walk(folder.path().join("dqhost.db").to_str().unwrap(), None);
        fs::write(&path, cast::of(&recording, SIZE)).unwrap();
    }
    let kept =
        fs::read_to_string(&path).expect("docs/dashboard.cast is missing: run `make picture`");
    cast::check(
        &kept,
        &[
            "▶ DEAD 1 ",
            "attempts, latest first",
            "fixed.wasm acks 1 of 1",
            "the handler was replaced",
            "1 redriven",
            "2 ended, 50.0% acked",
            "1 message cancelled",
            "1 of 1 back in orders",
        ],
    );
    let film = film::of(&kept);
    let path = docs.join("dashboard-walk.svg");
    if std::env::var_os("DQHOST_UPDATE_PICTURE").is_some() {
        fs::write(&path, &film).unwrap();
    }
    let is_its_film = fs::read_to_string(&path).unwrap_or_default() == film;
    assert!(
        is_its_film,
        "docs/dashboard-walk.svg is of another recording: run `make picture`"
    );
    let page = fs::read_to_string(docs.join("dashboard.md")).unwrap();
    for name in ["dashboard.cast", "dashboard-walk.svg"] {
        assert!(page.contains(&format!("({name})")), "no page names {name}");
    }
}
