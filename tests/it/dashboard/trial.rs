//! Another handler is tried on dead letters: it changes nothing, delays nobody and can be stopped.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use dqhost::control::controller::Controller;
use dqhost::control::{
    Answer, Command, Filter, Letters, LoadHandler, LoadedHandler, LogRing, TRIED_MAX, TrialEnd,
    TrialRequest,
};
use dqhost::dashboard::picture;
use dqhost::message::QueueName;
use dqhost::runtime::{HandlerError, Limits, Permissions, Runtime};
use dqhost::store::Store;
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::fill;
use super::sample::{Sample, theme};
use super::tty::Tty;
use crate::support::{RedisServer, eventually, guest, run, stats, stdout};

/// An order that is paid, one that is not, and no order.
const ORDERS: [&str; 3] = [
    r#"{"order": "A-1", "status": "paid", "amount": 1}"#,
    r#"{"order": "A-2", "status": "processing", "amount": 2}"#,
    "no order",
];

/// Makes dead letters of the queue `q`.
fn bury(store: &str, payloads: &[&str]) {
    for payload in payloads {
        let args = ["send", payload, "--queue", "q", "--retries", "0"];
        run(Some(store), &args, 0);
    }
    let spec = format!("q={}", guest("reject").display());
    let up = ["--queue", &spec, "--exit-when-empty", "--no-tui"];
    run(Some(store), &up, 0);
    assert_eq!(stats(store, "q")["dead"], payloads.len());
}

/// A copy of a handler with a short path.
fn copied(folder: &TempDir, handler: &str) -> String {
    let to = folder.path().join("mended one.wasm");
    std::fs::copy(guest(handler), &to).unwrap();
    to.display().to_string()
}

fn dead(store: &str) -> Vec<Value> {
    let output = run(Some(store), &["dead", "list", "--queue", "q", "--json"], 0);
    let line = |line: &str| serde_json::from_str(line).unwrap();
    stdout(&output).lines().map(line).collect()
}

/// Opens the dead letters of `q` by reason.
fn show_dead(tty: &mut Tty) {
    tty.wait_for("> q");
    tty.keys("3");
    tty.wait_for("all of them");
    tty.wait_for("rejected");
}

fn tried_and_redriven(store: &str) {
    bury(store, &ORDERS);
    let folder = TempDir::new().unwrap();
    let file = copied(&folder, "order-timeout");
    let spec = format!("q={file}");
    let mut tty = Tty::start(store, &["--queue", &spec], (120, 40));
    show_dead(&mut tty);
    let counts = || {
        let stats = stats(store, "q");
        (stats["dead"].clone(), stats["totals"].clone(), dead(store))
    };
    let before = counts();
    // All of them; the name of the file is completed.
    tty.keys("t");
    tty.wait_for("try: ");
    tty.keys(&format!("{}/men\t", folder.path().display()));
    tty.wait_for("mended one.wasm");
    tty.keys("\r");
    tty.wait_for("acks 1 of 3, 1 nacked, 1 rejected");
    tty.wait_for("the payment of order A-2");
    assert_eq!(counts(), before);
    // Then what it acks is put back.
    tty.keys("r");
    let question = tty.wait_for("Put 1 dead letter that mended one.wasm acks back into q");
    assert!(!question.contains("No host of q"), "{question}");
    tty.answer("y");
    tty.wait_for("1 redriven");
    eventually("it is acked", || {
        (stats(store, "q")["totals"]["acked"] == 1).then_some(())
    });
    assert_eq!(stats(store, "q")["dead"], 2);
    tty.wait_for("all of them");
    tty.keys("4");
    tty.wait_for("nothing is in flight");
    tty.keys("q");
    tty.end(0);
}

#[test]
fn a_handler_is_tried_and_what_it_acks_is_redriven_on_a_file() {
    let folder = TempDir::new().unwrap();
    tried_and_redriven(folder.path().join("dqhost.db").to_str().unwrap());
}

#[test]
fn a_handler_is_tried_and_what_it_acks_is_redriven_on_redis() {
    let server = RedisServer::start();
    tried_and_redriven(&server.url());
}

