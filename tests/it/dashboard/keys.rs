//! Every key of the table, in every place where it works: where it leads and what it asks for.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use dqhost::control::{
    Bulk, Command, IN_FLIGHT_MAX, Line, Notice, QueryResult, TaskView, UNDO_TIME,
};
use dqhost::dashboard::keymap::{Key, Scope};
use dqhost::dashboard::update::{Effect, Event};
use dqhost::dashboard::{CommandParser, Named, State, picture, screens};
use dqhost::message::{MessageId, QueueName};

use super::sample::{Sample, theme};

/// Long enough for a question to be read.
const READ: Duration = Duration::from_secs(1);

/// A dashboard with its focus there.
fn at(place: &str) -> Sample {
    let mut sample = Sample::new(theme(), (80, 24));
    let keys = match place {
        "Overview" => "",
        "Messages" => "2",
        "Dead letters by reason" => "3",
        "Trial of a handler" => "3tx\n",
        "Dead letters" | "One message" | "Question" | "Editor" => "3\n",
        "In flight" => "4",
        "History" => "5",
        "Log" => "6",
        "Settings" => ",",
        "Help" => "?",
        "Prompt" => ":",
        other => panic!("how is {other} reached?"),
    };
    let more = match place {
        "One message" => "\n",
        "Question" => "D",
        "Editor" => "\ne",
        _ => "",
    };
    for c in keys.chars().chain(more.chars()) {
        match c {
            '\n' => sample.enter(),
            c => sample.press(KeyCode::Char(c), KeyModifiers::NONE),
        };
    }
    assert_eq!(sample.state.scope().name(), place);
    sample
}

/// A place in one word.
fn short(scope: Scope) -> &'static str {
    match scope.name() {
        "Dead letters by reason" => "Groups",
        "Dead letters" => "Letters",
        "One message" => "Message",
        "In flight" => "InFlight",
        "Trial of a handler" => "Trial",
        "Question" => "Confirm",
        name => name,
    }
}

fn event(key: Key) -> KeyEvent {
    match key {
        Key::Char(c) if c.is_uppercase() => KeyEvent::new(KeyCode::Char(c), KeyModifiers::SHIFT),
        Key::Char(c) => KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE),
        Key::Ctrl(c) => KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL),
        Key::Alt(code) => KeyEvent::new(code, KeyModifiers::ALT),
        Key::Code(code) => KeyEvent::new(code, KeyModifiers::NONE),
    }
}

/// What of the state a key may change.
fn place(sample: &Sample) -> String {
    let state = &sample.state;
    let mut text = format!("{} {:?}", short(state.scope()), state.screen);
    let mut note = |name: &str, value: String, is_usual: bool| {
        if !is_usual {
            write!(text, " {name}={value}").unwrap();
        }
    };
    note(
        "queue",
        format!(
            "{:?}",
            state.queue.as_ref().map(dqhost::message::QueueName::as_str)
        ),
        state.queue.as_ref().is_some_and(|q| q.as_str() == "orders"),
    );
    note("list", state.state.to_string(), state.state == 0);
    note("line", state.selected.to_string(), state.selected == 0);
    note("from", state.offset.to_string(), state.offset == 0);
    note(
        "marks",
        state.marks.len().to_string(),
        state.marks.is_empty(),
    );
    note("zoom", state.zoom.to_string(), state.zoom == 0);
    note("reach", state.reach.to_string(), state.reach == 1);
    note("frozen", String::new(), !state.is_frozen);
    note("guests", String::new(), !state.guests_only);
    if let Some(opened) = &state.opened {
        note(
            "view",
            format!("{:?}", opened.view),
            opened.view == dqhost::dashboard::state::PayloadView::Json,
        );
        note("scroll", opened.scroll.to_string(), opened.scroll == 0);
    }
    if let Some(prompt) = &state.prompt {
        note("text", format!("{:?}", prompt.text()), false);
    }
    text
}

