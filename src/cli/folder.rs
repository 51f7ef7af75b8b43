//! This user's folders, where the XDG base directory specification has them.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::text::printable;

/// The folder of dqhost below the one that the variable names, or below this part of the home; none
/// when there is neither.
pub(super) fn of_user(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let base = named.or_else(|| {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(below_home))
    })?;
    Some(base.join("dqhost"))
}

/// Makes it, for this user alone, if it is not there.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

/// A folder of ours alone for compiled code and what was fetched, or none when there is no place for it or others can
/// write there: what is in it is executed.
pub(super) fn cache() -> Option<PathBuf> {
    let folder = of_user("XDG_CACHE_HOME", ".cache")?;
    if let Err(error) = make(&folder) {
        tracing::debug!(
            "compiled code is not cached in {}: {error}",
            folder.display()
        );
        return None;
    }
    let metadata = std::fs::metadata(&folder).ok()?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        tracing::warn!(
            "compiled code is not cached: {} belongs to another user",
            printable(&folder.display().to_string())
        );
        return None;
    }
    if metadata.mode() & 0o077 != 0 {
        tracing::warn!(
            "compiled code is not cached: others can write to {}; mend it with `chmod 700 {}`",
            printable(&folder.display().to_string()),
            printable(&folder.display().to_string()),
        );
        return None;
    }
    Some(folder)
}
