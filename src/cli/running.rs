//! `dqhost reload`, and how it finds hosts.
//!
//! Each host of a user on a machine keeps a locked file whose name begins with the number of its process. The
//! lock ends with the process, so a file that a crash has left is known by it, and the next look removes it.
//! The folder may be shared with other machines or containers, so the file also says which process it is.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Exit, Usage, folder, log, print, signals};
use crate::files::{self, Owner};
use crate::text::printable;

const TRIES: usize = 5;

/// More than a host writes about itself.
const BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    /// Tell only the host with this process number
    #[arg(long, value_name = "NUMBER")]
    pid: Option<u32>,
    /// Print a JSON object for each host
    #[arg(long)]
    json: bool,
}

/// That this process is a host which can be told to reload, for as long as this is kept.
pub(super) struct Running {
    path: PathBuf,
    /// Its lock ends with it.
    _file: File,
}

impl Running {
    /// Tells of this host. A machine without a place for it is one where signals have to be sent by hand.
    pub(super) fn tell(store: &str) -> Option<Self> {
        let told = Self::try_tell(store);
        if let Err(error) = &told {
            tracing::debug!("`dqhost reload` does not find this host: {error}");
        }
        told.ok()
    }

    fn try_tell(store: &str) -> io::Result<Self> {
        let folder = hosts_folder().ok_or_else(|| io::Error::other("there is no home folder"))?;
        folder::make(&folder)?;
        let pid = std::process::id();
        // In containers that share the folder, several processes may have this number.
        let path = folder.join(format!("{pid}-{}", uuid::Uuid::new_v4().simple()));
        let mut file = locked(&path)?;
        file.set_len(0)?;
        let hears = !signals::is_hangup_ignored();
        let about = json!({"store": store, "hears": hears, "process": identity(pid)});
        writeln!(file, "{about}")?;
        Ok(Self { path, _file: file })
    }
}

/// The file, with the lock of this process. A `dqhost reload` may take it away just before it is locked.
fn locked(path: &Path) -> io::Result<File> {
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .clone();
    for _ in 0..TRIES {
        let file = files::open_ours(path, &options, Owner::Us)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let there = std::fs::symlink_metadata(path).map(|found| found.ino());
        if there.ok() == Some(file.metadata()?.ino()) {
            return Ok(file);
        }
    }
    Err(io::Error::other("it is taken away again and again"))
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn hosts_folder() -> Option<PathBuf> {
    Some(folder::of_user("XDG_STATE_HOME", ".local/state")?.join("hosts"))
}

/// What tells a process from all others that have or had its number: the start of the machine, the namespace
/// of its number, and its own start. None where the system does not say so.
fn identity(pid: u32) -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let fields = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may have anything in it: see proc_pid_stat(5).
    let start = fields.rsplit_once(')')?.1.split_whitespace().nth(19)?;
    Some(format!("{} {} {start}", boot.trim(), namespace.display()))
}

/// A host that runs.
struct Found {
    pid: Pid,
    store: String,
    /// False for one under nohup.
    hears: bool,
}

pub(super) fn reload(args: &ReloadArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let folder = hosts_folder().ok_or_else(|| {
        let reason =
            "there is no home folder in which hosts are listed: send SIGHUP to the process";
        Usage(reason.to_owned())
    })?;
    let mut found = running(&folder).with_context(|| {
        format!(
            "cannot look into {}",
            printable(&folder.display().to_string())
        )
    })?;
    if let Some(pid) = args.pid {
        found.retain(|host| host.pid.as_raw_nonzero().get().unsigned_abs() == pid);
    }
    if found.is_empty() {
        let which = args
            .pid
            .map_or_else(String::new, |pid| format!(" with the number {pid}"));
        tell!("no host of this user{which} runs on this machine");
        return Ok(Exit::Failed);
    }
    let mut exit = Exit::Done;
    let mut out = print::stdout();
    for Found { pid, store, hears } in found {
        let told = hears && kill_process(pid, Signal::HUP).is_ok();
        if !told {
            exit = Exit::Failed;
        }
        let (pid, store) = (pid.as_raw_nonzero(), printable(&store).into_owned());
        if args.json {
            writeln!(out, "{}", json!({"pid": pid, "store": store, "told": told}))?;
        } else if told {
            writeln!(
                out,
                "{pid} reads its files again; its log says what came of it ({store})"
            )?;
        } else {
            tell!("{pid} does not listen, since it runs under nohup or is ending ({store})");
        }
    }
    Ok(exit)
}

fn running(folder: &Path) -> io::Result<Vec<Found>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.split('-').next()?.parse().ok());
        let pid = number.filter(|number| *number > 0).and_then(Pid::from_raw);
        // One that ends just now takes its file away.
        let options = OpenOptions::new().read(true).clone();
        let (Some(pid), Ok(file)) = (pid, files::open_ours(&path, &options, Owner::Us)) else {
            continue;
        };
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            let _ = std::fs::remove_file(&path);
            continue;
        }
        let mut text = String::new();
        let _ = file.take(BYTES_MAX).read_to_string(&mut text);
        let about: Value = serde_json::from_str(&text).unwrap_or_default();
        if about["process"] != json!(identity(pid.as_raw_nonzero().get().unsigned_abs())) {
            // It is a process of another machine or container, and this one has something else here.
            continue;
        }
        found.push(Found {
            pid,
            store: about["store"].as_str().unwrap_or_default().to_owned(),
            hears: about["hears"] != false,
        });
    }
    found.sort_by_key(|host| host.pid.as_raw_nonzero());
    Ok(found)
}