#[test]
fn a_trial_without_a_host_is_stopped_by_a_key_and_says_what_is_no_handler() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    bury(&store, &ORDERS);
    let file = copied(&folder, "spin");
    // Trying changes nothing, so it is allowed to those who only look.
    let mut tty = Tty::start(&store, &["top", "--read-only"], (120, 40));
    show_dead(&mut tty);
    tty.keys(":try all --handler /nowhere.wasm\r");
    tty.wait_for("cannot read the handler /nowhere.wasm");
    tty.keys("t");
    tty.wait_for("try: ");
    // It stands there marked, so that what is typed takes its place.
    tty.keys(&format!("{file}\r"));
    tty.wait_for("mended one.wasm acks 0 of ");
    tty.wait_for(" of 3; S stops it");
    tty.keys("S");
    tty.wait_for("; stopped");
    tty.keys("r");
    tty.wait_for("--read-only");
    // The marked ones alone.
    tty.keys("\x7f\r");
    tty.wait_for("LAST FAILURE");
    tty.wait_for("> 0");
    tty.keys("  t");
    tty.wait_for("try: ");
    std::fs::copy(guest("order-timeout"), &file).unwrap();
    tty.keys("\r");
    tty.wait_until("two were tried", |text| {
        text.contains("mended one.wasm acks") && text.contains(" of 2")
    });
    tty.keys("q");
    tty.end(0);
    assert_eq!(stats(&store, "q")["dead"], 3);
}

#[test]
fn a_handler_that_is_tried_in_a_host_sends_nothing_and_reaches_nothing() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let file = copied(&folder, "fan-out");
    bury(&store, &["elsewhere"]);
    let host = format!("q={}", guest("noop").display());
    let args = ["--queue", &host, "--allow-send", "elsewhere"];
    let mut tty = Tty::start(&store, &args, (120, 40));
    show_dead(&mut tty);
    tty.keys("jt");
    tty.wait_for("try: ");
    tty.keys(&format!("{file}\r"));
    tty.wait_for("acks 1 of 1");
    tty.keys("r");
    tty.wait_for("No host of q runs this handler");
    tty.answer("n");
    tty.keys("q");
    tty.end(0);
    let shown = stdout(&run(Some(&store), &["stats", "--json"], 0));
    assert_eq!(shown.lines().count(), 1, "{shown}");
    assert_eq!(stats(&store, "q")["totals"]["sent"], 1);
}

/// Loads without the cache and the child process of the program.
struct Loads;

impl LoadHandler for Loads {
    fn load(&self, file: &Path, _: &QueueName) -> Result<LoadedHandler, HandlerError> {
        let engine = Runtime::new(1, Limits::default(), Permissions::default(), None)?;
        let file = engine.read(file)?;
        LoadedHandler::load(engine, &file)
    }
}

/// Loads when it is told to.
struct LoadsLater {
    has_begun: UnboundedSender<()>,
    may_end: Mutex<Receiver<()>>,
}

impl LoadHandler for LoadsLater {
    fn load(&self, file: &Path, queue: &QueueName) -> Result<LoadedHandler, HandlerError> {
        self.has_begun.send(()).unwrap();
        self.may_end.lock().unwrap().recv().unwrap();
        Loads.load(file, queue)
    }
}

fn request(number: u64, queue: &QueueName, letters: Letters, file: PathBuf) -> TrialRequest {
    TrialRequest {
        number,
        queue: queue.clone(),
        letters,
        file,
    }
}

