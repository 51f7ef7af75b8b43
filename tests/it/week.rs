//! A week in little: hosts that are killed, handlers that are swapped, limits, schedules and sends over HTTP, all
//! at once. At the end the counters that a monitor reads are those of what was sent, one for one.
//!
//! `DQHOST_WEEK_MINUTES` is for how long it goes on (`make week MINUTES=60`); without it, for a quarter.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::http_api::{Answer, Api, request};
use crate::support::{Host, PATIENCE, RedisServer, dqhost, eventually, guest};

const HOSTS: usize = 3;

/// How many sends go on side by side.
const SENDERS: usize = 4;

/// A kill, a swap of the handler, a scrape: each so often.
const BETWEEN_KILLS: Duration = Duration::from_secs(4);
const BETWEEN_SWAPS: Duration = Duration::from_secs(3);

/// What becomes of a message, and how often it is sent among ten.
const FATES: [(&str, usize); 3] = [("paid", 7), ("lost", 1), ("processing", 2)];

/// The number of a counter of a queue in a scrape.
fn counted(text: &str, queue: &str, event: &str) -> u64 {
    let series = format!("dqhost_events_total{{queue=\"{queue}\",event=\"{event}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&series));
    line.map_or(0, |number| number.parse().unwrap())
}

struct Week {
    folder: TempDir,
    store: String,
    /// None while a host is being replaced.
    hosts: Vec<Mutex<Option<Api>>>,
    end: Instant,
}

impl Week {
    fn new(store: Option<&RedisServer>, lasts: Duration) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("week.db").display().to_string();
        let week = Self {
            store: store.map_or(file, RedisServer::url),
            hosts: (0..HOSTS).map(|_| Mutex::new(None)).collect(),
            end: Instant::now() + lasts,
            folder,
        };
        week.swap(0);
        let since = jiff::Timestamp::now().to_string();
        fs::write(week.settings(), SETTINGS.replace("SINCE", &since)).unwrap();
        week.start();
        week
    }

    fn start(&self) {
        for host in &self.hosts {
            *host.lock().unwrap() = Some(self.host());
        }
    }

    /// Stops all hosts, and tells how many MiB the first one had, which was never killed.
    fn stop(&self) -> u64 {
        let hosts: Vec<Api> = self
            .hosts
            .iter()
            .map(|host| host.lock().unwrap().take().unwrap())
            .collect();
        let memory = resident(hosts[0].host.pid());
        for api in &hosts {
            api.host.signal(Signal::TERM);
        }
        for api in hosts {
            let (status, _) = api.host.end();
            assert!(status.success());
        }
        memory
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("dqhost.toml")
    }

    fn host(&self) -> Api {
        let settings = self.settings().display().to_string();
        let args = [
            "up",
            "--config",
            &settings,
            "--watch",
            "--listen",
            "127.0.0.1:0",
        ];
        // Again, as a service manager does it: a busy store may be silent for longer than a host waits.
        eventually("a host listens", || {
            let mut host = Host::start_command(dqhost(Some(&self.store), &args));
            host.comes_to("listening").then(|| Api::of(host))
        })
    }

    /// Puts another build of the same handler in place: the number is in a section of its own.
    fn swap(&self, number: u32) {
        let place = |name: &str| self.folder.path().join(name);
        let mut component = fs::read(guest("order-timeout")).unwrap();
        // A custom section: its number, its length, the length of its name, its name, what it holds.
        component.extend([0, 9, 4]);
        component.extend(b"week");
        component.extend(number.to_le_bytes());
        fs::write(place("new.wasm"), component).unwrap();
        fs::rename(place("new.wasm"), place("orders.wasm")).unwrap();
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    /// Asks one of the hosts, or the next one if that is away.
    fn ask(&self, from: usize, request: &[u8]) -> Answer {
        let mut at = from;
        eventually("some host answers", || {
            at += 1;
            let address = self.hosts[at % HOSTS].lock().unwrap().as_ref()?.at.clone();
            let mut stream = std::net::TcpStream::connect(address).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).ok()?;
            std::io::Write::write_all(&mut stream, request).ok()?;
            let answer = Answer::read(&mut stream)?;
            // While it stops, or while its store is busy.
            (answer.status != 503).then_some(answer)
        })
    }

    /// Sends until the end. Returns how many messages of each fate were accepted.
    fn send(&self, sender: usize) -> BTreeMap<&'static str, u64> {
        let fates: Vec<&str> = FATES
            .iter()
            .flat_map(|(fate, share)| std::iter::repeat_n(*fate, *share))
            .collect();
        let mut sent = BTreeMap::new();
        for n in 0.. {
            if !self.goes_on() {
                break;
            }
            let fate = fates[n % fates.len()];
            let body = format!(
                r#"{{"order": "{sender}-{n}", "status": "{fate}", "amount": 1.0, "check_again_ms": 20}}"#
            );
            let (key, tenant) = (format!("{sender}-{n}"), format!("t{}", n % 5));
            // What is retried on purpose ends soon; a kill costs others an attempt each time.
            let retries = if fate == "processing" { "2" } else { "1000" };
            let headers = [
                ("idempotency-key", key.as_str()),
                ("dqhost-header-tenant", &tenant),
                ("dqhost-retries", retries),
                ("dqhost-in", if n % 3 == 0 { "200ms" } else { "0s" }),
            ];
            let path = "/queues/orders/messages";
            let answer = self.ask(sender, &request("POST", path, &headers, body.as_bytes()));
            assert!(matches!(answer.status, 200 | 201), "{answer:?}");
            *sent.entry(fate).or_default() += 1;
        }
        sent
    }

    /// Kills one host after the other, never the first one.
    fn kill(&self) -> usize {
        let mut kills = 0;
        while self.waits(BETWEEN_KILLS) {
            let mut host = self.hosts[1 + kills % (HOSTS - 1)].lock().unwrap();
            let killed = host.take().unwrap();
            killed.host.signal(Signal::KILL);
            killed.host.end();
            *host = Some(self.host());
            kills += 1;
        }
        kills
    }

    /// Swaps the handler, and looks at what the hosts tell: no counter ever falls.
    fn swap_and_scrape(&self) -> usize {
        let (mut swaps, mut before) = (0, 0);
        while self.waits(BETWEEN_SWAPS) {
            swaps += 1;
            self.swap(u32::try_from(swaps).unwrap());
            let text = self.scrape(swaps);
            let sent = counted(&text, "orders", "sent");
            assert!(sent >= before, "{sent} after {before}");
            before = sent;
        }
        swaps
    }

    /// What a host tells a monitor of the store, once that has told of all queues.
    fn scrape(&self, at: usize) -> String {
        eventually("the store answers", || {
            let answer = self.ask(at, &request("GET", "/metrics", &[], b""));
            let text = answer.is(200).body;
            text.contains("\ndqhost_queues_unread 0\n").then_some(text)
        })
    }

    /// Waits until all that was sent has ended, for as long as some of it ends. Returns how many ticks there were.
    fn ends(&self) -> u64 {
        let (mut before, mut since) = (0, Instant::now());
        loop {
            let text = self.scrape(0);
            let [of_orders, of_ticks] = ["orders", "ticks"].map(|queue| {
                let [sent, acked, dead] =
                    ["sent", "acked", "dead"].map(|event| counted(&text, queue, event));
                (sent, acked + dead)
            });
            if of_orders.0 == of_orders.1 && of_ticks.0 == of_ticks.1 {
                return of_ticks.0;
            }
            let ended = of_orders.1 + of_ticks.1;
            if ended > before {
                (before, since) = (ended, Instant::now());
            }
            assert!(
                since.elapsed() < PATIENCE,
                "sent and ended: orders {of_orders:?}, ticks {of_ticks:?}\n{text}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits, unless the end comes first: then false.
    fn waits(&self, pause: Duration) -> bool {
        let left = self.end.saturating_duration_since(Instant::now());
        std::thread::sleep(pause.min(left));
        self.goes_on()
    }
}

/// Between two ticks of the schedule.
const TICK_MS: u64 = 250;

const SETTINGS: &str = r#"
lease = "2s"
slots = 8

[queue.orders]
handler = "orders.wasm"
rate = "400/s"
burst = 40
max-running = 6
limit-by = "header:tenant"

[queue.ticks]
handler = "orders.wasm"
retries = 1000

[[queue.ticks.schedule]]
name = "often"
every = "250ms"
missed = "all"
missed-max = 1000
since = "SINCE"
payload = '{"order": "tick", "status": "unpaid", "amount": 0.0}'
"#;

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(now.unwrap().as_millis()).unwrap()
}

/// The memory of a process, in MiB.
fn resident(pid: rustix::process::Pid) -> u64 {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = fs::read_to_string(Path::new(&path)).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

fn a_week(store: Option<&RedisServer>) {
    let quarter = Duration::from_secs(15);
    let minutes = std::env::var("DQHOST_WEEK_MINUTES").map(|n| n.parse::<u64>().unwrap());
    let began_ms = now_ms();
    let week = Week::new(store, minutes.map_or(quarter, Duration::from_mins));
    let mut sent = BTreeMap::<&str, u64>::new();
    let (kills, swaps) = std::thread::scope(|scope| {
        let week = &week;
        let senders: Vec<_> = (0..SENDERS)
            .map(|n| scope.spawn(move || week.send(n)))
            .collect();
        let kills = scope.spawn(|| week.kill());
        let swaps = scope.spawn(|| week.swap_and_scrape());
        for sender in senders {
            for (fate, count) in sender.join().unwrap() {
                *sent.entry(fate).or_default() += count;
            }
        }
        (kills.join().unwrap(), swaps.join().unwrap())
    });
    let due = (now_ms() - began_ms) / TICK_MS;
    eventually("each tick that is over was sent", || {
        (counted(&week.scrape(0), "ticks", "sent") >= due).then_some(())
    });
    let memory = week.stop();
    let lasted_ms = now_ms() - began_ms;
    // No more ticks, and what is left is done.
    fs::write(week.settings(), SETTINGS.split("[[").next().unwrap()).unwrap();
    week.start();
    let ticks = week.ends();
    let all: u64 = sent.values().sum();
    for at in 0..HOSTS {
        let text = week.scrape(at);
        let of = |event| counted(&text, "orders", event);
        assert_eq!(
            (of("sent"), of("acked"), of("rejected"), of("dead")),
            (
                all,
                sent["paid"],
                sent["lost"],
                sent["lost"] + sent["processing"]
            ),
            "host {at}"
        );
        assert_eq!(counted(&text, "ticks", "acked"), ticks, "host {at}");
    }
    // No tick was sent twice, however many hosts were there.
    assert!(
        (due..=lasted_ms / TICK_MS + 1).contains(&ticks),
        "{ticks} ticks in {lasted_ms} ms"
    );
    println!(
        "{sent:?}, {ticks} ticks, {kills} kills, {swaps} swaps in {} s; the first host has {memory} MiB",
        lasted_ms / 1000
    );
}

#[test]
fn all_that_was_sent_is_counted_once_on_redis() {
    a_week(Some(&RedisServer::start()));
}

#[test]
fn all_that_was_sent_is_counted_once_on_a_file() {
    a_week(None);
}
