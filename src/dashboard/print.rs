//! A frame as text, as text with colours, and as an SVG.

use std::fmt::Write as _;
use std::time::Instant;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use ratatui::text::Span;

use super::draw;
use super::state::State;

/// Pixels of a character in the SVG.
const CELL: (usize, usize) = (9, 18);

/// A frame that was drawn.
#[derive(Debug, Clone)]
pub struct Picture(Buffer);

/// Draws one frame.
#[must_use]
pub fn picture(state: &mut State, now: Instant) -> Picture {
    let (columns, rows) = state.size;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let Ok(_) = terminal.draw(|frame| draw(frame, state, now));
    Picture(terminal.backend().buffer().clone())
}

impl Picture {
    fn rows(&self) -> impl Iterator<Item = &[Cell]> {
        self.0.content.chunks(usize::from(self.0.area.width).max(1))
    }

    /// The characters, a line for each row, without blanks at the ends.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines(|_| String::new())
    }

    /// The same with the colours of a terminal.
    #[must_use]
    pub fn ansi(&self) -> String {
        self.lines(|cell| format!("\x1b[0{}m", codes(cell)))
    }

    /// A line for each row, with `look` before every part that looks different from the one before.
    fn lines(&self, look: impl Fn(&Cell) -> String) -> String {
        let mut text = String::new();
        for row in self.rows() {
            let is_blank = |cell: &Cell| cell.symbol() == " " && !is_reversed(cell);
            let end = row
                .iter()
                .rposition(|cell| !is_blank(cell))
                .map_or(0, |at| at + 1);
            let (mut hidden, mut looks) = (0, look(&Cell::EMPTY));
            for cell in &row[..end] {
                // A wide character covers the cells behind it.
                if hidden > 0 {
                    hidden -= 1;
                    continue;
                }
                let now = look(cell);
                if now != looks {
                    text.push_str(&now);
                    looks = now;
                }
                text.push_str(cell.symbol());
                hidden = Span::raw(cell.symbol()).width().saturating_sub(1);
            }
            let plain = look(&Cell::EMPTY);
            if looks != plain {
                text.push_str(&plain);
            }
            text.push('\n');
        }
        text
    }

    /// The same as a picture for a page.
    #[must_use]
    pub fn svg(&self) -> String {
        let (width, height) = CELL;
        let (columns, rows) = (
            usize::from(self.0.area.width),
            usize::from(self.0.area.height),
        );
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" font-family=\"\
             ui-monospace,Menlo,Consolas,monospace\" font-size=\"15\">\n\
             <rect width=\"{w}\" height=\"{h}\" rx=\"6\" fill=\"#16181d\"/>\n",
            w = columns * width + 2 * width,
            h = rows * height + height,
        );
        for (y, row) in self.rows().enumerate() {
            for (x, run) in runs(row) {
                let text: String = run.iter().map(Cell::symbol).collect();
                if text.trim().is_empty() && !is_reversed(&run[0]) {
                    continue;
                }
                svg_run(
                    &mut svg,
                    (width + x * width, y * height + height / 2),
                    &run[0],
                    &text,
                );
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn is_reversed(cell: &Cell) -> bool {
    cell.modifier.contains(Modifier::REVERSED)
}

/// Neighbours that look the same, with where they begin.
fn runs(row: &[Cell]) -> Vec<(usize, &[Cell])> {
    let mut found = Vec::new();
    let mut x = 0;
    for run in row.chunk_by(|a, b| (a.fg, a.bg, a.modifier) == (b.fg, b.bg, b.modifier)) {
        found.push((x, run));
        x += run.len();
    }
    found
}

fn svg_run(svg: &mut String, (x, y): (usize, usize), cell: &Cell, text: &str) {
    let (width, height) = CELL;
    let mut color = hex_color(cell.fg);
    let length = text.chars().count() * width;
    if is_reversed(cell) {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{length}\" height=\"{height}\" fill=\"{color}\"/>"
        );
        color = "#16181d";
    }
    let bold = if cell.modifier.contains(Modifier::BOLD) {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let dim = if cell.modifier.contains(Modifier::DIM) {
        " opacity=\"0.6\""
    } else {
        ""
    };
    let text = svg_shapes(svg, (x, y), text, &format!("fill=\"{color}\"{dim}"));
    if text.trim().is_empty() {
        return;
    }
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{}\" fill=\"{color}\" textLength=\"{length}\" \
         xml:space=\"preserve\"{bold}{dim}>{text}</text>",
        y + height * 3 / 4,
    );
}

/// Draws bars and lines, which meet between the cells in no font, and returns the text without them.
fn svg_shapes(svg: &mut String, (x, y): (usize, usize), text: &str, look: &str) -> String {
    let (width, height) = CELL;
    let chars: Vec<char> = text.chars().collect();
    let mut at = x;
    let mut rest = String::with_capacity(text.len());
    for same in chars.chunk_by(|a, b| a == b) {
        let length = same.len() * width;
        let (top, thick) = (y * 8, height * 8);
        // Eighths of a pixel: left, top, width, height.
        let (left, wide, middle) = (at * 8, length * 8, top + thick / 2 - 4);
        let center_of = |x: usize| x * 8 + width * 4 - 4;
        let center = center_of(at);
        let line = |from, to| (from, middle, to - from, 8);
        let upright = |from, to| (center, from, 8, to - from);
        let (end, bottom) = (left + wide, top + thick);
        let places = match same[0] {
            c @ '▁'..='█' => {
                let eighths = (c as usize - '▁' as usize + 1) * height;
                vec![(left, bottom - eighths, wide, eighths)]
            }
            '░' => vec![(left, top, wide, thick)],
            '─' => vec![line(left, end)],
            '│' => (0..same.len())
                .map(|n| (center_of(at + n * width), top, 8, thick))
                .collect(),
            '╭' => vec![line(center, end), upright(middle, bottom)],
            '╮' => vec![line(left, center + 8), upright(middle, bottom)],
            '╰' => vec![line(center, end), upright(top, middle + 8)],
            '╯' => vec![line(left, center + 8), upright(top, middle + 8)],
            '┴' => vec![line(left, end), upright(top, middle)],
            _ => Vec::new(),
        };
        at += length;
        if places.is_empty() {
            rest.extend(same);
            continue;
        }
        let faint = if same[0] == '░' {
            " fill-opacity=\"0.2\""
        } else {
            ""
        };
        for (left, top, wide, high) in places {
            let [left, top, wide, high] = [left, top, wide, high].map(pixels);
            let _ = writeln!(
                svg,
                "<rect x=\"{left}\" y=\"{top}\" width=\"{wide}\" height=\"{high}\" {look}{faint}/>"
            );
        }
        rest.extend(same.iter().map(|_| ' '));
    }
    rest
}

/// Eighths of a pixel as pixels.
fn pixels(eighths: usize) -> String {
    match eighths % 8 {
        0 => (eighths / 8).to_string(),
        part => format!("{}.{:03}", eighths / 8, part * 125),
    }
}

fn hex_color(color: Color) -> &'static str {
    match color {
        Color::Red => "#e06c75",
        Color::Green => "#98c379",
        Color::Yellow => "#e5c07b",
        Color::Blue => "#61afef",
        Color::Magenta => "#c678dd",
        Color::Cyan => "#56b6c2",
        _ => "#d7dae0",
    }
}

/// The attributes of a cell as a terminal takes them.
fn codes(cell: &Cell) -> String {
    let color = match cell.fg {
        Color::Red => ";31",
        Color::Green => ";32",
        Color::Yellow => ";33",
        Color::Blue => ";34",
        Color::Magenta => ";35",
        Color::Cyan => ";36",
        _ => "",
    };
    let attribute = |modifier, code| {
        if cell.modifier.contains(modifier) {
            code
        } else {
            ""
        }
    };
    [
        attribute(Modifier::BOLD, ";1"),
        attribute(Modifier::DIM, ";2"),
        attribute(Modifier::REVERSED, ";7"),
        color,
    ]
    .concat()
}
