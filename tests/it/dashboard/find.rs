//! Finding things: actions, queues and ids by typing, queues by column, lines by the mouse.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use dqhost::control::QueryResult;
use dqhost::dashboard::update::{Effect, Event};
use dqhost::dashboard::{picture, screens};

use super::sample::{Sample, theme};

const SIZES: [(u16, u16); 4] = [(200, 60), (120, 40), (80, 24), (40, 10)];

fn text(sample: &mut Sample) -> String {
    let now = sample.now;
    picture(&mut sample.state, now).text()
}

fn key(sample: &mut Sample, code: KeyCode) -> Vec<Effect> {
    sample.press(code, KeyModifiers::NONE)
}

fn queue(sample: &Sample) -> &str {
    sample.state.queue.as_ref().unwrap().as_str()
}

#[test]
fn the_prompt_lists_every_action_with_its_key() {
    for size in SIZES {
        for keys in ["", "2", "3", "3\n", "3\n\n", "3tx\n", "4", "5", "5\n", "6"] {
            let mut sample = Sample::new(theme(), size);
            for c in keys.chars() {
                match c {
                    '\n' => sample.enter(),
                    c => sample.type_in(&c.to_string()),
                };
            }
            let actions: Vec<_> = screens::in_scope(sample.state.scope())
                .filter(|binding| binding.help != "type a command, or choose from all actions")
                .collect();
            sample.type_in(":");
            let shown = text(&mut sample);
            assert!(
                shown.contains(&format!("Actions ({})", actions.len())),
                "{shown}"
            );
            for action in actions {
                key(&mut sample, KeyCode::Down);
                let shown = text(&mut sample);
                let help: String = action.help.chars().take(15).collect();
                let name = action.keys[0].name();
                let is_chosen =
                    |line: &str| line.contains(&format!(">{name}")) && line.contains(&help);
                assert!(shown.lines().any(is_chosen), "{name} {help}\n{shown}");
            }
        }
    }
}

#[test]
fn an_action_is_found_by_what_it_does_and_enter_does_it() {
    let mut sample = Sample::new(theme(), (80, 24));
    sample.type_in(":still");
    let shown = text(&mut sample);
    assert!(
        shown.contains("Actions (1)") && shown.contains("hold the screen still"),
        "{shown}"
    );
    // Enter alone is for what is typed.
    sample.enter();
    assert!(sample.state.prompt.as_ref().unwrap().error.is_some());
    assert!(!sample.state.is_frozen);
    key(&mut sample, KeyCode::Backspace);
    key(&mut sample, KeyCode::Down);
    sample.enter();
    assert!(sample.state.is_frozen && sample.state.prompt.is_none());
    // Words in any order.
    let mut sample = Sample::new(theme(), (80, 24));
    sample.type_in(":screen hold");
    let shown = text(&mut sample);
    assert!(
        shown.contains("Actions (1)") && shown.contains("hold the screen still"),
        "{shown}"
    );
    // What is not allowed is not listed.
    let mut sample = Sample::new(theme(), (80, 24));
    sample.state.settings.read_only = true;
    sample.type_in("2:cel");
    let shown = text(&mut sample);
    assert!(!shown.contains("Actions"), "{shown}");
}

#[test]
fn an_operator_goes_back_to_where_they_were_and_forward_again() {
    let mut sample = Sample::new(theme(), (80, 24));
    let place = |sample: &Sample| {
        let state = &sample.state;
        let opened = state.opened.as_ref().map(|opened| opened.id.clone());
        (
            state.screen.name(),
            queue(sample).to_owned(),
            state.filter.text().to_owned(),
            (state.group.clone(), opened, state.selected),
        )
    };
    // Through the queues of the overview, which is one place.
    sample.type_in("jj");
    let mut seen = vec![place(&sample)];
    sample.type_in("3jj");
    seen.push(place(&sample));
    sample.enter();
    sample.type_in("jjj");
    seen.push(place(&sample));
    sample.enter();
    seen.push(place(&sample));
    sample.type_in("2/order");
    sample.enter();
    sample.type_in("j");
    seen.push(place(&sample));
    let between = seen.len() - 1;
    sample.type_in("<");
    // The list before it was filtered.
    assert_eq!(place(&sample).2, "");
    for before in seen[..between].iter().rev() {
        sample.type_in("<");
        assert_eq!(place(&sample), *before);
    }
    sample.type_in("<");
    let (notice, _) = sample.state.notice.as_ref().unwrap();
    assert!(notice.text.contains("no other place"), "{notice:?}");
    for after in &seen[1..between] {
        sample.press(KeyCode::Right, KeyModifiers::ALT);
        assert_eq!(place(&sample), *after);
    }
    sample.type_in(">>");
    assert_eq!(place(&sample), seen[between]);
    // A step elsewhere is a new way.
    sample.type_in("<6>");
    assert_eq!(place(&sample).0, "Log");
    sample.type_in("<<");
    assert_eq!(place(&sample), seen[between - 1]);
}

