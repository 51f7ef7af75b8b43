//! `dqhost send --ndjson`: a message a line.
//!
//! Lines go to the store in batches, and at once when the input pauses, so that a pipe that never
//! ends is served as it flows. A line that is wrong is reported with its number and left out; the
//! others go in.

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use super::Exit;
use super::topic::{Answer, Target, print_answers};
use crate::format::line::{Defaults, line_max, parse};
use crate::store::{BATCH_MAX, Store};
use crate::text::printable;

/// Sends what the input holds. Exits with [`Exit::Partly`] when some lines were wrong, with
/// [`Exit::Failed`] when all were.
pub(super) async fn send(
    input: impl AsyncRead + Unpin,
    store: &dyn Store,
    target: &Target,
    defaults: &Defaults,
    json: bool,
) -> anyhow::Result<Exit> {
    let mut reader = BufReader::with_capacity(1 << 20, input);
    let mut batch = Vec::new();
    let (mut number, mut sent, mut wrong) = (0u64, 0u64, 0u64);
    let mut printing = true;
    loop {
        let line = read_line(&mut reader, line_max(defaults))
            .await
            .context("reading the lines")?;
        let ended = line.is_none();
        number += u64::from(!ended);
        let parsed = match line {
            None => None,
            Some(Ok(line)) if line.trim_ascii().is_empty() => None,
            Some(Ok(line)) => Some(parse(&line, defaults).and_then(|new| target.check(new))),
            Some(Err(TooLong)) => Some(Err(too_long(defaults))),
        };
        match parsed {
            None => {}
            Some(Ok(message)) => batch.push(message),
            Some(Err(error)) => {
                wrong += 1;
                tell!("line {number} is not sent: {}", printable(&error));
            }
        }
        // What is in flight goes out before the next read may wait for input.
        let may_wait = ended || !reader.buffer().contains(&b'\n');
        if batch.len() >= BATCH_MAX || (may_wait && !batch.is_empty()) {
            let accepted = target.send(store, &batch).await.with_context(|| {
                format!(
                    "{sent} messages were accepted before; of those up to line {number} that \
                     came after them, some may have been"
                )
            })?;
            sent += batch.len() as u64;
            if printing {
                printing = print_all(&accepted, json).with_context(|| {
                    format!(
                        "{sent} messages were sent, up to line {number}; send only the lines after it again"
                    )
                })?;
            }
            batch.clear();
        }
        if ended {
            break;
        }
    }
    Ok(match (sent, wrong) {
        (_, 0) => Exit::Done,
        (0, _) => Exit::Failed,
        _ => Exit::Partly,
    })
}

/// Prints the answers. False when nobody reads them any more, which is no reason to stop sending.
fn print_all(accepted: &[Answer], json: bool) -> std::io::Result<bool> {
    match print_answers(accepted, json) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        other => other.map(|()| true),
    }
}

/// A line was passed over because of its length.
pub(super) struct TooLong;

/// What is said of such a line.
pub(super) fn too_long(defaults: &Defaults) -> String {
    format!("it is longer than {} bytes", line_max(defaults))
}

/// The mark of UTF-8 that some editors write first. In files that were put together it is before later lines.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// The next line without such a mark, or none at the end.
pub(super) async fn read_line<R: AsyncRead + Unpin>(
    reader: &mut BufReader<R>,
    max: u64,
) -> std::io::Result<Option<Result<Vec<u8>, TooLong>>> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let read = (&mut *reader)
            .take(max)
            .read_until(b'\n', &mut line)
            .await?;
        let whole = line.ends_with(b"\n") || read == 0;
        too_long |= line.len() as u64 >= max && !line.ends_with(b"\n");
        if whole || !too_long {
            let nothing = line.is_empty() && !too_long;
            if line.starts_with(MARK) {
                line.drain(..MARK.len());
            }
            return Ok((!nothing).then_some(if too_long { Err(TooLong) } else { Ok(line) }));
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_whole_or_not_at_all() {
        let first = "\u{feff}one\n".as_bytes().to_vec();
        let input = [first, vec![b'x'; 25], b"\nlast".to_vec()].concat();
        let mut reader = BufReader::new(input.as_slice());
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut reader, 10).await.unwrap() {
            lines.push(line.map_or("too long".into(), |line| String::from_utf8(line).unwrap()));
        }
        assert_eq!(lines, ["one\n", "too long", "last"]);
    }
}
