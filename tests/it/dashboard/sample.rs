//! A state of things that has something of everything, the same in every run.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use dqhost::control::{
    Answer, Counts, DueAhead, DueSpan, End, Ended, FailedAt, FailedSample, Filter, Group, History,
    HostInfo, InFlightDelivery, Letters, Line, LogLevel, LogRing, Overview, OwnHost, Quantiles,
    Query, QueryResult, QueueReport, QueueView, Searched, SeenHost, Snapshot, Stage, Summary,
    Totals, Trend, Trial, TrialEnd, TriedLetter,
};
use dqhost::dashboard::update::{Effect, Event};
use dqhost::dashboard::{CommandParser, Fact, Named, Settings, State, Theme, screens};
use dqhost::message::{Attempt, HistoryEntry, MessageId, QueueName, Record, State as In};

/// The store's clock, unix milliseconds.
pub(crate) const NOW_MS: u64 = 1_795_000_000_000;

/// What does nothing with what is typed but say it.
pub(crate) struct Echo;

impl CommandParser for Echo {
    fn parse(&self, line: &str, _: &QueueName, _: &[MessageId]) -> Result<Line, String> {
        match line {
            "help" => Ok(Line::Help),
            "get x" => Ok(Line::Open("x".into())),
            other => Err(format!(
                "{other:?} is not understood: use what this prompt knows"
            )),
        }
    }

    fn names(&self, before: &str) -> Option<Named> {
        match before.split_once(' ')?.0 {
            "queue" => Some(Named::Queue),
            "cancel" => Some(Named::Message),
            _ => None,
        }
    }

    fn complete(&self, before: &str) -> Vec<String> {
        let known = ["reschedule", "resume"];
        let word = before.rsplit(' ').next().unwrap_or_default();
        known
            .iter()
            .filter(|k| k.starts_with(word))
            .map(|&k| k.to_owned())
            .collect()
    }
}

pub(crate) fn theme() -> Theme {
    Theme {
        light: false,
        no_color: false,
        ascii: false,
    }
}

fn id(number: u32) -> MessageId {
    format!("019a2b3c-0000-7000-8000-{number:012}")
        .as_str()
        .into()
}

fn attempt(number: u32, reason: &str) -> HistoryEntry {
    HistoryEntry::Attempt(Attempt {
        attempt: number,
        at_ms: NOW_MS - 60_000 + u64::from(number) * 5_000,
        class: "nacked".to_owned(),
        reason: reason.to_owned(),
        duration_ms: Some(12),
        host: "5a6b7c8d-host".to_owned(),
        handler: "17074e1bab856d1dd2ce812d".to_owned(),
        log: "asking the bank\nit says no\n".to_owned(),
    })
}

fn record(number: u32, state: In, history: Vec<HistoryEntry>) -> Record {
    let failed = u32::try_from(history.len()).unwrap();
    Record {
        id: id(number),
        state,
        at_ms: match state {
            In::Dead => Some(NOW_MS - u64::from(number) * 61_000),
            In::Ready | In::Retry => None,
            _ => Some(NOW_MS + u64::from(number) * 1_500),
        },
        attempts: failed,
        retries_left: 3 - failed.min(3),
        headers: vec![("tenant".to_owned(), "acme".to_owned())],
        history,
        payload: Some(
            format!("{{\"order\":\"A-{number}\",\"total\":{}}}", number * 7).into_bytes(),
        ),
    }
}

fn queue(name: &str, at: Instant, counts: Counts, report: Option<QueueReport>) -> QueueView {
    QueueView {
        name: name.parse().unwrap(),
        read_at: at,
        overview: Overview {
            limited: 0,
            counts,
            paused: name == "mails",
            now_ms: NOW_MS,
            next_due_ms: (counts.pending > 0).then_some(NOW_MS + 1_240),
            oldest_ready_ms: (counts.ready > 0).then_some(NOW_MS - 340),
            failed: FailedSample {
                partial: false,
                backing_off: counts.pending.min(120),
                by_failed: if counts.pending == 0 {
                    Vec::new()
                } else {
                    [(1, 96, 0), (2, 20, 0), (3, 7, 7)]
                        .map(|(failed, count, last)| FailedAt {
                            failed,
                            count,
                            last,
                        })
                        .to_vec()
                },
            },
        },
        hosts: vec![SeenHost {
            info: HostInfo {
                id: "5a6b7c8d-1111-4222-8333-444455556666".to_owned(),
                version: "0.1.0".to_owned(),
                handler: "17074e1bab856d1dd2ce812d".to_owned(),
                slots: 16,
                in_flight: 3,
            },
            seen_ms_ago: 1_200,
        }],
        report,
    }
}

