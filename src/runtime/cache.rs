//! Compiled code on the disk, so that a handler is compiled once. wasmtime's own cache does not fit: it
//! parses and compiles in this process whatever it does not have.

use std::fs::{File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use wasmtime::Engine;

use crate::files::{self, Owner};
use crate::text::{hex, printable};

/// Raised when what is compiled for the same component changes although the engine does not.
const VERSION: u32 = 1;

/// Bytes of a SHA-256, which ends each file.
const SEAL: usize = 32;

/// Bytes of all files together; the least recently used are removed beyond it.
const TOTAL_MAX: u64 = 512 << 20;

/// A file is marked as used at most this often.
const USE_INTERVAL: Duration = Duration::from_hours(24);

/// What file names end with: a file, and one that is being written.
const ENDING: &str = "compiled";
const TEMPORARY: &str = "compiled-tmp";

/// A folder of this user alone.
pub(super) struct Cache {
    folder: PathBuf,
    /// Of all that the compiled code depends on beside the component.
    settings: [u8; SEAL],
}

/// Feeds what is hashed to SHA-256, which is the same in each build of the program.
struct Feed(Sha256);

impl Hasher for Feed {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

impl Cache {
    pub(super) fn new(folder: &Path, engine: &Engine) -> Self {
        let mut feed = Feed(Sha256::new());
        (VERSION, env!("CARGO_PKG_VERSION")).hash(&mut feed);
        engine.precompile_compatibility_hash().hash(&mut feed);
        Self {
            folder: folder.to_owned(),
            settings: feed.0.finalize().into(),
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        let name = Sha256::new()
            .chain_update(self.settings)
            .chain_update(key)
            .finalize();
        self.folder.join(hex(&name)).with_extension(ENDING)
    }

    /// The code that was kept under this key, if it is there and as it was written.
    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.path(key);
        match self.read(&path) {
            Ok(code) => Some(code),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(
                    "compiled code is not used: {}",
                    printable(&error.to_string())
                );
                None
            }
        }
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut file = files::open_ours(path, OpenOptions::new().read(true), Owner::Us)?;
        let metadata = file.metadata()?;
        if metadata.mode() & 0o077 != 0 {
            let what = format!("other users have rights to {}; remove it", path.display());
            return Err(io::Error::other(what));
        }
        let mut code = Vec::new();
        file.read_to_end(&mut code)?;
        let start = code.len().saturating_sub(SEAL);
        let seal = code.split_off(start);
        if seal != self.seal(path, &code) {
            let what = format!("{} is damaged", path.display());
            return Err(io::Error::other(what));
        }
        let now = SystemTime::now();
        let used = metadata.modified()?;
        if now.duration_since(used).is_ok_and(|age| age > USE_INTERVAL) {
            let _ = file.set_modified(now);
        }
        Ok(code)
    }

    /// Of the code under the name of its file, so that no file counts under the name of another.
    fn seal(&self, path: &Path, code: &[u8]) -> [u8; SEAL] {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let sealed = Sha256::new()
            .chain_update(self.settings)
            .chain_update(name)
            .chain_update(code);
        sealed.finalize().into()
    }

    /// Keeps code. If that fails, the component is compiled again next time.
    pub(super) fn put(&self, key: &str, code: &[u8]) {
        let path = self.path(key);
        let kept = self.write(&path, code).and_then(|()| self.make_room());
        if let Err(error) = kept {
            let folder = self.folder.display().to_string();
            tracing::debug!(
                "compiled code is not cached in {}: {error}",
                printable(&folder)
            );
        }
    }

    fn write(&self, path: &Path, code: &[u8]) -> io::Result<()> {
        let temporary = self
            .folder
            .join(format!("{:016x}", fastrand::u64(..)))
            .with_extension(TEMPORARY);
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        let written = file
            .write_all(code)
            .and_then(|()| file.write_all(&self.seal(path, code)))
            .and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        written
    }

    /// Removes the least recently used files beyond the total.
    fn make_room(&self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let is_ours = path
                .extension()
                .is_some_and(|ending| ending == ENDING || ending == TEMPORARY);
            if let Ok(metadata) = std::fs::symlink_metadata(&path)
                && is_ours
                && metadata.is_file()
            {
                found.push((metadata.modified()?, metadata.len(), path));
            }
        }
        found.sort_unstable();
        let mut total: u64 = found.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in found {
            if total <= TOTAL_MAX {
                break;
            }
            std::fs::remove_file(path)?;
            total -= length;
        }
        Ok(())
    }
}