async fn dead_letters(store: &dyn Store, queue: &QueueName, number: usize) {
    fill::dead(store, queue, vec!["x".to_owned(); number]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_runs_so_many_and_says_that_there_are_more() {
    let store = SqliteStore::open(&SqliteOptions::memory()).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let queue: QueueName = "q".parse().unwrap();
    dead_letters(&*store, &queue, TRIED_MAX).await;
    dead_letters(&*store, &queue, 1).await;
    let controller = Controller {
        store: Arc::clone(&store),
        queues: vec![queue.clone()],
        host: None,
        read_only: true,
        handlers: Some(Arc::new(Loads)),
    };
    let (mut channels, _handle) = controller.open(Arc::new(LogRing::default()));
    let all = Letters::Matching(Filter::default());
    let command = Command::Try(request(1, &queue, all, guest("noop")));
    channels.commands.send(command).unwrap();
    let notice = channels.notices.recv().await.unwrap();
    assert!(!notice.failed, "{notice:?}");
    let says = format!("acks {TRIED_MAX} of {TRIED_MAX} dead letters; nothing was changed");
    assert!(notice.text.contains(&says), "{notice:?}");
    let ended = |snapshot: &Arc<dqhost::control::Snapshot>| {
        let trial = snapshot.trial.as_ref();
        trial.is_some_and(|trial| trial.end.is_some())
    };
    let snapshot = Arc::clone(&*channels.snapshots.wait_for(ended).await.unwrap());
    let trial = snapshot.trial.as_ref().unwrap();
    assert_eq!(
        (trial.tried.len(), trial.meant),
        (TRIED_MAX, Some(TRIED_MAX + 1))
    );
    assert_eq!(trial.end, Some(TrialEnd::Done));
    assert!(trial.tried.iter().all(|one| one.answer == Answer::Acked));
    assert_eq!(
        store.counts(&queue).await.unwrap().dead,
        TRIED_MAX as u64 + 1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_that_is_stopped_keeps_its_place_until_its_compiler_has_ended() {
    let store = SqliteStore::open(&SqliteOptions::memory()).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let queue: QueueName = "q".parse().unwrap();
    dead_letters(&*store, &queue, 2).await;
    let (has_begun, mut begun) = unbounded_channel();
    let (end, may_end) = channel();
    let controller = Controller {
        store,
        queues: vec![queue.clone()],
        host: None,
        read_only: true,
        handlers: Some(Arc::new(LoadsLater {
            has_begun,
            may_end: Mutex::new(may_end),
        })),
    };
    let (mut channels, _handle) = controller.open(Arc::new(LogRing::default()));
    let commands = channels.commands.clone();
    let ask = |number| {
        let all = Letters::Matching(Filter::default());
        let request = request(number, &queue, all, guest("noop"));
        commands.send(Command::Try(request)).unwrap();
    };
    ask(1);
    begun.recv().await.unwrap();
    commands.send(Command::StopTask).unwrap();
    let notice = channels.notices.recv().await.unwrap();
    assert!(
        notice.text.contains("stops once its handler is compiled"),
        "{notice:?}"
    );
    // Another one is not begun, and nothing else is shown in its place.
    ask(2);
    let notice = channels.notices.recv().await.unwrap();
    assert!(
        notice.failed && notice.text.contains("wait for the end of trying"),
        "{notice:?}"
    );
    let refused = |snapshot: &Arc<dqhost::control::Snapshot>| snapshot.refused_trial.is_some();
    let snapshot = Arc::clone(&*channels.snapshots.wait_for(refused).await.unwrap());
    let (number, why) = snapshot.refused_trial.as_ref().unwrap();
    assert_eq!((*number, &**why), (2, notice.text.as_str()));
    assert_eq!(snapshot.trial.as_ref().unwrap().number, 1);
    assert!(snapshot.task.is_some());
    end.send(()).unwrap();
    let notice = channels.notices.recv().await.unwrap();
    assert!(notice.text.contains("stopped: "), "{notice:?}");
    // Then there is room for it.
    ask(3);
    end.send(()).unwrap();
    let notice = channels.notices.recv().await.unwrap();
    assert!(notice.text.contains("acks 2 of 2"), "{notice:?}");
}

#[test]
fn a_trial_that_was_not_begun_shows_and_redrives_no_other() {
    for size in [(120, 40), (80, 24), (40, 10)] {
        let mut sample = Sample::new(theme(), size);
        let shown = |sample: &mut Sample| picture(&mut sample.state, sample.now).text();
        sample.type_in("3jtx");
        sample.enter();
        assert!(shown(&mut sample).contains("acks"));
        // The next one is about something else, and the store still tells of the first.
        sample.type_in("ty");
        sample.enter();
        let text = shown(&mut sample);
        assert!(
            text.contains("beginning") && !text.contains("acks"),
            "{text}"
        );
        sample.type_in("r");
        assert!(!sample.state.has_question());
        assert_eq!(sample.state.current(), None);
        sample.change(|snapshot| {
            let why = "wait for the end of redriving, or stop it with S";
            snapshot.refused_trial = Some((2, why.into()));
        });
        let text = shown(&mut sample);
        assert!(text.contains("this trial was not begun: wait"), "{text}");
        sample.type_in("r");
        assert!(!sample.state.has_question());
        // What was there before still is, and can be redriven.
        sample.type_in("<");
        assert!(shown(&mut sample).contains("acks"));
        sample.type_in("r");
        assert!(sample.state.has_question());
        // One that another has replaced is told to be gone.
        let mut sample = Sample::new(theme(), size);
        sample.type_in("3jtx");
        sample.enter();
        sample.change(|snapshot| {
            let mut other = (**snapshot.trial.as_ref().unwrap()).clone();
            other.number = 2;
            snapshot.trial = Some(Arc::new(other));
        });
        let text = shown(&mut sample);
        assert!(text.contains("is not kept any more"), "{text}");
    }
}