#[test]
fn every_key_in_every_place() {
    let mut table = String::new();
    for scope in screens::PLACES {
        writeln!(table, "{}", scope.name()).unwrap();
        for binding in screens::in_scope(scope) {
            for key in binding.keys {
                let mut sample = at(scope.name());
                let effects = sample.event(Event::Key(event(*key)));
                let asks = |effect: &&Effect| {
                    !matches!(effect, Effect::Command(dqhost::control::Command::Query(_)))
                };
                let effects: Vec<&Effect> = effects.iter().filter(asks).collect();
                writeln!(
                    table,
                    "  {:<10} {:<28} {}",
                    key.name(),
                    format!("{:?}", binding.action),
                    place(&sample)
                )
                .unwrap();
                for effect in effects {
                    writeln!(table, "  {:<39} asks {effect:?}", "").unwrap();
                }
                if let Some((notice, _)) = &sample.state.notice {
                    writeln!(table, "  {:<39} says {:?}", "", notice.text).unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_yes_does_what_was_asked_and_a_no_does_not() {
    for keys in [
        "3
D", "3
r", "2C", "4K", "q",
    ] {
        for yes in [true, false] {
            let mut sample = Sample::new(theme(), (80, 24));
            for c in keys.chars() {
                match c {
                    '\n' => sample.enter(),
                    c => sample.press(KeyCode::Char(c), KeyModifiers::NONE),
                };
            }
            assert_eq!(sample.state.scope(), Scope::Confirm, "{keys}");
            let effects = sample.type_in(if yes { "y" } else { "n" });
            let is_look = |command: &Command| matches!(command, Command::Query(_));
            let does = effects.iter().any(|effect| match effect {
                Effect::Command(command) => !is_look(command),
                _ => false,
            });
            assert_eq!(does, yes, "{keys}: {effects:?}");
            assert_ne!(sample.state.scope(), Scope::Confirm);
        }
    }
}

#[test]
fn nothing_is_changed_where_only_looking_is_allowed() {
    for scope in screens::PLACES {
        for binding in screens::in_scope(scope).filter(|binding| binding.changes) {
            let mut sample = at(scope.name());
            sample.state.settings.read_only = true;
            let effects = sample.event(Event::Key(event(binding.keys[0])));
            assert!(effects.is_empty(), "{binding:?}: {effects:?}");
            let (notice, _) = sample.state.notice.as_ref().unwrap();
            assert!(notice.text.contains("--read-only"));
        }
    }
}

#[test]
fn edits_are_not_lost_by_one_key() {
    let mut sample = at("Editor");
    sample.type_in("x");
    let escape = |sample: &mut Sample| sample.press(KeyCode::Esc, KeyModifiers::NONE);
    escape(&mut sample);
    assert_eq!(sample.state.scope(), Scope::Editor);
    sample.type_in("y");
    escape(&mut sample);
    assert_eq!(sample.state.scope(), Scope::Editor);
    escape(&mut sample);
    assert_eq!(sample.state.scope().name(), "One message");
}

#[test]
fn the_selection_stays_with_its_message() {
    let mut sample = at("Messages");
    sample.type_in("jj");
    let chosen = sample.state.current();
    let mut next = (*sample.state.snapshot).clone();
    let QueryResult::Messages { records, .. } = &mut next.result else {
        panic!("there are messages");
    };
    Arc::make_mut(records).remove(0);
    sample.event(Event::Snapshot(Arc::new(next)));
    assert_eq!((sample.state.selected, sample.state.current()), (1, chosen));
}

#[test]
fn a_screen_that_is_held_still_can_be_looked_into() {
    let mut sample = at("Messages");
    sample.type_in("f");
    let shown = Arc::clone(&sample.state.snapshot);
    sample.now += std::time::Duration::from_mins(1);
    sample.answer();
    assert_eq!(shown.read_at, sample.state.snapshot.read_at);
    assert!(!sample.state.is_stale(sample.now));
    sample.enter();
    assert!(sample.state.opened.as_ref().unwrap().record.is_some());
    sample.type_in("f");
    sample.answer();
    assert_ne!(shown.read_at, sample.state.snapshot.read_at);
}

#[test]
fn what_lies_on_top_leaves_the_line_below_alone() {
    for keys in ["2jj\n", "2jj?", "2jj:", "2jjC", "3j?", "4j?"] {
        let mut sample = Sample::new(theme(), (80, 24));
        let (reach, open) = keys.split_at(keys.len() - 1);
        sample.type_in(reach);
        let (selected, current) = (sample.state.selected, sample.state.current());
        if open == "\n" {
            sample.enter();
        } else {
            sample.type_in(open);
        }
        for _ in 0..3 {
            sample.answer();
        }
        sample.press(KeyCode::Esc, KeyModifiers::NONE);
        sample.answer();
        assert_eq!(sample.state.selected, selected, "{keys}");
        assert_eq!(sample.state.current(), current, "{keys}");
    }
}

#[test]
fn an_answer_that_comes_late_disturbs_nothing() {
    let made = || Notice {
        text: "sent x".to_owned(),
        failed: false,
        made: Some(("orders".parse().unwrap(), "x".into())),
        then: None,
        can_undo: false,
    };
    let question = || Notice {
        text: "Delete 3 dead letters of orders?".to_owned(),
        failed: false,
        made: None,
        then: Some(Command::StopTask),
        can_undo: false,
    };
    for scope in [Scope::Editor, Scope::Confirm, Scope::Prompt] {
        for notice in [made(), question()] {
            let mut sample = at(scope.name());
            sample.event(Event::Notice(notice));
            assert_eq!(sample.state.scope(), scope);
            assert!(sample.state.notice.is_some());
        }
    }
    let mut sample = at("Dead letters");
    sample.event(Event::Notice(question()));
    assert_eq!(sample.state.scope(), Scope::Confirm);
    sample.now += READ;
    let effects = sample.type_in("y");
    assert!(
        effects.contains(&Effect::Command(Command::StopTask)),
        "{effects:?}"
    );
}

#[test]
fn marks_are_kept_until_something_is_done_to_them() {
    let mut sample = at("Messages");
    sample.type_in("  ");
    let notice = Notice {
        text: "orders goes on".to_owned(),
        failed: false,
        made: None,
        then: None,
        can_undo: false,
    };
    sample.event(Event::Notice(notice));
    assert_eq!(sample.state.marks.len(), 2);
    let effects = sample.type_in("x");
    let ids = |effect: &Effect| match effect {
        Effect::Command(Command::Reschedule(_, ids, _)) => ids.len(),
        _ => 0,
    };
    assert_eq!(effects.iter().map(ids).sum::<usize>(), 2);
    assert!(sample.state.marks.is_empty());
}

/// What was asked for beside looks.
fn asked(effects: Vec<Effect>) -> Vec<Effect> {
    let is_look = |effect: &Effect| matches!(effect, Effect::Command(Command::Query(_)));
    effects
        .into_iter()
        .filter(|effect| !is_look(effect))
        .collect()
}

/// A question that comes by itself: whether to delete so many dead letters.
fn deletes(count: usize) -> Event {
    let ids = (0..count).map(|n| MessageId::from(n.to_string())).collect();
    let queue = "orders".parse().unwrap();
    Event::Notice(Notice {
        text: format!("Delete {count} dead letters of orders? That cannot be undone."),
        failed: false,
        made: None,
        then: Some(Command::Bulk(queue, ids, Bulk::Delete)),
        can_undo: false,
    })
}

#[test]
fn enter_alone_confirms_nothing() {
    for keys in ["3\nD", "3\nr", "2C", "4K", "q"] {
        let ask = || {
            let mut sample = Sample::new(theme(), (80, 24));
            for c in keys.chars() {
                match c {
                    '\n' => sample.enter(),
                    c => sample.press(KeyCode::Char(c), KeyModifiers::NONE),
                };
            }
            assert_eq!(sample.state.scope(), Scope::Confirm, "{keys}");
            sample
        };
        let mut sample = ask();
        assert_eq!(asked(sample.enter()), [], "{keys}");
        assert_ne!(sample.state.scope(), Scope::Confirm, "{keys}");
        // On yes it does, and there and back it does not.
        for (moves, count) in [(1, 1), (2, 0)] {
            let mut sample = ask();
            for _ in 0..moves {
                sample.press(KeyCode::Right, KeyModifiers::NONE);
            }
            assert_eq!(asked(sample.enter()).len(), count, "{keys}");
        }
    }
}

#[test]
fn a_large_number_is_typed_before_messages_are_destroyed() {
    let mut sample = at("Dead letters");
    sample.event(deletes(100));
    sample.now += READ;
    assert_eq!(asked(sample.type_in("y")).len(), 1);

    let mut sample = at("Dead letters");
    sample.event(deletes(1234));
    sample.now += READ;
    let shown = |sample: &mut Sample| picture(&mut sample.state, sample.now).text();
    let screen = shown(&mut sample);
    assert!(screen.contains("type 1234 and press Enter: _"), "{screen}");
    for wrong in ["y", "12", "9"] {
        assert_eq!(asked(sample.type_in(wrong)), []);
        if wrong != "y" {
            assert_eq!(asked(sample.enter()), []);
        }
        assert_eq!(sample.state.scope(), Scope::Confirm);
        let (notice, _) = sample.state.notice.as_ref().unwrap();
        assert!(notice.text.contains("type 1234 and press Enter"));
    }
    sample.press(KeyCode::Backspace, KeyModifiers::NONE);
    sample.type_in("34");
    let screen = shown(&mut sample);
    assert!(screen.contains("press Enter: 1234_"), "{screen}");
    assert_eq!(asked(sample.enter()).len(), 1);
    // Untouched, it stands on no.
    let mut sample = at("Dead letters");
    sample.event(deletes(1234));
    sample.now += READ;
    assert_eq!(asked(sample.enter()), []);
    assert_eq!(sample.state.scope().name(), "Dead letters");
}

#[test]
fn a_key_on_its_way_does_not_answer_a_question_that_comes() {
    for key in ["y", "n", "q", "d"] {
        let mut sample = at("Dead letters");
        sample.event(deletes(3));
        assert_eq!(asked(sample.type_in(key)), []);
        assert_eq!(sample.state.scope(), Scope::Confirm, "{key}");
        let (notice, _) = sample.state.notice.as_ref().unwrap();
        assert!(notice.text.contains("answer it now"));
    }
    let mut sample = at("Dead letters");
    sample.event(deletes(3));
    sample.now += READ;
    assert_eq!(asked(sample.type_in("y")).len(), 1);
    // Who asks by a key knows what comes.
    let mut sample = at("Dead letters");
    assert_eq!(asked(sample.type_in("Dy")).len(), 1);
    // To leave is never late.
    let mut sample = at("Dead letters");
    sample.event(deletes(3));
    let leave = sample.press(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(asked(leave).len(), 1);
}

#[test]
fn a_late_key_after_a_closed_question_acts_on_no_other_screen() {
    let closed_by = |key: &str| {
        let mut sample = at("Dead letters");
        sample.type_in("D");
        sample.type_in(key);
        assert_eq!(sample.state.scope().name(), "Dead letters");
        sample
    };
    let nothing = |sample: &mut Sample, keys: &str| {
        let before = place(sample);
        assert_eq!(asked(sample.type_in(keys)), [], "{keys}");
        assert_eq!(place(sample), before, "{keys}");
    };
    // Pressed twice, held down, or thought better of before the screen has changed.
    for key in ["y", "n", "q"] {
        let mut sample = closed_by(key);
        for keys in ["y", "n", "q", "1", "5"] {
            nothing(&mut sample, keys);
        }
        // The screen is drawn: another key is meant for it, but not the one that is held down.
        let _ = picture(&mut sample.state, sample.now);
        for _ in 0..20 {
            sample.now += Duration::from_millis(100);
            nothing(&mut sample, key);
        }
        sample.type_in(if key == "n" { "1" } else { "n" });
        assert_ne!(place(&sample), place(&closed_by(key)));
    }
    // A while later it is a key like any other.
    let mut sample = closed_by("n");
    sample.now += READ;
    sample.type_in("n");
    assert!(place(&sample).contains("queue="), "{}", place(&sample));
}

#[test]
fn what_can_be_undone_says_so_while_it_can() {
    let mut sample = at("Messages");
    let notice = Notice {
        text: "1 message cancelled".to_owned(),
        failed: false,
        made: None,
        then: None,
        can_undo: true,
    };
    sample.event(Event::Notice(notice));
    let shown = |sample: &mut Sample| picture(&mut sample.state, sample.now).text();
    assert!(shown(&mut sample).contains("1 message cancelled   u undoes it (12s)"));
    assert_eq!(asked(sample.type_in("u")), [Effect::Command(Command::Undo)]);
    sample.now += UNDO_TIME;
    sample.event(Event::Tick);
    assert!(!shown(&mut sample).contains("u undoes it"));
}

#[test]
fn a_task_shows_how_far_it_is_and_is_stopped_by_a_key() {
    let mut sample = at("Overview");
    sample.change(|snapshot| {
        snapshot.task = Some(TaskView {
            what: "redriving",
            done: 48,
            failed: 2,
            total: Some(200),
        });
    });
    let shown = picture(&mut sample.state, sample.now).text();
    let bar = format!("{}{}", "█".repeat(5), "░".repeat(15));
    let line = format!("redriving: 48 of 200, 2 not; S stops it {bar}");
    assert!(shown.contains(&line), "{shown}");
    assert_eq!(
        asked(sample.type_in("S")),
        [Effect::Command(Command::StopTask)]
    );
}

#[test]
fn a_key_on_its_way_does_nothing_to_a_message_that_opens_by_itself() {
    let made = || {
        let mut sample = at("Messages");
        sample.event(Event::Notice(Notice {
            text: "sent x".to_owned(),
            failed: false,
            made: Some(("orders".parse().unwrap(), "x".into())),
            then: None,
            can_undo: false,
        }));
        assert_eq!(sample.state.scope().name(), "One message");
        sample
    };
    for key in ["x", "C", "p"] {
        let mut sample = made();
        assert_eq!(asked(sample.type_in(key)), [], "{key}");
        assert_eq!(sample.state.scope().name(), "One message", "{key}");
        let (notice, _) = sample.state.notice.as_ref().unwrap();
        assert!(notice.text.contains("press it again"), "{key}");
        // A while later it is a key like any other.
        sample.now += READ;
        let effects = asked(sample.type_in(key));
        assert!(effects.len() == 1 || sample.state.has_question(), "{key}");
    }
    // Who has gone on has seen the screen.
    let mut sample = made();
    sample.press(KeyCode::Backspace, KeyModifiers::NONE);
    assert_eq!(asked(sample.type_in("x")).len(), 1);
}

#[test]
fn where_no_handler_can_be_stopped_it_is_said_why() {
    let said = |change: &dyn Fn(&mut dqhost::control::Snapshot), keys: &str| {
        let mut sample = at("Overview");
        sample.change(change);
        assert_eq!(asked(sample.type_in(keys)).len(), 0);
        assert!(sample.state.modal.is_none());
        let notice = sample.state.notice.take();
        notice.map_or(String::new(), |(notice, _)| notice.text)
    };
    let of_another = |snapshot: &mut dqhost::control::Snapshot| {
        snapshot.in_flight.truncate(1);
        snapshot.in_flight[0].queue = "mails".parse().unwrap();
    };
    assert_eq!(
        said(&of_another, "K"),
        "no handler of orders runs in this process"
    );
    let of_many = |snapshot: &mut dqhost::control::Snapshot| {
        of_another(snapshot);
        let one = snapshot.in_flight[0].clone();
        snapshot.in_flight = vec![one; IN_FLIGHT_MAX];
    };
    let text =
        "no handler of orders runs among the 500 messages that are in flight for longest here";
    assert_eq!(said(&of_many, "K"), text);
    let none = |snapshot: &mut dqhost::control::Snapshot| snapshot.in_flight.clear();
    assert_eq!(said(&none, "4K"), "no handler runs in this process");
    let no_host = |snapshot: &mut dqhost::control::Snapshot| {
        none(snapshot);
        snapshot.host = None;
    };
    assert!(said(&no_host, "K").starts_with("no host runs in this process"));
}

/// It says which queue a line is about.
struct Tell;

impl CommandParser for Tell {
    fn parse(&self, _: &str, queue: &QueueName, _: &[MessageId]) -> Result<Line, String> {
        Err(format!("for {queue}"))
    }

    fn names(&self, _: &str) -> Option<Named> {
        None
    }

    fn complete(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// The store may have been read before the dashboard has begun.
#[test]
fn a_line_typed_at_once_is_about_the_queue_that_is_shown() {
    let sample = at("Overview");
    let first = Arc::clone(&sample.state.snapshot);
    let settings = sample.state.settings.clone();
    let mut state = State::new(screens::TABS[0], settings, first, Arc::default());
    let keys = [KeyCode::Char(':'), KeyCode::Char('x'), KeyCode::Enter];
    for key in keys {
        let key = Event::Key(KeyEvent::new(key, KeyModifiers::NONE));
        state.update(key, &Tell, sample.now);
    }
    assert_eq!(state.prompt.unwrap().error.unwrap(), "for orders");
}

/// A snapshot from before the first look at the store has no queues.
#[test]
fn a_line_is_about_the_selected_queue_or_about_none() {
    let said = |sample: &mut Sample| {
        sample.type_in(":send x");
        let enter = Event::Key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
        sample.state.update(enter, &Tell, sample.now);
        let prompt = sample.state.prompt.take().unwrap();
        prompt.error.unwrap()
    };
    let mut sample = at("Overview");
    let selected = sample.state.queue.clone().unwrap();
    sample.change(|snapshot| {
        snapshot.queues.clear();
        snapshot.read_at = None;
    });
    assert_eq!(said(&mut sample), format!("for {selected}"));
    // A host is there, so the queues will be.
    sample.state.queue = None;
    assert!(said(&mut sample).contains("not known yet"));
    sample.change(|snapshot| snapshot.host = None);
    assert_eq!(said(&mut sample), "for default");
}