fn totals(second: u64) -> Totals {
    Totals {
        sent: second * 120 + second * second,
        acked: second * 110 + second * second / 2,
        nacked: second * 2,
        ..Totals::default()
    }
}

/// How things stand at a moment, so many seconds after the start.
fn snapshot(at: Instant, second: u64) -> Snapshot {
    let ms = Duration::from_millis;
    let report = QueueReport {
        queue: "orders".parse().unwrap(),
        handler: "17074e1bab856d1dd2ce812d".to_owned(),
        refusal: None,
        running: 3,
        slots: None,
        took: Quantiles {
            count: 900,
            p50: Duration::from_micros(84),
            p99: ms(12),
        },
        late: Quantiles {
            count: 900,
            p50: Duration::from_micros(1_900),
            p99: ms(31),
        },
    };
    let orders = Counts {
        pending: 1_204_120,
        ready: 12,
        unack: 3,
        retry: 5,
        dead: 412,
        moving: 0,
        totals: totals(second),
    };
    let mails = Counts {
        ready: 40,
        dead: 1,
        ..Counts::default()
    };
    let reports = Counts {
        pending: 24,
        totals: Totals {
            sent: 1_350 + second / 20,
            acked: 1_326 + second / 20,
            ..Totals::default()
        },
        ..Counts::default()
    };
    let in_flight = |number: u32, secs: u64| InFlightDelivery {
        queue: "orders".parse().unwrap(),
        id: id(number),
        attempt: number,
        attempts_max: 4,
        since: at.checked_sub(Duration::from_secs(secs)).unwrap(),
        lease_end: at + Duration::from_secs(15 - secs),
        finished: number == 3,
    };
    Snapshot {
        read_at: Some(at),
        queues: vec![
            queue("orders", at, orders, Some(report)),
            queue("mails", at, mails, None),
            queue("reports", at, reports, None),
        ],
        host: Some(OwnHost {
            id: "5a6b7c8d-1111-4222-8333-444455556666".to_owned(),
            slots: 16,
            busy: 3,
            stage: Stage::Run,
            drained_by: None,
            summary: Summary::default(),
        }),
        in_flight: vec![in_flight(1, 9), in_flight(2, 4), in_flight(3, 1)],
        trial: Some(Arc::clone(TRIAL.get_or_init(|| Arc::new(trial())))),
        ..Snapshot::empty("redis://redis.example:6379/0".to_owned())
    }
}

static TRIAL: OnceLock<Arc<Trial>> = OnceLock::new();

/// Another handler, which acks two of three.
fn trial() -> Trial {
    let one = |number: u32| {
        let answer = match number % 3 {
            0 => Answer::Failed("rejected", "no order has this number".to_owned()),
            _ => Answer::Acked,
        };
        let last = attempt(4, "HTTP 503");
        TriedLetter {
            id: id(number),
            record: Some(Arc::new(record(number, In::Dead, vec![last]))),
            answer,
            log: "asking another bank\n".to_owned(),
        }
    };
    Trial {
        number: 1,
        letters: Letters::Matching(Filter::default()),
        queue: "orders".parse().unwrap(),
        file: "/srv/new/orders.wasm".to_owned(),
        digest: Some("fe".repeat(32)),
        meant: Some(5120),
        tried: (1..=1000).map(one).collect(),
        end: Some(TrialEnd::Done),
    }
}

/// A dashboard in use, and the moment at which it is looked at.
pub(crate) struct Sample {
    pub state: State,
    pub now: Instant,
    second: u64,
}