#[test]
fn names_of_queues_and_ids_are_completed() {
    let mut sample = Sample::new(theme(), (80, 24));
    sample.type_in("2:queue rep");
    key(&mut sample, KeyCode::Tab);
    let typed = |sample: &Sample| sample.state.prompt.as_ref().unwrap().text();
    assert_eq!(typed(&sample), "queue reports ");
    key(&mut sample, KeyCode::Esc);
    sample.type_in(":cancel 0");
    key(&mut sample, KeyCode::Tab);
    assert_eq!(typed(&sample), "cancel 019a2b3c-0000-7000-8000-0000000000");
    sample.type_in("12");
    key(&mut sample, KeyCode::Tab);
    assert_eq!(
        typed(&sample),
        "cancel 019a2b3c-0000-7000-8000-000000000012 "
    );
}

#[test]
fn an_id_that_is_no_word_is_not_offered() {
    let mut sample = Sample::new(theme(), (80, 24));
    sample.type_in("2");
    sample.change(|snapshot| {
        let QueryResult::Messages { records, .. } = &mut snapshot.result else {
            panic!("there are messages");
        };
        for (at, record) in Arc::make_mut(records).iter_mut().enumerate() {
            record.id = ["zz\x1b[2J", "zz a", "zz'b", "zzc"][at % 4].into();
        }
    });
    sample.type_in(":cancel z");
    key(&mut sample, KeyCode::Tab);
    assert_eq!(sample.state.prompt.as_ref().unwrap().text(), "cancel zzc ");
}

#[test]
fn a_queue_is_found_by_a_part_of_its_name() {
    for size in SIZES {
        let mut sample = Sample::new(theme(), size);
        assert_eq!(queue(&sample), "orders");
        sample.type_in("/por");
        assert_eq!(queue(&sample), "reports");
        assert!(text(&mut sample).contains('>'));
        key(&mut sample, KeyCode::Esc);
        assert_eq!(queue(&sample), "orders");
        // One that begins with it comes first.
        sample.type_in("/m");
        assert_eq!(queue(&sample), "mails");
        sample.type_in("x");
        let shown = text(&mut sample);
        assert!(shown.contains("no queue has this"), "{shown}");
        key(&mut sample, KeyCode::Backspace);
        sample.enter();
        assert_eq!(
            (queue(&sample), sample.state.prompt.is_none()),
            ("mails", true)
        );
    }
}

#[test]
fn queues_are_sorted_by_a_column_and_the_selection_stays() {
    let names = |sample: &Sample| -> Vec<String> {
        let queues = sample.state.snapshot.queues.iter();
        queues.map(|view| view.name.as_str().to_owned()).collect()
    };
    let mut sample = Sample::new(theme(), (80, 24));
    sample.type_in("j");
    assert_eq!(queue(&sample), "mails");
    for (by, expected) in [
        ("pending", ["orders", "reports", "mails"]),
        ("ready", ["mails", "orders", "reports"]),
        ("unack", ["orders", "mails", "reports"]),
        ("retry", ["orders", "mails", "reports"]),
        ("dead", ["orders", "mails", "reports"]),
    ] {
        sample.type_in("o");
        assert!(text(&mut sample).contains(&format!("Queues by {by}")));
        for _ in 0..2 {
            assert_eq!(names(&sample), expected, "{by}");
            assert_eq!(queue(&sample), "mails");
            assert_eq!(names(&sample)[sample.state.selected], "mails");
            sample.answer();
        }
    }
    sample.type_in("oooo");
    sample.answer();
    assert_eq!(names(&sample), ["orders", "mails", "reports"]);
    assert!(!text(&mut sample).contains("Queues by"));
}

fn mouse(sample: &mut Sample, kind: MouseEventKind, column: u16, row: u16) -> Vec<Effect> {
    let modifiers = KeyModifiers::NONE;
    let event = MouseEvent {
        kind,
        column,
        row,
        modifiers,
    };
    sample.event(Event::Mouse(event))
}

