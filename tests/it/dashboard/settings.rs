//! Keys that a file sets, and the screen of the settings.

use std::fs;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyModifiers};
use dqhost::dashboard::{Fact, Key, bind, picture};
use tempfile::TempDir;

use super::find::click;
use super::sample::{Sample, theme};
use super::tty::Tty;
use crate::support::{run, stdout};

/// A dashboard on which actions have other keys.
fn with_keys(size: (u16, u16), set: &[(&'static str, &str)]) -> Sample {
    let mut sample = Sample::new(theme(), size);
    let key = |word: &str| Key::of_word(word).unwrap();
    let set: Vec<_> = set
        .iter()
        .map(|(name, words)| (*name, words.split(' ').map(key).collect()))
        .collect();
    sample.state.settings.keys = bind(&set).unwrap();
    sample
}

fn text(sample: &mut Sample) -> String {
    let now = sample.now;
    picture(&mut sample.state, now).text()
}

#[test]
fn a_key_that_is_set_takes_the_place_of_the_usual_ones_and_is_shown_everywhere() {
    let set = [
        ("log", "ctrl-g"),
        ("send", "i"),
        ("undo", "f5"),
        ("pause", "ctrl-p"),
        ("down", "down ctrl-n"),
    ];
    let mut sample = with_keys((120, 40), &set);
    let screen = |sample: &Sample| sample.state.screen.name();
    sample.type_in("6");
    assert_eq!(screen(&sample), "Overview");
    sample.press(KeyCode::Char('g'), KeyModifiers::CONTROL);
    assert_eq!(screen(&sample), "Log");
    // The footer, the help and the palette.
    assert!(
        text(&mut sample)
            .lines()
            .last()
            .unwrap()
            .starts_with("i send")
    );
    sample.type_in("?");
    let help = text(&mut sample);
    for line in [
        "^G               log",
        "i                send a message",
        "↓ ^N             down",
    ] {
        assert!(help.contains(line), "{help}");
    }
    assert!(help.contains("dqhost.toml has some of them"), "{help}");
    sample.type_in("q:log");
    let palette = text(&mut sample);
    assert!(palette.contains("^G        log"), "{palette}");
    sample.press(KeyCode::Esc, KeyModifiers::NONE);
    // What is said in words.
    sample.type_in("2");
    sample.press(KeyCode::Char('n'), KeyModifiers::CONTROL);
    assert_eq!(sample.state.selected, 1);
    sample.type_in("j");
    assert_eq!(sample.state.selected, 1);
    sample.type_in("C");
    let question = text(&mut sample);
    assert!(question.contains("F5 undoes it"), "{question}");
    sample.type_in("n");
    // A digit may be meant for a question until the screen is drawn without it.
    text(&mut sample);
    sample.type_in("1");
    sample.press(KeyCode::Char('n'), KeyModifiers::CONTROL);
    let overview = text(&mut sample);
    assert!(overview.contains("paused: ^P lets it go on"), "{overview}");
}

#[test]
fn settings_are_changed_on_their_screen_and_left_again() {
    let mut sample = Sample::new(theme(), (120, 40));
    sample.type_in("5,");
    assert_eq!(sample.state.screen.name(), "Settings");
    let is_line = |sample: &mut Sample, words: &[&str]| {
        let shown = text(sample);
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(shown.lines().any(has_all), "{words:?}\n{shown}");
    };
    is_line(&mut sample, &["* theme", "dark", "DQHOST_THEME"]);
    is_line(
        &mut sample,
        &["* mouse", "selects and opens here", "default"],
    );
    is_line(&mut sample, &["slots", "16", "dqhost.toml:3"]);
    is_line(&mut sample, &["redis", "***@redis.example", "REDIS_URL"]);
    sample.enter();
    assert!(sample.state.settings.theme.light);
    is_line(&mut sample, &["* theme", "light", "changed here"]);
    sample.type_in("j ");
    assert!(sample.state.settings.theme.ascii);
    sample.type_in(" j ");
    is_line(&mut sample, &["* rates", "a minute", "changed here"]);
    sample.type_in("j ");
    assert!(!sample.state.settings.mouse);
    // What a host runs with is told only.
    sample.type_in("jjjjjjj ");
    let facts = Arc::clone(&sample.state.settings.facts);
    assert!(matches!(facts[0], Fact::Heading(_)));
    assert!(!sample.state.settings.read_only);
    // Back to where the operator was, with the same keys.
    sample.press(KeyCode::Esc, KeyModifiers::NONE);
    assert_eq!(sample.state.screen.name(), "History");
    sample.type_in(",,");
    assert_eq!(sample.state.screen.name(), "History");
    sample.type_in("1");
    let overview = text(&mut sample);
    assert!(
        overview.contains("Messages a minute") && overview.contains("/m"),
        "{overview}"
    );
    assert!(!overview.contains("/s "), "{overview}");
}

#[test]
fn a_click_changes_what_it_selects() {
    let mut sample = Sample::new(theme(), (120, 40));
    sample.type_in(",");
    for is_ascii in [false, true] {
        click(&mut sample, "* signs");
        assert_eq!(sample.state.settings.theme.ascii, is_ascii);
    }
}

#[test]
fn no_value_of_the_settings_reaches_the_terminal_as_it_is() {
    let mut sample = Sample::new(theme(), (120, 40));
    sample.state.settings.facts = Arc::new([Fact::Value {
        name: "handler".to_owned(),
        value: "\"/srv/a\u{1b}[31m.wasm\"".to_owned(),
        origin: "a\u{1b}b.toml:1".to_owned(),
    }]);
    sample.type_in(",");
    let shown = text(&mut sample);
    assert!(shown.contains("/srv/a\\u{1b}[31m.wasm"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn a_terminal_gets_its_keys_and_its_mouse_from_the_settings() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let store = path("dqhost.db");
    run(Some(&store), &["send", "x", "--in", "1h"], 0);
    let file = path("dqhost.toml");
    fs::write(
        &file,
        "theme = \"light\"\n\n[dashboard.keys]\nlog = [\"ctrl-g\", \"f6\"]\nquit = \"Q\"\n",
    )
    .unwrap();
    let mut tty = Tty::start(&store, &["top", "--config", &file, "--ascii"], (100, 60));
    tty.wait_for("> default");
    tty.keys("\x07");
    tty.wait_for("[6 Log");
    tty.keys(",");
    let shown = tty.wait_for("SETTING");
    let has = |words: [&str; 3]| {
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(shown.lines().any(has_all), "{words:?}\n{shown}");
    };
    has(["theme", "light", "dqhost.toml:1"]);
    has(["signs", "ASCII only", "--ascii"]);
    has(["log", "[\"ctrl-g\", \"f6\"]", "dqhost.toml:4"]);
    has(["db", "dqhost.db", "DQHOST_DB"]);
    let has_mouse = |tty: &Tty| {
        tty.on_screen(vt100::Screen::mouse_protocol_mode) != vt100::MouseProtocolMode::None
    };
    assert!(has_mouse(&tty));
    tty.keys("jjj\r");
    tty.wait_for("left to the terminal");
    assert!(!has_mouse(&tty));
    tty.keys("\r");
    tty.wait_for("selects and opens here");
    assert!(has_mouse(&tty));
    // The usual key means nothing any more.
    tty.keys("q?");
    tty.wait_for("dqhost.toml has some of them");
    tty.keys("?Q");
    tty.end(0);
    let keys = stdout(&run::<&str>(None, &["keys", "--config", &file], 0));
    assert!(keys.contains("  ^G F6              log\n"), "{keys}");
}
