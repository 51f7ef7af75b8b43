//! A payload as lines: as JSON, as text or in hexadecimal.

use std::fmt::Write as _;

use ratatui::text::Line;

use super::json;
use crate::control::LISTED_PAYLOAD_MAX;
use crate::dashboard::state::PayloadView;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::wrapped;
use crate::message::Record;
use crate::text::hex;

/// Bytes of a line in hexadecimal.
const HEX_ROW: usize = 16;

pub(super) fn lines(
    theme: Theme,
    record: &Record,
    (view, shown_max): (PayloadView, usize),
    width: usize,
) -> Vec<Line<'static>> {
    let Some(bytes) = &record.payload else {
        return vec![Line::styled(
            "payload   missing from the store",
            theme.bad(),
        )];
    };
    let shown = &bytes[..bytes.len().min(shown_max)];
    let as_text = || match std::str::from_utf8(shown) {
        Ok(text) => Some(text.to_owned()),
        Err(error) if error.error_len().is_none() => {
            Some(String::from_utf8_lossy(&shown[..error.valid_up_to()]).into_owned())
        }
        Err(_) => None,
    };
    let is_beginning = shown_max == LISTED_PAYLOAD_MAX && bytes.len() >= shown_max;
    let mut cut = bytes.len() > shown_max || is_beginning;
    let (name, text) = match view {
        PayloadView::Json => match json::indented(bytes, shown_max) {
            Some((json, is_cut)) => {
                cut |= is_cut;
                ("JSON", Some(json))
            }
            None => ("text", as_text()),
        },
        PayloadView::Text => ("text", as_text()),
        PayloadView::Hex => ("hexadecimal", None),
    };
    let name = if text.is_none() { "hexadecimal" } else { name };
    let mut head = match (bytes.len(), is_beginning) {
        (0, _) => "payload   empty".to_owned(),
        (_, true) => format!("payload   as {name}"),
        (length, false) => format!("payload   {length} bytes, as {name}"),
    };
    if cut {
        let _ = write!(head, ", the first {shown_max}");
    }
    let mut lines = vec![Line::styled(head, theme.dim())];
    match text {
        Some(text) => lines.extend(wrapped(&text, width, name == "JSON")),
        None => lines.extend(
            shown
                .chunks(HEX_ROW)
                .enumerate()
                .map(|(row, bytes)| hex_row(row, bytes)),
        ),
    }
    lines
}

fn hex_row(row: usize, bytes: &[u8]) -> Line<'static> {
    let pairs: Vec<String> = bytes.iter().map(|byte| hex(&[*byte])).collect();
    let text: String = bytes
        .iter()
        .map(|&byte| {
            if (0x20..0x7f).contains(&byte) {
                char::from(byte)
            } else {
                '.'
            }
        })
        .collect();
    Line::raw(format!(
        "{:06x}  {:<47}  {text}",
        row * HEX_ROW,
        pairs.join(" ")
    ))
}
