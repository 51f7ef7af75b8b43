//! What came over a network, on the disk of this user.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::cli::folder;
use crate::files::{self, Owner};
use crate::text::hex;

/// What file names end with: a file, and one that is being written.
const ENDING: &str = "fetched";
const TEMPORARY: &str = "fetched-tmp";

/// Bytes of all files together; the least recently used are removed beyond it.
const TOTAL_MAX: u64 = 512 << 20;

/// The folder, if there is one that only this user can write to.
pub(super) struct Kept(Option<PathBuf>);

impl Kept {
    pub(super) fn of_user() -> Self {
        Self(folder::cache())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.0.as_ref()?.join(name).with_extension(ENDING))
    }

    /// The bytes of this digest.
    pub(super) fn get(&self, digest: &str) -> Option<Vec<u8>> {
        let bytes = self.get_unchecked(digest)?;
        (hex(&Sha256::digest(&bytes)) == digest).then_some(bytes)
    }

    /// What was kept under this name, whatever became of it.
    pub(super) fn get_unchecked(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.path(name)?;
        let mut file = files::open_ours(&path, OpenOptions::new().read(true), Owner::Us).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let _ = file.set_modified(SystemTime::now());
        Some(bytes)
    }

    /// Keeps bytes. If that fails, they are fetched again next time.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) {
        let (Some(folder), Some(path)) = (&self.0, self.path(name)) else {
            return;
        };
        if let Err(error) = write(folder, &path, bytes).and_then(|()| make_room(folder)) {
            tracing::debug!("what was fetched is not kept: {error}");
        }
    }
}

fn write(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = format!("{:016x}", fastrand::u64(..));
    let temporary = folder.join(name).with_extension(TEMPORARY);
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Removes the least recently used files beyond the total.
fn make_room(folder: &Path) -> io::Result<()> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let ending = path.extension().unwrap_or_default();
        if let Ok(metadata) = fs::symlink_metadata(&path)
            && (ending == ENDING || ending == TEMPORARY)
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
        fs::remove_file(path)?;
        total -= length;
    }
    Ok(())
}
