//! `dqhost reload`.

use std::fs;
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Host, dqhost, eventually, expect, guest, stderr, stdout, with_hangups};

/// A user with a home of its own.
struct User(TempDir);

impl User {
    fn host(
        &self,
        store: &str,
        wrap: impl Fn(&std::process::Command) -> std::process::Command,
    ) -> Host {
        let store = self.0.path().join(store).display().to_string();
        let handler = guest("echo").display().to_string();
        let mut command = dqhost(Some(&store), &["--handler", &handler]);
        command.env("XDG_STATE_HOME", self.0.path());
        let mut host = Host::start_command(wrap(&command));
        host.wait_for("serving", |_| true);
        host
    }

    fn reload(&self, args: &[&str], code: i32) -> Output {
        let mut command = dqhost(None, &[&["reload"], args].concat());
        command.env("XDG_STATE_HOME", self.0.path());
        expect(command.output().unwrap(), code)
    }

    /// How many files of hosts there are.
    fn listed(&self) -> usize {
        fs::read_dir(self.0.path().join("dqhost/hosts"))
            .unwrap()
            .count()
    }
}

/// The same command under nohup.
fn with_nohup(command: &std::process::Command) -> std::process::Command {
    let mut with = with_hangups(command);
    let inner = std::mem::replace(&mut with, std::process::Command::new("env"));
    with.arg("--ignore-signal=HUP")
        .args(inner.get_args().skip(1));
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => with.env(name, value),
            None => with.env_remove(name),
        };
    }
    with
}

#[test]
fn all_hosts_of_a_user_are_told_or_one_and_those_that_are_gone_are_forgotten() {
    let user = User(TempDir::new().unwrap());
    let told = stderr(&user.reload(&[], 1));
    assert!(
        told.contains("no host of this user runs on this machine"),
        "{told}"
    );
    let mut hosts = ["a.db", "b.db"].map(|store| user.host(store, with_hangups));
    let told = stdout(&user.reload(&[], 0));
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.contains("a.db)") && told.contains("b.db)"), "{told}");
    for host in &mut hosts {
        host.wait_for_count("the handler has not changed", 1);
    }
    let pid = hosts[0].pid().as_raw_nonzero().to_string();
    let told = stdout(&user.reload(&["--pid", &pid, "--json"], 0));
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (told["pid"].to_string(), &told["told"]),
        (pid.clone(), &true.into())
    );
    hosts[0].wait_for_count("the handler has not changed", 2);
    let [mut killed, ended] = hosts;
    // One leaves its file behind, and the other takes it away.
    killed.signal(Signal::KILL);
    killed.wait_for_end_of_log();
    ended.signal(Signal::TERM);
    assert!(ended.end().0.success());
    eventually("one file is left", || (user.listed() == 1).then_some(()));
    let told = stderr(&user.reload(&["--pid", &pid], 1));
    assert!(
        told.contains(&format!("no host of this user with the number {pid}")),
        "{told}"
    );
    assert_eq!(user.listed(), 0);
}

#[test]
fn a_host_that_hears_no_hangups_is_named() {
    let user = User(TempDir::new().unwrap());
    let mut deaf = user.host("a.db", with_nohup);
    let told = stderr(&user.reload(&[], 1));
    assert!(
        told.contains("does not listen, since it runs under nohup"),
        "{told}"
    );
    deaf.signal(Signal::TERM);
    deaf.wait_for("stopped", |_| true);
}

/// A home may be shared with other machines, which have locks there and processes of any number.
#[test]
fn a_process_of_another_machine_is_not_told() {
    let user = User(TempDir::new().unwrap());
    let host = user.host("a.db", with_hangups);
    let folder = user.0.path().join("dqhost/hosts");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    let about = fs::read_to_string(file.path()).unwrap();
    let mut about: Value = serde_json::from_str(&about).unwrap();
    about["process"] = "another machine".into();
    // The lock stays: it is the same file.
    fs::write(file.path(), about.to_string()).unwrap();
    let told = stderr(&user.reload(&[], 1));
    assert!(told.contains("no host of this user runs"), "{told}");
    assert_eq!(user.listed(), 1);
    drop(host);
}

/// What lies in the folder is not taken for a host, and nothing else is told.
#[test]
fn other_files_in_the_folder_are_left_alone() {
    let user = User(TempDir::new().unwrap());
    let folder = user.0.path().join("dqhost/hosts");
    fs::create_dir_all(&folder).unwrap();
    for name in ["x", "-1", "0", "99999999999999"] {
        fs::write(folder.join(name), "{}").unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", folder.join("1")).unwrap();
    user.reload(&[], 1);
    assert_eq!(user.listed(), 5);
}
