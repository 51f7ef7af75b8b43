//! What the process of a host gives up, since it never needs it: the sandbox is not the only wall around
//! guests. Where the system cannot do it, the host works as well without.

use std::io;
use std::path::PathBuf;

use crate::runtime::{Limits, compile_threads};

/// Descriptors of a process that compiles.
const PIPES: u64 = 3;

/// No program that it starts gains privileges (set-user-ID files have no effect), and no core file shows
/// its memory. It holds for threads that start later, so this comes before all others.
pub(super) fn give_up_privileges() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let _ = rustix::thread::set_no_new_privs(true);
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = setrlimit(Resource::Core, none);
    }
}

/// Other processes of this user can neither trace the host nor read its memory, which holds secrets.
///
/// The engine opens `/proc/self/pagemap` when it is made, which only root may do after this.
pub(super) fn hide_memory() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// Limits this process, which compiles a component that may be hostile. It opens no file or socket after
/// this, and ends with the process that started it.
pub(super) fn confine_compiler(limits: &Limits) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    give_up_privileges();
    #[cfg(target_os = "linux")]
    {
        let signal = Some(rustix::process::Signal::KILL);
        let _ = rustix::process::set_parent_process_death_signal(signal);
        // If the machine has no memory left, this process ends before its host.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    }
    close_inherited();
    let at_most = |resource, wanted: u64, margin: u64| {
        let allowed = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit {
            current: Some(wanted.min(allowed)),
            maximum: Some(wanted.saturating_add(margin).min(allowed)),
        };
        setrlimit(resource, limit)
    };
    let seconds = limits.compile_time.as_secs().saturating_add(1);
    let of_all_threads = seconds.saturating_mul(compile_threads() as u64);
    at_most(Resource::Data, limits.compile_memory as u64, 0)?;
    // At the second of the two the signal would not say why.
    at_most(Resource::Cpu, of_all_threads, 1)?;
    at_most(Resource::Fsize, 0, 0)?;
    at_most(Resource::Nofile, PIPES, 0)?;
    Ok(())
}

/// Closes all descriptors but the three pipes. Those of the host close by themselves; others may come
/// from whatever started the host.
fn close_inherited() {
    let folder = if cfg!(target_os = "linux") {
        "/proc/self/fd"
    } else {
        "/dev/fd"
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str());
        let descriptor: Option<i32> = name.and_then(|name| name.parse().ok());
        // The one by which the folder was read is closed by now.
        let is_open = path.symlink_metadata().is_ok();
        if let Some(descriptor) = descriptor.filter(|n| *n >= 3 && is_open) {
            #[expect(
                unsafe_code,
                reason = "nothing in this process has opened a file yet that it still uses"
            )]
            unsafe {
                rustix::io::close(descriptor);
            }
        }
    }
}
