//! Files on the disk that someone else may have prepared: what a path names is checked before anything
//! is read from it or written to it.

use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::text::printable;

/// How long the content of a pipe may take to arrive.
const PIPE_LIMIT: Duration = Duration::from_secs(10);

/// Bytes that are read of a pipe at a time.
const PIPE_CHUNK: usize = 64 * 1024;

/// The users whose files are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This user.
    Us,
    /// This user, root, or the user with this number.
    UsOr(u32),
    /// Any user.
    Anyone,
}

fn flags(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or(0)
}

/// An error that tells what is at the path and what to do.
fn unfit(path: &Path, what: &str) -> io::Error {
    let path = path.display().to_string();
    io::Error::other(format!("{} {what}", printable(&path)))
}

fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

fn check_metadata(path: &Path, metadata: &Metadata, owner: Owner) -> io::Result<()> {
    if !metadata.is_file() {
        let remedy = if metadata.is_dir() {
            "move it away, or give another path"
        } else {
            "remove it"
        };
        let what = format!("is {}, not a regular file; {remedy}", kind(metadata));
        return Err(unfit(path, &what));
    }
    let (uid, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let is_accepted = match owner {
        Owner::Us => uid == us,
        Owner::UsOr(other) => uid == us || uid == 0 || uid == other,
        Owner::Anyone => true,
    };
    if is_accepted {
        return Ok(());
    }
    Err(unfit(
        path,
        &format!("belongs to user {uid}; remove it, or run dqhost as that user"),
    ))
}

/// What is at the path: a regular file of an accepted owner, or nothing.
///
/// # Errors
///
/// An error of kind [`io::ErrorKind::Other`] tells what else is there; all others are the system's.
pub fn check(path: &Path, owner: Owner) -> io::Result<Option<Metadata>> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => check_metadata(path, &metadata, owner).map(|()| Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file that dqhost alone writes. A file that `options` create can be read by this user only.
/// Symbolic links, pipes and files with several names are refused, and opening never waits.
///
/// `options` must not truncate: what is there is checked after it was opened.
pub fn open_ours(path: &Path, options: &OpenOptions, owner: Owner) -> io::Result<File> {
    let file = open_regular(path, options.clone().mode(0o600), owner)?;
    let names = file.metadata()?.nlink();
    if names > 1 {
        let what = format!("has {names} names (hard links); remove it");
        return Err(unfit(path, &what));
    }
    Ok(file)
}

/// Opens a regular file of an accepted owner. Symbolic links and pipes are refused, and opening never waits.
pub fn open_regular(path: &Path, options: &OpenOptions, owner: Owner) -> io::Result<File> {
    let opened = options
        .clone()
        .custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY))
        .open(path);
    let file = match opened {
        Ok(file) => file,
        // What is there tells more than the system's error, if it is what is wrong.
        Err(error) => return Err(check(path, owner).err().unwrap_or(error)),
    };
    check_metadata(path, &file.metadata()?, owner)?;
    Ok(file)
}

/// Writes a file whole or not at all: under a temporary name in the same folder, then renamed. A file or
/// a symbolic link at the path is replaced, never written through.
///
/// # Errors
///
/// The system's. Nothing of the file is left then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}.tmp", fastrand::u64(..)));
    let temporary = path.with_file_name(name);
    // A new file: nothing that others have prepared under this name is opened.
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .open(&temporary)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// The content of a file that an operator has named, at most one byte more than `max`. Symbolic links are
/// followed. A pipe is read to its end, for at most 10 s.
pub fn read_named(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_if(path, max, |_| Ok(()))
}

/// How a file was chosen that tells this program what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// An operator has named it.
    Named,
    /// It was found at its place: only this user and root may own it, and not every user may write to it.
    Found,
}

/// Like [`read_named`], for a file that tells this program what to do: whoever can write to it decides
/// what this user runs. The text says who else that is, if anybody.
///
/// # Errors
///
/// The system's, or one that says why a file that was found is not used.
pub fn read_trusted(path: &Path, max: u64, trust: Trust) -> io::Result<(Vec<u8>, Option<String>)> {
    let mut warning = None;
    let bytes = read_if(path, max, |file| {
        // Whoever owns a link chooses the file.
        let owner = other_owner(file).or_else(|| other_owner(&path.symlink_metadata().ok()?));
        let refusal = owner.or_else(|| {
            let is_open = file.is_file() && file.mode() & 0o002 != 0;
            is_open.then(|| "any user of this machine can write to it".to_owned())
        });
        if let Some(refusal) = refusal {
            if trust == Trust::Found {
                return Err(io::Error::other(format!(
                    "{refusal}; make it yours alone (chown, chmod go-w), or name it with --config"
                )));
            }
            warning = Some(refusal);
        } else if file.is_file() && file.mode() & 0o020 != 0 {
            warning = Some("its group can write to it".to_owned());
        }
        Ok(())
    })?;
    Ok((bytes, warning))
}

