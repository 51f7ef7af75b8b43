//! A recording of a terminal as asciicast v2: a head, then a line for each event.

use std::num::NonZeroU16;
use std::time::Duration;

use serde_json::{Value, json};

use super::tty::{Moment, Recording};

/// More bytes are not kept in the sources.
const BYTES_MAX: usize = 200 << 10;

/// What a viewer is given to read after each step, beside the time that it took.
const READING: Duration = Duration::from_millis(1500);

/// Writes what was shown.
pub(crate) fn of(recording: &Recording, (columns, rows): (u16, u16)) -> String {
    let (bytes, moments) = recording.all();
    let head = json!({
        "version": 2,
        "width": columns,
        "height": rows,
        "title": "The dashboard of dqhost",
        "env": { "TERM": "xterm-256color" },
    });
    let mut lines = vec![head];
    let begin = moments.first().expect("something is shown").0;
    let (mut read, mut from) = (Duration::ZERO, 0);
    for (at, moment) in moments {
        let time = ((at - begin + read).as_secs_f64() * 1000.0).round() / 1000.0;
        match moment {
            Moment::Step => read += READING,
            Moment::Resized(columns, rows) => {
                lines.push(json!([time, "r", format!("{columns}x{rows}")]));
            }
            Moment::Shown(to) => {
                // A character that is not whole comes with the rest of it.
                let text = match str::from_utf8(&bytes[from..to]) {
                    Ok(text) => text,
                    Err(error) => str::from_utf8(&bytes[from..from + error.valid_up_to()]).unwrap(),
                };
                from += text.len();
                if !text.is_empty() {
                    lines.push(json!([time, "o", text]));
                }
            }
        }
    }
    assert_eq!(from, bytes.len(), "a part was not shown");
    let lines = lines.iter().map(|line| format!("{line}\n"));
    lines.collect()
}

/// A recording must be small, play in this order what it should show, and give the terminal back.
pub(crate) fn check(cast: &str, shows: &[&str]) {
    assert!(cast.len() <= BYTES_MAX, "{} bytes", cast.len());
    let mut lines = cast.lines().map(|line| serde_json::from_str(line).unwrap());
    let head: Value = lines.next().expect("there is a head");
    assert_eq!(head["version"], 2, "{head}");
    let side = |name: &str| u16::try_from(head[name].as_u64().unwrap()).unwrap();
    let mut player = vt100::Parser::new(
        side("height").try_into().unwrap(),
        side("width").try_into().unwrap(),
        0,
    );
    let mut shows = shows.iter().peekable();
    let mut last = 0.0;
    for event in lines {
        let (Some(time), Some(kind), Some(data)) =
            (event[0].as_f64(), event[1].as_str(), event[2].as_str())
        else {
            panic!("this is no event: {event}");
        };
        assert!(time >= last, "{event} comes before {last}");
        last = time;
        match kind {
            "o" => player.process(data.as_bytes()),
            "r" => {
                let (columns, rows) = data.split_once('x').unwrap();
                let [columns, rows] =
                    [columns, rows].map(|side| side.parse::<NonZeroU16>().unwrap());
                player.screen_mut().set_size(rows, columns);
            }
            other => panic!("{other} is not recorded"),
        }
        let text = player.screen().contents();
        while shows.next_if(|show| text.contains(**show)).is_some() {}
    }
    assert_eq!(shows.next(), None, "it is never shown");
    let screen = player.screen();
    assert!(!screen.alternate_screen() && !screen.hide_cursor());
}