/// Clicks on this text of the screen, one that was drawn last if there are several.
pub(super) fn click(sample: &mut Sample, on: &str) -> Vec<Effect> {
    let shown = text(sample);
    let (row, line) = (0..)
        .zip(shown.lines())
        .filter(|(_, line)| line.contains(on))
        .last()
        .unwrap();
    let before = &line[..line.find(on).unwrap()];
    let column = u16::try_from(before.chars().count()).unwrap();
    mouse(sample, MouseEventKind::Down(MouseButton::Left), column, row)
}

#[test]
fn a_click_shows_a_tab_and_selects_and_opens_a_line() {
    for size in [(200, 60), (120, 40), (80, 24)] {
        let mut sample = Sample::new(theme(), size);
        click(&mut sample, "reports ");
        assert_eq!(
            (queue(&sample), sample.state.screen.name()),
            ("reports", "Overview")
        );
        click(&mut sample, "> reports");
        assert_eq!(sample.state.screen.name(), "Messages");
        for name in ["Dead", "In flight", "History", "Log", "Overview", "Dead"] {
            let shown = text(&mut sample);
            let tabs = shown.lines().next().unwrap();
            let column = u16::try_from(tabs.find(name).unwrap()).unwrap();
            mouse(
                &mut sample,
                MouseEventKind::Down(MouseButton::Left),
                column,
                0,
            );
            assert_eq!(sample.state.screen.name(), name);
        }
        click(&mut sample, "rejected: order");
        assert_eq!(
            (sample.state.selected, sample.state.group.is_none()),
            (2, true)
        );
        click(&mut sample, "rejected: order");
        assert!(sample.state.group.is_some());
        click(&mut sample, "019a2b3c");
        let selected = sample.state.selected;
        assert!(selected > 0 && sample.state.opened.is_none());
        mouse(&mut sample, MouseEventKind::ScrollUp, 3, 8);
        assert_eq!(sample.state.selected, selected - 1);
        mouse(&mut sample, MouseEventKind::ScrollDown, 3, 8);
        assert_eq!(sample.state.selected, selected);
        // Beside and below the lines there is nothing to click on.
        let rows = size.1;
        for row in [1, rows - 1] {
            mouse(&mut sample, MouseEventKind::Down(MouseButton::Left), 5, row);
        }
        assert_eq!(sample.state.selected, selected);
    }
}

#[test]
fn the_mouse_answers_no_question_and_leaves_what_is_typed_alone() {
    for keys in ["3\nD", "3\n:", "3\n\ne"] {
        let mut sample = Sample::new(theme(), (80, 24));
        for c in keys.chars() {
            match c {
                '\n' => sample.enter(),
                c => sample.type_in(&c.to_string()),
            };
        }
        let (scope, selected) = (sample.state.scope(), sample.state.selected);
        text(&mut sample);
        for row in 0..24 {
            for kind in [
                MouseEventKind::Down(MouseButton::Left),
                MouseEventKind::ScrollDown,
                MouseEventKind::Moved,
            ] {
                assert!(mouse(&mut sample, kind, 12, row).is_empty());
            }
        }
        assert_eq!(
            (sample.state.scope(), sample.state.selected),
            (scope, selected)
        );
    }
}

#[test]
fn no_control_character_gets_into_the_clipboard() {
    let mut sample = Sample::new(theme(), (80, 24));
    sample.type_in("2");
    sample.enter();
    sample.change(|snapshot| {
        let QueryResult::Message { record, .. } = &mut snapshot.result else {
            panic!("there is a message");
        };
        let payload = "{\t\"a\": \"\x1b]52;c;eA==\x07\u{9b}6n\"\r\n}\n";
        Arc::make_mut(record.as_mut().unwrap()).payload = Some(payload.into());
    });
    let effects = sample.type_in("c");
    let [Effect::Copy(copied)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert!(
        copied.starts_with("{    \"a\"") && copied.ends_with("\n}"),
        "{copied:?}"
    );
    let lines: Vec<&str> = copied.split('\n').collect();
    assert_eq!(lines.len(), 2);
    assert!(!lines.concat().contains(char::is_control), "{copied:?}");
    sample.state.opened.as_mut().unwrap().id = "a\x1bb".into();
    let effects = sample.type_in("y");
    assert!(
        effects.contains(&Effect::Copy("a\\u{1b}b".to_owned())),
        "{effects:?}"
    );
}
