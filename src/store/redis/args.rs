//! How values are written for the scripts.

use redis::Cmd;

use super::ms;
use crate::message::{Claim, Due, NewMessage};
use crate::store::common::headers_json;

/// Messages whose history a script rewrites at most: each may be 6 KiB.
pub(super) const FAIL_STEP: usize = 100;

/// Appends a claim as the scripts take it: id, retries left, "failed:released".
pub(super) fn add_claim(command: &mut Cmd, claim: &Claim) {
    let (left, attempts) = claim
        .token
        .0
        .split_once('/')
        .unwrap_or((&claim.token.0, ""));
    command.arg(claim.id.as_str()).arg(left).arg(attempts);
}

/// A due time as the scripts take it: "+N" for N ms from now, else unix ms.
pub(super) fn due_arg(due: Due) -> String {
    match due {
        Due::In(delay) => format!("+{}", ms(delay)),
        Due::At(at_ms) => at_ms.to_string(),
    }
}

/// Appends a new message as the scripts take it: id, payload, due, retries, headers, window, and where
/// its id was found, "" when nobody has looked.
pub(super) fn add_message(command: &mut Cmd, message: &NewMessage, place: &str) {
    command
        .arg(message.id.as_str())
        .arg(message.payload.as_slice())
        .arg(due_arg(message.due))
        .arg(message.retries)
        .arg(headers_json(&message.headers))
        .arg(ms(message.window()))
        .arg(place);
}

/// A budget as the scripts take it.
pub(super) fn retries_arg(retries: Option<u32>) -> String {
    retries.map_or(String::new(), |n| n.to_string())
}
