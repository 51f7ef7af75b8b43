//! The database and its companions on the disk. Others may be able to write to the folder, so all of them
//! are checked before SQLite opens them, and a new database is private from its first moment.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::files::{self, Owner};
use crate::text::printable;

/// What SQLite, and dqhost, put beside a database.
const COMPANIONS: [&str; 4] = [LOG, "-shm", "-journal", WAKE];

const LOG: &str = "-wal";

const WAKE: &str = "-wake";

/// More symbolic links than this lead in a circle.
const LINKS_MAX: usize = 40;

fn companion(database: &Path, end: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(end);
    path.into()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// The path of the database without symbolic links. What is there and beside it may be used, and a missing
/// database has been made.
///
/// # Errors
///
/// An error of kind [`io::ErrorKind::Other`] tells what is in the way; all others are the system's.
pub(super) fn prepare(path: &Path) -> io::Result<PathBuf> {
    let path = resolve(path)?;
    // Another process may make it between the two.
    let database = match files::check(&path, Owner::Anyone)? {
        Some(found) => found,
        None => match create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::symlink_metadata(&path)?
            }
            made => made?,
        },
    };
    check_owner(&path, &database)?;
    let owner = owner_of_companions(&path, &database)?;
    for end in COMPANIONS {
        files::check(&companion(&path, end), owner)?;
    }
    if !files::warn_if_public("the database", &path) {
        files::warn_if_public("the log of the database", &companion(&path, LOG));
    }
    Ok(path)
}

/// SQLite gives its companions the mode of the database, whatever the umask is.
fn create(path: &Path) -> io::Result<Metadata> {
    let options = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .clone();
    options.open(path)?.metadata()
}

/// Follows the links of the last component one by one, so that the owner of each is seen.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let name = path.file_name().map(ToOwned::to_owned);
        let folder = folder_of(&path).canonicalize()?;
        path = name.map_or(folder.clone(), |name| folder.join(name));
        let is_link = match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                check_owner(&path, &found)?;
                true
            }
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !is_link {
            return Ok(path);
        }
        path = folder.join(std::fs::read_link(&path)?);
    }
    Err(io::Error::other(format!(
        "{} is a symbolic link that leads in a circle",
        printable(&path.display().to_string())
    )))
}

/// Refuses what another user has put into a folder that every user can write to, as Linux does with
/// `fs.protected_regular` and `fs.protected_symlinks`. Elsewhere, whoever may write to the folder decides.
fn check_owner(path: &Path, found: &Metadata) -> io::Result<()> {
    let (uid, us) = (found.uid(), rustix::process::geteuid().as_raw());
    let folder = folder_of(path).metadata()?;
    if uid == us || uid == 0 || uid == folder.uid() || folder.mode() & 0o002 == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{} belongs to user {uid}, and every user can write to its folder; give a path in a folder of \
         your own",
        printable(&path.display().to_string())
    )))
}

/// Users that share a database by its group make companions for each other.
fn owner_of_companions(path: &Path, database: &Metadata) -> io::Result<Owner> {
    let is_shared = database.mode() & 0o020 != 0 && folder_of(path).metadata()?.mode() & 0o002 == 0;
    Ok(if is_shared {
        Owner::Anyone
    } else {
        Owner::UsOr(database.uid())
    })
}

/// Opens the write-ahead log, which SQLite has made, to flush it. No lock of SQLite is on it that closing it would
/// release.
pub(super) fn open_log(database: &Path) -> io::Result<File> {
    let owner = owner_of_companions(database, &database.metadata()?)?;
    files::open_regular(&companion(database, LOG), File::options().read(true), owner)
}

/// Opens the companion through which processes wake each other. A new one has the mode of the database,
/// and its owner if we may give files away, as SQLite's companions have.
pub(super) fn open_wake(database: &Path) -> io::Result<(PathBuf, File)> {
    let path = companion(database, WAKE);
    let model = database.metadata()?;
    let owner = owner_of_companions(database, &model)?;
    let options = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .clone();
    let file = files::open_ours(&path, &options, owner)?;
    let found = file.metadata()?;
    let us = rustix::process::geteuid();
    if found.uid() == us.as_raw() && found.len() == 0 {
        // A companion that others cannot write wakes them within a second all the same.
        let _ = file.set_permissions(Permissions::from_mode(model.mode() & 0o666));
        if us.is_root() && model.uid() != found.uid() {
            let _ = std::os::unix::fs::fchown(&file, Some(model.uid()), Some(model.gid()));
        }
    }
    Ok((path, file))
}
