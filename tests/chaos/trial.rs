//! A trial: hosts work, producers send, and everything goes wrong that the plan has.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use dqhost::message::expiry::EXPIRES_AT;
use dqhost::message::{Due, MessageId, NewMessage, QueueName, State};
use dqhost::store::{Page, Store, StoreError};
use tokio::runtime::Runtime;

use crate::check::{Violation, violations};
use crate::history::{History, Limits, Per, Process, What, now_ms};
use crate::hosts::Crew;
use crate::place::{Place, wait_for_cuts};
use crate::plan::{BACKOFF, BACKOFF_MAX, Fault, LEASE, OF_TICK, Plan, Planned, Shape};
use crate::report::Report;
use crate::settings::{Settings, Ticks};
use crate::starved;
use crate::support::{dqhost, stdout};
use crate::witness::{Order, Witness, digest};

/// A producer that is refused, or gets no answer, tries again for so long.
const SEND_LIMIT: Duration = Duration::from_secs(10);

/// The pause after no answer: what was accepted has often been handled by then.
const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// One message in so many is sent again although it was accepted.
const REPEATED: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis,
    File,
}

#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub name: String,
    pub seed: u64,
    pub kind: Kind,
    pub shape: Shape,
    /// The environment of the hosts on top.
    pub envs: Vec<(String, String)>,
    /// How long to wait for the end of everything; the checker's limit is shorter.
    pub end_limit: Duration,
    /// Waits for longer as long as messages end, each once: a busy machine takes its time.
    pub is_patient: bool,
}

struct Trial {
    plan: Plan,
    shape: Shape,
    history: Arc<History>,
    settings: Settings,
    ticks: Arc<Ticks>,
    place: Arc<Place>,
    crew: Arc<Crew>,
    /// Which message of the plan an id is.
    sent: Sent,
    queue: QueueName,
    producers: Arc<dyn Store>,
    onlooker: Arc<dyn Store>,
}

/// Sees when the machine stands still: then what is late is not the fault of those who are tested.
struct Stalls {
    longest_us: Arc<AtomicU64>,
}

impl Stalls {
    fn watch() -> Self {
        let longest_us = Arc::<AtomicU64>::default();
        let seen = Arc::downgrade(&longest_us);
        std::thread::spawn(move || {
            let nap = Duration::from_millis(10);
            loop {
                let begin = Instant::now();
                std::thread::sleep(nap);
                // As the witness does for each run.
                std::thread::spawn(|| {}).join().unwrap();
                let late = begin.elapsed().saturating_sub(nap);
                let Some(longest) = seen.upgrade() else {
                    return;
                };
                longest.fetch_max(u64::try_from(late.as_micros()).unwrap(), SeqCst);
            }
        });
        Self { longest_us }
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.load(SeqCst))
    }
}

type Sent = Arc<Mutex<HashMap<String, usize>>>;

/// Carries a trial out and judges it.
pub(crate) fn carry_out(setup: &Setup) -> Report {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("chaos-{}-{}.jsonl", setup.name, setup.seed));
    let runtime = Runtime::new().unwrap();
    let stalls = Stalls::watch();
    let trial = Arc::new(Trial::new(setup, History::new(&path), &runtime));
    let _end = (trial.crew.end_with_this(), trial.place.end_with_this());
    trial.note_limits();
    trial.crew.start_all();
    starved::watch(&trial.crew, &trial.history);
    trial.crew.wait_until_all_serve();
    let producing = runtime.spawn(Arc::clone(&trial).produce());
    trial.hurt();
    runtime.block_on(producing).unwrap();
    wait_for_cuts(&trial.place);
    trial.history.note(What::Quiet);
    runtime.block_on(trial.end(setup, now_ms()));
    trial.crew.stop_all();
    runtime.block_on(trial.take_stock());
    let events = trial.history.events();
    let mut violations = violations(&events);
    let audit = ["audit", "--queue", trial.queue.as_str()];
    let audit = dqhost(Some(&trial.place.name()), &audit).output().unwrap();
    if !audit.status.success() {
        let words = format!("the audit: {}", stdout(&audit));
        violations.push(Violation::new(words));
    }
    if !trial.place.is_whole() {
        violations.push(Violation::new("the file is damaged"));
    }
    Report {
        stall: stalls.longest(),
        violations,
        deadly: trial.deadly(),
        history: path,
        cuts: trial.place.doors().iter().map(|door| door.cuts()).sum(),
        events,
    }
}

