//! A recording as an animated SVG: a frame for each moment that a viewer is given time to read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroU16;

use serde_json::Value;

/// More bytes are not kept in the sources.
const BYTES_MAX: usize = 400_000;

/// Seconds without a change after which a frame is one to read.
const PAUSE: f64 = 1.2;

/// Milliseconds for which each frame is shown.
const SHOWN_MS: usize = 1400;

/// Pixels of a character.
const CELL: (usize, usize) = (9, 18);

const HEAD: &str = "<style>text{white-space:pre}.b{font-weight:bold}.d{opacity:.6}.i{fill:#16181d}\
.c1{fill:#e06c75}.c2{fill:#98c379}.c3{fill:#e5c07b}.c4{fill:#61afef}.c5{fill:#c678dd}.c6{fill:#56b6c2}";

/// Turns an asciicast into a film.
pub(crate) fn of(cast: &str) -> String {
    let frames = frames(cast);
    let mut rows = BTreeMap::new();
    let mut shown = String::new();
    for (at, frame) in frames.iter().enumerate() {
        let (base, delay) = (u8::from(at > 0), SHOWN_MS * at);
        let _ = write!(
            shown,
            "<g class=\"f{base}\" style=\"animation-delay:{delay}ms\">"
        );
        for (y, row) in frame.iter().enumerate() {
            if row.is_empty() {
                continue;
            }
            let next = rows.len();
            let number = *rows.entry(row.clone()).or_insert(next);
            let _ = write!(
                shown,
                "<use href=\"#r{number}\" y=\"{}\"/>",
                (y + 1) * CELL.1
            );
        }
        shown.push_str("</g>\n");
    }
    let mut rows: Vec<(&String, &usize)> = rows.iter().collect();
    rows.sort_by_key(|(_, number)| **number);
    let mut defined = String::new();
    for (row, number) in rows {
        let _ = writeln!(defined, "<g id=\"r{number}\">{row}</g>");
    }
    let (columns, lines) = size(cast);
    let (width, height) = ((columns + 2) * CELL.0, (lines + 1) * CELL.1);
    let count = u32::try_from(frames.len()).unwrap();
    let (whole, part) = (SHOWN_MS * frames.len(), 100.0 / f64::from(count));
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace,Menlo,Consolas,monospace\" font-size=\"15\" fill=\"#d7dae0\">\n\
         {HEAD}.f0,.f1{{animation:s {whole}ms step-end infinite}}.f1{{visibility:hidden}}\
         @keyframes s{{0%{{visibility:visible}}{part:.4}%{{visibility:hidden}}}}</style>\n\
         <defs>\n{defined}</defs>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#16181d\"/>\n{shown}</svg>\n"
    );
    assert!(svg.len() <= BYTES_MAX, "{} bytes", svg.len());
    svg
}

fn events(cast: &str) -> impl Iterator<Item = Value> {
    cast.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// Where the largest screen of it has room.
fn size(cast: &str) -> (usize, usize) {
    let head = events(cast).next().unwrap();
    let side = |name: &str| usize::try_from(head[name].as_u64().unwrap()).unwrap();
    let resized = events(cast).skip(1).filter(|event| event[1] == "r");
    resized.fold((side("width"), side("height")), |largest, event| {
        let (columns, rows) = sides(&event);
        let sides = (usize::from(columns.get()), usize::from(rows.get()));
        (largest.0.max(sides.0), largest.1.max(sides.1))
    })
}

fn sides(resized: &Value) -> (NonZeroU16, NonZeroU16) {
    let (columns, rows) = resized[2].as_str().unwrap().split_once('x').unwrap();
    (columns.parse().unwrap(), rows.parse().unwrap())
}

/// The rows of each frame.
fn frames(cast: &str) -> Vec<Vec<String>> {
    let head = events(cast).next().unwrap();
    let side = |name: &str| u16::try_from(head[name].as_u64().unwrap()).unwrap();
    let (height, width) = (side("height"), side("width"));
    let mut player = vt100::Parser::new(height.try_into().unwrap(), width.try_into().unwrap(), 0);
    let (mut frames, mut last) = (Vec::new(), 0.0);
    for event in events(cast).skip(1) {
        let time = event[0].as_f64().unwrap();
        let frame = screen_rows(player.screen());
        if time - last >= PAUSE && frames.last() != Some(&frame) {
            frames.push(frame);
        }
        last = time;
        match event[1].as_str().unwrap() {
            "r" => {
                let (columns, rows) = sides(&event);
                player.screen_mut().set_size(rows, columns);
            }
            _ => player.process(event[2].as_str().unwrap().as_bytes()),
        }
    }
    frames
}

/// How a cell looks: classes, and whether it is reversed.
fn look(cell: &vt100::Cell) -> (String, bool) {
    let mut classes = Vec::new();
    match cell.fgcolor() {
        vt100::Color::Idx(number @ 1..=6) => classes.push(format!("c{number}")),
        vt100::Color::Idx(number @ 9..=14) => classes.push(format!("c{}", number - 8)),
        _ => {}
    }
    for (is_so, class) in [(cell.bold(), "b"), (cell.dim(), "d"), (cell.inverse(), "i")] {
        if is_so {
            classes.push(class.to_owned());
        }
    }
    (classes.join(" "), cell.inverse())
}

fn screen_rows(screen: &vt100::Screen) -> Vec<String> {
    let (rows, columns) = screen.size();
    (0..rows.get())
        .map(|row| row_of(screen, row, columns.get()))
        .collect()
}

/// One row: a text that is as wide as its cells, over what is reversed.
fn row_of(screen: &vt100::Screen, row: u16, columns: u16) -> String {
    let cells = (0..columns).filter_map(|column| screen.cell(row, column));
    let mut runs: Vec<(usize, (String, bool), String)> = Vec::new();
    let (mut end, mut at) = (0, 0);
    for cell in cells {
        let look = look(cell);
        let text = match cell.contents() {
            _ if cell.is_wide_continuation() => "",
            "" => " ",
            text => text,
        };
        at += 1;
        if text.trim() != "" || look.1 {
            end = at;
        }
        match runs.last_mut() {
            Some((_, last, run)) if *last == look => run.push_str(text),
            _ => runs.push((at - 1, look, text.to_owned())),
        }
    }
    if end == 0 {
        return String::new();
    }
    let (width, height) = CELL;
    let (mut below, mut text) = (String::new(), String::new());
    for (from, (classes, is_reversed), run) in runs.into_iter().take_while(|run| run.0 < end) {
        let cut: String = run.chars().take(end - from).collect();
        if is_reversed {
            let (x, wide) = ((from + 1) * width, cut.chars().count() * width);
            let _ = write!(
                below,
                "<rect x=\"{x}\" y=\"-{}\" width=\"{wide}\" height=\"{height}\"/>",
                height * 3 / 4
            );
        }
        let cut = cut.replace('&', "&amp;").replace('<', "&lt;");
        if classes.is_empty() {
            text.push_str(&cut);
        } else {
            let _ = write!(text, "<tspan class=\"{classes}\">{cut}</tspan>");
        }
    }
    format!(
        "{below}<text x=\"{width}\" textLength=\"{}\">{text}</text>",
        end * width
    )
}
