//! Every screen at four sizes, at three of them with colours and without. `INSTA_UPDATE=always` writes
//! them anew.

use std::fmt::Write as _;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyModifiers};
use dqhost::control::{LogLevel, QueryResult, TrialEnd};
use dqhost::dashboard::update::Event;
use dqhost::dashboard::{Theme, picture};

use super::sample::{Sample, theme};

const SIZES: [(u16, u16); 3] = [(120, 40), (80, 24), (40, 10)];

/// As large as a screen of today; text only.
const LARGE: (u16, u16) = (200, 60);

/// The screen after `reach`, at every size: the text with colours as `‹31›`, then the frame without
/// colours where it is drawn differently.
fn frames(reach: impl Fn(&mut Sample)) -> String {
    let mut text = String::new();
    let mut sample = Sample::new(theme(), LARGE);
    reach(&mut sample);
    let now = sample.now;
    let large = picture(&mut sample.state, now).text();
    writeln!(text, "======== {}x{}, text\n{large}", LARGE.0, LARGE.1).unwrap();
    for size in SIZES {
        for no_color in [false, true] {
            let theme = Theme {
                no_color,
                ..theme()
            };
            let mut sample = Sample::new(theme, size);
            reach(&mut sample);
            let now = sample.now;
            let shown = picture(&mut sample.state, now);
            let looks = shown
                .ansi()
                .replace("\x1b[0;", "‹")
                .replace("\x1b[0m", "‹›");
            let how = if no_color { "NO_COLOR" } else { "colours" };
            writeln!(text, "======== {}x{}, {how}", size.0, size.1).unwrap();
            for line in looks.lines() {
                // `‹1;31m` to `‹1;31›`.
                let parts: Vec<&str> = line.split('‹').collect();
                let mut shown = parts[0].to_owned();
                for part in &parts[1..] {
                    let closed = if part.starts_with('›') {
                        (*part).to_owned()
                    } else {
                        part.replacen('m', "›", 1)
                    };
                    shown.push('‹');
                    shown.push_str(&closed);
                }
                writeln!(text, "{shown}").unwrap();
            }
        }
    }
    text
}

macro_rules! screens {
    ($($name:ident: $reach:expr;)*) => {
        $(#[test]
        fn $name() {
            insta::assert_snapshot!(frames($reach));
        })*
    };
}

screens! {
    overview: |_| {};
    messages: |sample| {
        sample.type_in("2jj ");
    };
    messages_filtered: |sample| {
        sample.type_in("2]]]/order");
        sample.enter();
    };
    one_message: |sample| {
        sample.type_in("3");
        sample.enter();
        sample.enter();
    };
    one_message_in_hexadecimal: |sample| {
        sample.type_in("2");
        sample.enter();
        sample.type_in("vv");
    };
    dead_letters_by_reason: |sample| {
        sample.type_in("3j");
    };
    dead_letters: |sample| {
        sample.type_in("3j");
        sample.enter();
        sample.type_in("aj");
    };
    a_handler_to_be_tried: |sample| {
        sample.type_in("3jt/srv/new/orders.wasm");
    };
    trial_of_a_handler: |sample| {
        sample.type_in("3jtx");
        sample.enter();
        sample.type_in("j");
    };
    trial_that_failed: |sample| {
        sample.type_in("3tx");
        sample.enter();
        let mut snapshot = (*sample.state.snapshot).clone();
        let mut trial = (**snapshot.trial.as_ref().unwrap()).clone();
        trial.tried.clear();
        let error = "/srv/new/orders.wasm is not a handler: it has no export that a message can be given \
            to; build it for the world of wit/ and look at it with `dqhost check`";
        trial.end = Some(TrialEnd::Failed(error.to_owned()));
        snapshot.trial = Some(trial.into());
        sample.event(Event::Snapshot(snapshot.into()));
    };
    in_flight: |sample| {
        sample.type_in("4j");
    };
    history: |sample| {
        sample.type_in("5jj");
    };
    history_by_handler: |sample| {
        sample.type_in("5d");
    };
    history_filtered: |sample| {
        sample.type_in("5/class:timed");
        sample.enter();
    };
    a_message_of_the_history: |sample| {
        sample.type_in("5");
        sample.change(|snapshot| {
            let QueryResult::Ended { history: Ok(history), .. } = &mut snapshot.result else {
                panic!("there is a history");
            };
            Arc::make_mut(history).lines[0].ended.id = "x".into();
        });
        sample.enter();
    };
    log: |sample| {
        sample.type_in("6");
    };
    settings: |sample| {
        sample.type_in(",jj");
        sample.enter();
    };
    help: |sample| {
        sample.type_in("3?");
    };
    question: |sample| {
        sample.type_in("3");
        sample.enter();
        sample.type_in(" D");
    };
    prompt_with_a_mistake: |sample| {
        sample.type_in(":send oops");
        sample.enter();
    };
    prompt_with_lines_and_words: |sample| {
        sample.type_in(":");
        sample.event(Event::Paste("send {\r\n  \"a\": 1\r\n} re".to_owned()));
        sample.press(KeyCode::Tab, KeyModifiers::NONE);
    };
    editor: |sample| {
        sample.type_in("3");
        sample.enter();
        sample.enter();
        sample.type_in("e");
    };
    leaving: |sample| {
        sample.type_in("q");
    };
    read_only: |sample| {
        sample.state.settings.read_only = true;
        sample.type_in("2C");
    };
    a_message_that_is_gone: |sample| {
        sample.type_in(":get x");
        sample.enter();
    };
    an_outage: |sample| {
        sample.now += std::time::Duration::from_secs(7);
        let mut snapshot = (*sample.state.snapshot).clone();
        snapshot.outage = Some("redis://x is not reachable (counting): \x1b[31mrefused".to_owned());
        sample.event(Event::Snapshot(snapshot.into()));
    };
    refused_calls: |sample| {
        let mut snapshot = (*sample.state.snapshot).clone();
        snapshot.host.as_mut().unwrap().summary.refused = 2;
        sample.event(Event::Snapshot(snapshot.into()));
    };
    nothing_yet: |sample| {
        let mut snapshot = (*sample.state.snapshot).clone();
        snapshot.queues.clear();
        snapshot.in_flight.clear();
        sample.event(Event::Snapshot(snapshot.into()));
    };
}