impl Sample {
    pub(crate) fn new(theme: Theme, size: (u16, u16)) -> Self {
        let start = Instant::now() + Duration::from_hours(1);
        let logs = Arc::new(LogRing::default());
        logs.set_file("/home/me/.local/state/dqhost/dqhost.log");
        let id = "id=019a2b3c-0000-7000-8000-000000000099";
        for (level, is_guest, text) in [
            (
                LogLevel::Info,
                false,
                format!(
                    "2026-11-21T11:22:19.323122Z  INFO acked queue=orders {id} attempt=1 took=84µs"
                ),
            ),
            (
                LogLevel::Info,
                true,
                format!("2026-11-21T11:22:20.101000Z  INFO queue=orders {id} asking the bank"),
            ),
            (
                LogLevel::Warn,
                false,
                format!("2026-11-21T11:22:20.192332Z  WARN dead queue=orders {id} class=rejected"),
            ),
            (
                LogLevel::Error,
                false,
                "2026-11-21T11:22:21.000000Z ERROR trying again until the store answers".to_owned(),
            ),
        ] {
            logs.add(level, is_guest, &text);
        }
        let settings = Settings {
            facts: facts(),
            ..Settings::of(theme)
        };
        let first = Arc::new(snapshot(start, 0));
        let mut sample = Self {
            state: State::new(screens::TABS[0], settings, first, logs),
            now: start,
            second: 0,
        };
        sample.event(Event::Resize(size.0, size.1));
        for _ in 0..70 {
            sample.second += 1;
            sample.now += Duration::from_secs(1);
            sample.answer();
        }
        sample
    }

    /// Takes an event in, and what it asks the store for.
    pub(crate) fn event(&mut self, event: Event) -> Vec<Effect> {
        let effects = self.state.update(event, &Echo, self.now);
        if effects
            .iter()
            .any(|effect| matches!(effect, Effect::Command(dqhost::control::Command::Query(_))))
        {
            // How things stand stays as the test has made it.
            let mut next = (*self.state.snapshot).clone();
            next.result = seen(&self.state.query);
            let event = Event::Snapshot(Arc::new(next));
            self.state.update(event, &Echo, self.now);
        }
        effects
    }

    pub(crate) fn press(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Vec<Effect> {
        self.event(Event::Key(KeyEvent::new(code, modifiers)))
    }

    pub(crate) fn type_in(&mut self, text: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        for c in text.chars() {
            effects = self.press(KeyCode::Char(c), KeyModifiers::NONE);
        }
        effects
    }

    pub(crate) fn enter(&mut self) -> Vec<Effect> {
        self.press(KeyCode::Enter, KeyModifiers::NONE)
    }

    /// The same snapshot with a change.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Snapshot)) {
        let mut next = (*self.state.snapshot).clone();
        change(&mut next);
        self.event(Event::Snapshot(Arc::new(next)));
    }

    /// The next snapshot, with what the screen looks at.
    pub(crate) fn answer(&mut self) {
        let mut next = snapshot(self.now, self.second);
        next.result = seen(&self.state.query);
        self.state
            .update(Event::Snapshot(Arc::new(next)), &Echo, self.now);
    }
}

/// Something in most spans, and one that is higher than the others.
fn due_ahead(spans: usize) -> DueAhead {
    let span = |at: usize| {
        let count = [40, 130, 95, 30, 12, 0, 22][at % 7] * if at == 17 { 9 } else { 1 };
        DueSpan {
            count,
            failed: if at < 4 { count / 5 } else { 0 },
            is_more: false,
        }
    };
    DueAhead {
        from_ms: NOW_MS,
        spans: (0..spans).map(span).collect(),
        partial: false,
    }
}

/// Dead letters by reason.
fn groups() -> Vec<Group> {
    let group = |reason: &str, text: Option<&str>, count: u32, minutes: u64| {
        let mut trend = Trend::default();
        let at = |n: u64| NOW_MS - (minutes + n * n / 20) * 60_000;
        for n in 0..u64::from(count) {
            trend.add(at(n % 60));
        }
        let last = attempt(4, "HTTP 503");
        Group {
            reason: reason.to_owned(),
            text: text.map(str::to_owned),
            count: count.into(),
            first_ms: at(u64::from(count).min(60) - 1),
            latest_ms: at(0),
            trend,
            example: Some(Arc::new(record(17, In::Dead, vec![last]))),
        }
    };
    vec![
        group("nacked: HTTP 503", Some("nacked: HTTP 503"), 380, 2),
        group(
            "rejected: order # has the status \"…\", eaten by the dog",
            None,
            30,
            95,
        ),
        group("timed-out: no verdict within #s", None, 2, 4000),
    ]
}