fn args(shape: &Shape, settings: &[PathBuf; 2], witness: &Witness, by: Process) -> Vec<String> {
    let ms = |duration: Duration| format!("{}ms", duration.as_millis());
    let [config, handler] = settings;
    let mut words = format!(
        "--handler {} --no-tui --log-format json --log debug --queue chaos --slots {} --lease {} --drain 1s \
         --backoff {} --backoff-max {} --timeout 20s --allow-http 127.0.0.1:{} \
         --env WEBHOOK_URL={} --config {}",
        handler.display(),
        shape.slots,
        ms(LEASE),
        ms(BACKOFF),
        ms(BACKOFF_MAX),
        witness.port,
        witness.url(by),
        config.display(),
    );
    if let Some(limits) = shape.limits {
        let Limits {
            per,
            rate,
            burst,
            running,
        } = limits;
        let _ = write!(
            words,
            " --rate {rate}/s --burst {burst} --max-running {running}"
        );
        if per == Per::Key {
            words.push_str(" --limit-by header:k");
        }
    }
    if shape.turns {
        words.push_str(" --fair-by header:k");
    }
    words.split_whitespace().map(str::to_owned).collect()
}

/// Failpoints that hold up a host so often before it settles, and meanwhile keep it from renewing the
/// leases, until another host has the messages.
fn late_results(times: usize) -> String {
    let sleep = format!(
        "sleep({})",
        (LEASE + Duration::from_millis(1500)).as_millis()
    );
    let settle = format!("10*off->1*{sleep}->").repeat(times);
    format!(
        "before settle={settle}off;before extend={}*{sleep}->off",
        times * 2
    )
}

impl Trial {
    fn new(setup: &Setup, history: History, runtime: &Runtime) -> Self {
        let (history, plan) = (Arc::new(history), Plan::new(setup.seed, &setup.shape));
        let place = Arc::new(match setup.kind {
            Kind::Redis => Place::redis(setup.shape.hosts),
            Kind::File => Place::file(),
        });
        let [producers, onlooker] = runtime.block_on(place.stores());
        let sent = Sent::default();
        let known: HashMap<usize, Planned> = plan.messages.iter().cloned().enumerate().collect();
        let queue: QueueName = "chaos".parse().unwrap();
        let ticks = Arc::new(Ticks::new(&setup.shape, &queue));
        ticks.note(&history);
        let (ids, noted) = (Arc::clone(&sent), Arc::clone(&ticks));
        let orders = move |id: &str, attempt: u32| -> Order {
            if noted.runs(id) {
                return OF_TICK;
            }
            let index = ids.lock().unwrap().get(id).copied();
            // One that nobody has sent is told of by the checker.
            known[&index.unwrap_or(0)].order(attempt)
        };
        let crew = Arc::<OnceLock<Arc<Crew>>>::default();
        let killed = Arc::clone(&crew);
        let kill = move |by| {
            if let Some(crew) = killed.get() {
                crew.kill_process(by);
            }
        };
        let witness = Witness::start(Arc::clone(&history), Box::new(orders), Box::new(kill));
        let (shape, envs) = (setup.shape, setup.envs.clone());
        let at = Arc::clone(&place);
        let settings = Settings::new(&ticks);
        let paths = [settings.path(), settings.handler()];
        let make = move |by: Process| {
            let mut command = at.command(by, &args(&shape, &paths, &witness, by));
            command.envs(envs.iter().cloned());
            if shape.late_results > 0 {
                command.env("FAILPOINTS", late_results(shape.late_results));
            }
            command
        };
        let hosts = Crew::new(Arc::clone(&history), &shape, Box::new(make));
        let crew = Arc::clone(crew.get_or_init(|| Arc::new(hosts)));
        for (host, door) in place.doors().iter().enumerate() {
            let history = Arc::clone(&history);
            door.when_one_is_cut(move || history.note(What::Cut { host }));
        }
        Self {
            plan,
            shape,
            history,
            settings,
            ticks,
            place,
            crew,
            sent,
            queue,
            producers,
            onlooker,
        }
    }

    fn note_limits(&self) {
        if let Some(limits) = self.shape.limits {
            self.history.note(What::Limits { limits });
        }
        if self.shape.turns {
            let slots = self.shape.slots * self.shape.hosts;
            self.history.note(What::Turns { slots });
        }
    }