#[test]
fn what_is_too_small_is_one_line() {
    for size in [(29, 24), (80, 5), (20, 1)] {
        let mut sample = Sample::new(theme(), size);
        let now = sample.now;
        let text = picture(&mut sample.state, now).text();
        let mut lines = text.lines();
        assert!(
            lines.next().unwrap().starts_with("p1.2M r12 u3 t5"),
            "{text}"
        );
        assert!(lines.all(str::is_empty), "{text}");
    }
}

#[test]
fn ascii_is_ascii() {
    let theme = Theme {
        ascii: true,
        ..theme()
    };
    for keys in ["", "2", "3", "4", "5", "5\n", "6", ",", "?"] {
        let mut sample = Sample::new(theme, (120, 40));
        for c in keys.chars() {
            match c {
                '\n' => sample.enter(),
                c => sample.type_in(&c.to_string()),
            };
        }
        let now = sample.now;
        let text = picture(&mut sample.state, now).text();
        assert!(text.is_ascii(), "{text}");
        assert!(
            !text.contains('?') || keys == "?" || text.matches('?').count() <= 2,
            "{text}"
        );
    }
}

#[test]
fn a_light_theme_has_other_colours() {
    let draw = |light| {
        let mut sample = Sample::new(Theme { light, ..theme() }, (80, 24));
        let now = sample.now;
        picture(&mut sample.state, now).ansi()
    };
    let (dark, light) = (draw(false), draw(true));
    assert!(dark.contains(";33m") && !dark.contains(";35m"));
    assert!(light.contains(";35m") && !light.contains(";33m") && !light.contains(";36m"));
}

/// Fills the log with what passes while three queues are at work.
fn work(sample: &Sample) {
    let id = |n: u32| format!("id=019a2b3c-0000-7000-8000-{n:012}");
    for n in 100..108 {
        let time = format!("2026-11-21T11:22:{}.000000Z", n - 78);
        let (level, what) = match n % 4 {
            0 => (
                LogLevel::Info,
                format!(" INFO queue=reports {} to: alice@example.com", id(n)),
            ),
            1 => (
                LogLevel::Info,
                format!(" INFO acked queue=reports {} attempt=1 took=1.8ms", id(n)),
            ),
            2 => (
                LogLevel::Info,
                format!(
                    " INFO to be retried queue=orders {} attempt=1 class=nacked reason=\"HTTP 503\" delay=5s",
                    id(n)
                ),
            ),
            _ => (
                LogLevel::Info,
                format!(" INFO acked queue=orders {} attempt=1 took=84µs", id(n)),
            ),
        };
        sample
            .state
            .logs
            .add(level, n % 4 == 0, &format!("{time} {what}"));
    }
}

/// The pictures of the README and the book, and how their screens are reached.
const PICTURES: [(&str, &str); 6] = [
    ("dashboard", ""),
    ("dashboard-messages", "2jj"),
    ("dashboard-dead", "3j"),
    ("dashboard-trial", "3jt/srv/new/orders.wasm\nj"),
    ("dashboard-history", "5jjjj"),
    ("dashboard-settings", ",jj\n"),
];

/// The pictures are these frames. `DQHOST_UPDATE_PICTURE=1` (`make picture`) draws them anew.
#[test]
fn the_pictures_of_the_docs_are_true() {
    for (name, keys) in PICTURES {
        let mut sample = Sample::new(theme(), (120, 36));
        work(&sample);
        for c in keys.chars() {
            match c {
                '\n' => sample.enter(),
                c => sample.type_in(&c.to_string()),
            };
        }
        let now = sample.now;
        let svg = picture(&mut sample.state, now).svg();
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let path = docs.join(format!("{name}.svg"));
        if std::env::var_os("DQHOST_UPDATE_PICTURE").is_some() {
            std::fs::write(&path, &svg).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == svg,
            "docs/{name}.svg is not what is drawn: run `make picture`"
        );
        let page = std::fs::read_to_string(docs.join("dashboard.md")).unwrap();
        assert!(page.contains(&format!("({name}.svg)")), "{name}");
    }
}