fn other_owner(metadata: &Metadata) -> Option<String> {
    let (uid, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
    (uid != us && uid != 0).then(|| format!("it belongs to user {uid}"))
}

fn read_if(
    path: &Path,
    max: u64,
    accept: impl FnOnce(&Metadata) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let mut file = File::options()
        .read(true)
        .custom_flags(flags(OFlags::NONBLOCK | OFlags::NOCTTY))
        .open(path)?;
    let metadata = file.metadata()?;
    accept(&metadata)?;
    if metadata.file_type().is_fifo() {
        return read_pipe(&mut file, max);
    }
    if !metadata.is_file() {
        let what = format!("it is {}; give a regular file or a pipe", kind(&metadata));
        return Err(io::Error::other(what));
    }
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_pipe(pipe: &mut File, max: u64) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PIPE_LIMIT;
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; PIPE_CHUNK]);
    let enough = usize::try_from(max).unwrap_or(usize::MAX).saturating_add(1);
    while bytes.len() < enough {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&*pipe, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                return Err(io::Error::other(format!(
                    "it is a pipe whose writer did not finish within {PIPE_LIMIT:?}"
                )));
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match pipe.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(enough);
    Ok(bytes)
}

/// True if any user of the machine can read the file: by its own mode, and by the modes of the folders
/// that it is in.
pub fn is_public(path: &Path) -> io::Result<bool> {
    let path = path.canonicalize()?;
    let file = path.metadata()?;
    if !file.is_file() || file.mode() & 0o004 == 0 {
        return Ok(false);
    }
    for folder in path.ancestors().skip(1) {
        if folder.metadata()?.mode() & 0o001 == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Warns, once for each path, if any user of the machine can read the file. Returns true if so.
pub fn warn_if_public(what: &str, path: &Path) -> bool {
    static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if !is_public(path).unwrap_or(false) {
        return false;
    }
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if warned.insert(path.to_owned()) {
        let path = path.display().to_string();
        let path = printable(&path);
        tracing::warn!("any user of this machine can read {what} {path}; run `chmod o-rwx {path}`");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn fifo(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    }

    #[test]
    fn only_a_regular_file_with_one_name_is_opened_to_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("victim"), "content").unwrap();
        symlink(at("victim"), at("link")).unwrap();
        symlink(at("nothing"), at("dangling")).unwrap();
        fifo(&at("pipe"));
        std::fs::create_dir(at("folder")).unwrap();
        std::fs::hard_link(at("victim"), at("name")).unwrap();
        let options = File::options().write(true).create(true).clone();
        for (name, what, remedy) in [
            ("link", "a symbolic link", "remove it"),
            ("dangling", "a symbolic link", "remove it"),
            ("pipe", "a named pipe", "remove it"),
            ("folder", "a directory", "move it away"),
            ("name", "2 names", "remove it"),
        ] {
            let error = open_ours(&at(name), &options, Owner::Us).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(what) && error.contains(remedy), "{error}");
            assert!(error.contains(at(name).to_str().unwrap()), "{error}");
        }
        // A reader makes a pipe one that can be opened; it is refused all the same.
        let _reader = File::options()
            .read(true)
            .custom_flags(flags(OFlags::NONBLOCK))
            .open(at("pipe"))
            .unwrap();
        assert!(open_ours(&at("pipe"), &options, Owner::Us).is_err());
        assert!(!at("nothing").exists());
        assert_eq!(std::fs::read(at("victim")).unwrap(), b"content");
        let made = open_ours(&at("new"), &options, Owner::Us).unwrap();
        assert_eq!(made.metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        let mut uid = 65_534;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(uid), None).unwrap();
            let error = check(&path, Owner::UsOr(1)).unwrap_err().to_string();
            assert!(error.contains("belongs to user 65534"), "{error}");
        } else {
            (path, uid) = ("/etc/passwd".into(), 0);
        }
        let options = File::options().read(true).clone();
        let error = open_ours(&path, &options, Owner::Us).unwrap_err();
        let expected = format!("{} belongs to user {uid}; remove it", path.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert!(check(&path, Owner::UsOr(uid)).is_ok());
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_a_device_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        fifo(&pipe);
        for (max, read) in [(100, &b"secret"[..]), (3, b"secr")] {
            let writer = {
                let pipe = pipe.clone();
                std::thread::spawn(move || {
                    let mut pipe = File::options().write(true).open(pipe).unwrap();
                    pipe.write_all(b"sec").unwrap();
                    pipe.write_all(b"ret").ok();
                })
            };
            assert_eq!(read_named(&pipe, max).unwrap(), read);
            writer.join().unwrap();
        }
        for device in ["/dev/zero", "/"] {
            assert!(read_named(Path::new(device), 3).is_err());
        }
        std::fs::write(folder.path().join("file"), "longer").unwrap();
        let read = read_named(&folder.path().join("file"), 3);
        assert_eq!(read.unwrap(), b"long");
    }

    #[test]
    fn a_file_is_public_if_its_mode_and_those_of_its_folders_allow_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for (of_folder, of_file, expected) in [
            (0o755, 0o644, true),
            (0o711, 0o604, true),
            (0o755, 0o640, false),
            (0o700, 0o644, false),
        ] {
            mode(folder.path(), of_folder);
            mode(&file, of_file);
            let found = is_public(&file).unwrap();
            assert_eq!(found, expected, "{of_folder:o} {of_file:o}");
        }
    }
}
