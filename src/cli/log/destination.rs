//! What writes the lines of the log to a file, and what makes it open the file again.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::file::LogFile;
use crate::control::{LogLevel, LogRing};

/// Asks for the files of the log to be opened again, since they were moved away. A clone asks the same.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Reopen(Arc<AtomicU64>);

impl Reopen {
    /// The line that tells of it is the first one in the new file.
    pub(in crate::cli) fn ask(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        tracing::info!("the files of the log are opened again");
    }

    /// How often it was asked.
    fn asked(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Writes to a file of the log. When that fails, lines go to stderr, or with a dashboard to its ring only.
pub(super) struct Destination {
    file: Option<LogFile>,
    reopen: Reopen,
    /// How often it was opened again.
    seen: u64,
    /// It was told that lines cannot be written, and none could be since.
    has_failed: bool,
    ring: Option<Arc<LogRing>>,
}

impl Destination {
    pub(super) fn new(file: LogFile, reopen: Reopen, ring: Option<Arc<LogRing>>) -> Self {
        Self {
            file: Some(file),
            seen: reopen.asked(),
            reopen,
            has_failed: false,
            ring,
        }
    }

    /// There is no other place to tell of a file's trouble.
    fn tell(&self, text: &str) {
        if let Some(ring) = &self.ring {
            ring.add(LogLevel::Warn, false, text);
        } else {
            tell!("{text}");
        }
    }
}

impl Write for Destination {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let asked = self.reopen.asked();
        if std::mem::replace(&mut self.seen, asked) != asked
            && let Some(Err(error)) = self.file.as_mut().map(LogFile::reopen)
        {
            self.tell(&format!("the log goes on in its old file: {error}"));
        }
        let Some(file) = &mut self.file else {
            return Ok(line.len());
        };
        let added = file.add(line);
        let had_failed = std::mem::replace(&mut self.has_failed, added.is_err());
        if let Err(error) = added {
            // Its disk is full, say.
            if !had_failed {
                self.tell(&format!("the file of the log cannot be written: {error}"));
            }
            // Beside a dashboard the ring has every line. There may be more room later.
            if self.ring.is_none() {
                let _ = io::stderr().write_all(line);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
