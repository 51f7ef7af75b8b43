//! This user's folders, where the XDG base directory specification has them.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

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
