//! What the process of a host gives up, since it never needs it: the sandbox is not the only wall around
//! guests. Where the system cannot do it, the host works as well without.

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