/// What the program runs with.
fn facts() -> Arc<[Fact]> {
    let value = |name: &str, value: &str, origin: &str| Fact::Value {
        name: name.to_owned(),
        value: value.to_owned(),
        origin: origin.to_owned(),
    };
    Arc::new([
        Fact::Heading("Of the whole host".to_owned()),
        value("ascii", "false", "default"),
        value("env", "{ API = \"***\" }", "dqhost.toml:12"),
        value("lease", "\"30s\"", "--lease"),
        value("no-mouse", "false", "default"),
        value("redis", "\"redis://***@redis.example\"", "REDIS_URL"),
        value("slots", "16", "dqhost.toml:3"),
        value("theme", "\"auto\"", "DQHOST_THEME"),
        Fact::Heading("[queue.orders]".to_owned()),
        value("handler", "\"/srv/orders.wasm\"", "dqhost.toml:7"),
        value("retries", "3", "dqhost.toml:8"),
    ])
}

/// How messages ended: a handler that took the place of another mends most of what failed.
fn ended() -> Vec<Ended> {
    let one = |number: u32| {
        let n = u64::from(number);
        let is_old = number > 60;
        let failure = match number % 12 {
            5 => ("timed-out", "no verdict within 5s"),
            7 if is_old => ("nacked", "HTTP 503"),
            1 | 9 if is_old => ("rejected", "order \u{1b}7 has no amount"),
            _ => ("", ""),
        };
        let handler = if is_old {
            "17074e1bab856d1d"
        } else {
            "c0ffee00c0ffee00"
        };
        Ended {
            id: id(number),
            at_ms: NOW_MS - n * n * 130,
            end: if failure.0.is_empty() {
                End::Acked
            } else {
                End::Died
            },
            attempt: 1 + number % 3,
            duration_ms: if is_old { 40 + n } else { n % 9 },
            due_at_ms: (!number.is_multiple_of(3)).then_some(NOW_MS - n * n * 130 - 1500),
            host: "5a6b7c8d-1111-4222-8333-444455556666".to_owned(),
            handler: handler.repeat(4),
            class: failure.0.to_owned(),
            reason: failure.1.to_owned(),
            has_result: false,
        }
    };
    (1..=150).map(one).collect()
}

/// What the store has of what is looked at.
fn seen(query: &Query) -> QueryResult {
    let history = |number: u32| {
        (1..=number)
            .map(|n| attempt(n, "HTTP 503"))
            .collect::<Vec<_>>()
    };
    let query = query.clone();
    match &query {
        Query::Nothing => QueryResult::Nothing,
        Query::Messages { state, limit, .. } => {
            let count = u32::try_from(*limit).unwrap().min(25);
            let one = |number: u32| {
                let failed = if *state == In::Dead { 4 } else { number % 5 };
                record(number, *state, history(failed.min(4)))
            };
            QueryResult::Messages {
                records: Arc::new((1..=count).map(one).collect()),
                more: true,
                searched: Searched::All,
                query,
            }
        }
        Query::Groups { .. } => QueryResult::Groups {
            groups: Arc::new(groups()),
            searched: Searched::All,
            query,
        },
        Query::Ended { filter, .. } => QueryResult::Ended {
            history: Ok(Arc::new(History::of(ended(), true, filter))),
            query,
        },
        Query::Due { spans, .. } => {
            let ahead = Ok(Arc::new(due_ahead(*spans)));
            QueryResult::Due { query, ahead }
        }
        Query::Message { id: wanted, .. } if wanted.as_str() == "x" => QueryResult::Message {
            record: None,
            ended: None,
            query,
        },
        Query::Message { id: wanted, .. } => {
            let mut record = record(7, In::Dead, history(3));
            record.id = wanted.clone();
            record.history.insert(
                0,
                HistoryEntry::Redriven {
                    redriven_from: id(99).to_string(),
                    redrives: 1,
                    at_ms: NOW_MS - 7_200_000,
                },
            );
            QueryResult::Message {
                record: Some(Arc::new(record)),
                ended: None,
                query,
            }
        }
    }
}
