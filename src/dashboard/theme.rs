//! Colours and signs. There are sixteen colours at most, on the terminal's own background, so that a dark
//! and a light one are readable. For terminals without colours or with ASCII only, finished frames are
//! changed. No state is told by a colour alone.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::text::printable;

/// How the screen looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// For a light background.
    pub light: bool,
    /// Without colours: marks, bold, dim and reverse only.
    pub no_color: bool,
    /// With ASCII signs only.
    pub ascii: bool,
}

impl Theme {
    /// Titles and names.
    #[must_use]
    pub fn accent(self) -> Style {
        let color = if self.light { Color::Blue } else { Color::Cyan };
        Style::new().fg(color).add_modifier(Modifier::BOLD)
    }

    /// What matters less.
    #[must_use]
    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What went well.
    #[must_use]
    pub fn good(self) -> Style {
        Style::new().fg(Color::Green)
    }

    /// What to look at.
    #[must_use]
    pub fn warn(self) -> Style {
        let color = if self.light {
            Color::Magenta
        } else {
            Color::Yellow
        };
        Style::new().fg(color)
    }

    /// What went wrong.
    #[must_use]
    pub fn bad(self) -> Style {
        Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The selected line; a mark in the text says it as well.
    #[must_use]
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The last thing done to a frame. Nothing reaches the terminal that has not passed here:
    /// whatever a widget drew, no cell holds a control character. Colours are taken out here and
    /// not left to the terminal library, which answers `NO_COLOR` with resets that would clear the
    /// reverse of the selection as well.
    pub fn finish(self, buffer: &mut Buffer) {
        for cell in &mut buffer.content {
            if self.no_color {
                cell.fg = Color::Reset;
                cell.bg = Color::Reset;
            }
            let symbol = cell.symbol();
            if symbol == " " {
                continue;
            }
            if printable(symbol) != symbol {
                cell.set_symbol("?");
            } else if self.ascii && !symbol.is_ascii() {
                let sign = symbol.chars().next().map_or(' ', ascii);
                cell.set_char(sign);
            }
        }
    }
}

/// What stands for a character where there is ASCII only.
fn ascii(c: char) -> char {
    match c {
        '─' | '━' | '┄' | '—' | '–' | '▃' => '-',
        '│' | '▏' | '▎' | '▍' | '▌' => '|',
        '╭' | '╮' | '╰' | '╯' | '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' | '▅' => {
            '+'
        }
        '▁' | '·' | '•' | '░' => '.',
        '▂' => ':',
        '▄' => '=',
        '▆' | '●' => '*',
        '▇' | '█' | '▊' | '▉' | '▋' => '#',
        '→' | '▶' => '>',
        '←' | '◀' => '<',
        '↑' | '▲' => '^',
        '↓' | '▼' => 'v',
        '…' => '~',
        '×' => 'x',
        '⏎' => '/',
        'µ' => 'u',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;

    #[test]
    fn a_finished_frame_is_harmless_and_as_plain_as_asked() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 3, 1));
        buffer[(0, 0)].set_symbol("\u{9b}6n").set_fg(Color::Red);
        buffer[(1, 0)]
            .set_symbol("█")
            .set_style(Style::new().add_modifier(Modifier::REVERSED));
        buffer[(2, 0)].set_symbol("a\u{202e}");
        let theme = Theme {
            light: false,
            no_color: true,
            ascii: true,
        };
        theme.finish(&mut buffer);
        let symbols: Vec<&str> = buffer
            .content
            .iter()
            .map(ratatui::buffer::Cell::symbol)
            .collect();
        assert_eq!(symbols, ["?", "#", "?"]);
        assert_eq!(buffer[(0, 0)].fg, Color::Reset);
        assert!(buffer[(1, 0)].modifier.contains(Modifier::REVERSED));
    }
}