    /// Sends what the plan has, each message at its time.
    async fn produce(self: Arc<Self>) {
        let begin = Instant::now();
        let mut sends = tokio::task::JoinSet::new();
        for index in 0..self.plan.messages.len() {
            let left = self.plan.messages[index].at.saturating_sub(begin.elapsed());
            if left > Duration::from_millis(1) {
                tokio::time::sleep(left).await;
            }
            sends.spawn(Arc::clone(&self).send(index));
        }
        sends.join_all().await;
    }

    async fn send(self: Arc<Self>, index: usize) {
        let planned = &self.plan.messages[index];
        let id = MessageId::new();
        self.sent.lock().unwrap().insert(id.to_string(), index);
        let due_ms = now_ms() + u64::try_from(planned.due_in.as_millis()).unwrap();
        self.history.note(What::Sending {
            id: id.to_string(),
            digest: digest(&planned.payload),
            due_ms,
            retries: planned.retries,
        });
        let mut headers = Vec::new();
        if self.shape.limits.is_some() || self.shape.turns {
            let key = planned.key;
            self.history.note(What::Keyed {
                id: id.to_string(),
                key,
            });
            headers.push(("k".to_owned(), key.to_string()));
        }
        if planned.is_expired() {
            self.history.note(What::Expiring { id: id.to_string() });
            headers.push((EXPIRES_AT.to_owned(), "1".to_owned()));
        }
        let message = NewMessage {
            id: id.clone(),
            headers,
            due: match planned.due_in {
                Duration::ZERO => Due::NOW,
                _ => Due::At(due_ms),
            },
            retries: planned.retries,
            dedup_window: Duration::from_hours(1),
            ..NewMessage::new(planned.payload.clone())
        };
        let limit = Instant::now() + SEND_LIMIT;
        while Instant::now() < limit {
            let message = std::slice::from_ref(&message);
            let pause = match self.producers.send(&self.queue, message).await {
                Ok(sent) => {
                    let due_ms = sent[0].due_at_ms.unwrap_or(due_ms);
                    let id = id.to_string();
                    self.history.note(What::Accepted { id, due_ms });
                    if index.is_multiple_of(REPEATED) {
                        tokio::time::sleep(AGAIN_AFTER).await;
                        // As if the answer had been lost. Whether it is answered now is all the same.
                        let _ = self.producers.send(&self.queue, message).await;
                    }
                    return;
                }
                // Nothing was done.
                Err(StoreError::Refused { .. } | StoreError::Unusable { .. }) => {
                    Duration::from_millis(20)
                }
                // It may have been.
                Err(StoreError::Unreachable { .. }) => AGAIN_AFTER,
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn deadly(&self) -> BTreeSet<String> {
        let sent = self.sent.lock().unwrap();
        let deadly = sent
            .iter()
            .filter(|(_, index)| self.plan.messages[**index].is_deadly());
        deadly.map(|(id, _)| id.clone()).collect()
    }

    /// Does what the plan has, each thing at its time.
    fn hurt(&self) {
        let begin = Instant::now();
        let mut stops = Vec::new();
        for (at, fault) in &self.plan.faults {
            std::thread::sleep(at.saturating_sub(begin.elapsed()));
            let name = format!("{fault:?}");
            self.history.note(What::Fault { name });
            // Apart, since these may have to wait for what comes next in the plan.
            let crew = Arc::clone(&self.crew);
            match *fault {
                Fault::Stop(host) => stops.push(std::thread::spawn(move || crew.stop(host))),
                Fault::HangUp(host) => stops.push(std::thread::spawn(move || crew.hang_up(host))),
                fault => self.cause(fault),
            }
        }
        self.place.heal();
        for stop in stops {
            stop.join().unwrap();
        }
        for host in 0..self.crew.len() {
            self.crew.thaw(host);
        }
    }

    fn cause(&self, fault: Fault) {
        let ask = |words: &[&str]| {
            let _: Option<String> = self.place.ask(words);
        };
        match fault {
            Fault::Kill(host) => self.crew.kill(host),
            // See `hurt`.
            Fault::Stop(_) | Fault::HangUp(_) => {}
            Fault::Freeze(host) => self.crew.freeze(host),
            Fault::Thaw(host) => self.crew.thaw(host),
            Fault::Stall(host, stalls) => self.crew.stall(host, stalls),
            Fault::Reload(host) => {
                self.settings.change();
                self.crew.reload(host);
            }
            Fault::Swap(host) => {
                self.settings.swap();
                self.crew.reload(host);
            }
            Fault::KillServer(away) => {
                self.history.note(What::Away { host: None });
                self.place.kill_server(away);
                self.back(None);
            }
            Fault::Cut(host, cut) => {
                if let Some(door) = self.place.door(host) {
                    door.cut(cut);
                }
            }
            Fault::Flush => ask(&["SCRIPT", "FLUSH"]),
            Fault::Full(full) => ask(&["CONFIG", "SET", "maxmemory", if full { "1" } else { "0" }]),
            Fault::ReadOnly(true) => {
                self.history.note(What::Away { host: None });
                ask(&["REPLICAOF", "127.0.0.1", "1"]);
            }
            Fault::ReadOnly(false) => {
                ask(&["REPLICAOF", "NO", "ONE"]);
                self.back(None);
            }
            Fault::Hole(host, begins) => {
                let Some(door) = self.place.door(host) else {
                    return;
                };
                if begins {
                    self.history.note(What::Away { host: Some(host) });
                    door.begin_hole();
                } else {
                    door.end_hole();
                    self.back(Some(host));
                }
            }
            Fault::Delay(host, by) => {
                if let Some(door) = self.place.door(host) {
                    door.delay(by);
                }
            }
            Fault::RemovePayload => self.remove_payload(),
            Fault::Lock(locks) => self.place.lock(locks),
        }
    }

    /// From now on those processes that are awake have to work again: all, or one host's.
    fn back(&self, host: Option<usize>) {
        let can = |by: &Process| {
            let door = self.place.door(by.host);
            host.is_none_or(|host| host == by.host) && !door.is_none_or(|door| door.is_hole())
        };
        let mut processes = self.crew.awake();
        processes.retain(can);
        self.history.note(What::Back {
            processes: processes.clone(),
        });
        for by in processes {
            let history = Arc::clone(&self.history);
            if let Some(door) = self.place.door(by.host) {
                door.when_a_script_is_answered(move || history.note(What::Works { by }));
            }
        }
    }

    fn remove_payload(&self) {
        let key = |name: &str| format!("{{dp:{}}}:{name}", self.queue);
        let id: Option<Option<String>> = self.place.ask(&["ZRANDMEMBER", &key("pending")]);
        let Some(Some(id)) = id else { return };
        self.history.note(What::Removed { id: id.clone() });
        let _: Option<i64> = self.place.ask(&["DEL", &key(&format!("msg:{id}"))]);
    }

    /// Waits until nothing waits and nothing is in flight, and a tick later than `quiet_ms` has run.
    async fn end(&self, setup: &Setup, quiet_ms: u64) {
        let (mut ended, mut since) = (0, Instant::now());
        while since.elapsed() < setup.end_limit {
            if let Ok(counts) = self.onlooker.counts(&self.queue).await {
                let totals = counts.totals;
                if counts.is_drained()
                    && counts.dead == totals.dead
                    && self.ticks.are_sent_until(quiet_ms)
                {
                    return self.history.note(What::Drained);
                }
                let now = totals.acked + totals.dead;
                if setup.is_patient && now > ended && now <= totals.sent {
                    (ended, since) = (now, Instant::now());
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Notes what the store holds in the end.
    async fn take_stock(&self) {
        for state in State::ALL {
            let mut offset = 0;
            loop {
                let page = Page {
                    offset,
                    limit: 1000,
                    payload_max: 0,
                };
                let records = self.onlooker.list(&self.queue, state, page).await.unwrap();
                offset += records.len();
                for record in &records {
                    let id = record.id.to_string();
                    self.history.note(if state == State::Dead {
                        let last = record.last_attempt();
                        What::Dead {
                            id,
                            attempts: record.attempts,
                            class: last.map(|last| last.class.clone()).unwrap_or_default(),
                        }
                    } else {
                        What::Left {
                            id,
                            state: state.as_str().to_owned(),
                        }
                    });
                }
                if records.is_empty() {
                    break;
                }
            }
        }
        let totals = self.onlooker.counts(&self.queue).await.unwrap().totals;
        self.history.note(What::Totals {
            sent: totals.sent,
            acked: totals.acked,
            dead: totals.dead,
        });
    }
}
