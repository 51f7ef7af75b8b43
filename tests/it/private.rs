//! What lies on the disk: nothing that another user has prepared is followed, waited for or written to,
//! and nobody else reads what dqhost writes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::{Host, RedisServer, dqhost, expect, guest, run, stats, stderr, stdout};

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Runs the program under the eyes of `timeout`, whose code is 124: a hang must not hold the tests up.
fn within_a_minute(program: &Command) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program.get_program());
    command.args(program.get_args()).stdin(Stdio::null());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.output().unwrap()
}

#[test]
fn no_symbolic_link_beside_the_database_is_written_through() {
    for end in ["-wake", "-wal", "-shm", "-journal"] {
        let folder = TempDir::new().unwrap();
        let db = text(&folder.path().join("q.db"));
        let victim = folder.path().join("victim");
        fs::write(&victim, "content").unwrap();
        symlink(&victim, format!("{db}{end}")).unwrap();
        let output = within_a_minute(&dqhost(Some(&db), &["send", "x"]));
        let errors = stderr(&expect(output, 3));
        assert!(
            errors.contains(&format!("{db}{end} is a symbolic link"))
                && errors.contains("remove it"),
            "{errors}"
        );
        assert_eq!(fs::read(&victim).unwrap(), b"content", "{end}");
        fs::remove_file(format!("{db}{end}")).unwrap();
        run(Some(&db), &["send", "x"], 0);
    }
}

#[test]
fn nothing_hangs_on_a_pipe_in_the_place_of_a_file() {
    for end in ["", "-wake", "-wal", "-shm", "-journal"] {
        let folder = TempDir::new().unwrap();
        let db = text(&folder.path().join("q.db"));
        fifo(Path::new(&format!("{db}{end}")));
        for args in [&["send", "x"] as &[&str], &["stats"]] {
            let output = within_a_minute(&dqhost(Some(&db), args));
            let errors = stderr(&output);
            // A database that is missing is not made to be looked at.
            if end.is_empty() || args[0] == "send" {
                assert!(
                    errors.contains(&format!("{db}{end} is a named pipe")),
                    "{errors}"
                );
            }
            expect(output, 3);
        }
    }
}

#[test]
fn a_database_behind_a_link_of_ours_has_its_companions_beside_it() {
    let folder = TempDir::new().unwrap();
    let (link, other) = (folder.path().join("link.db"), folder.path().join("other"));
    fs::create_dir(&other).unwrap();
    // It leads to a file that does not exist yet.
    symlink("other/q.db", &link).unwrap();
    run(Some(&text(&link)), &["send", "x"], 0);
    assert_eq!(stats(&text(&other.join("q.db")), "default")["ready"], 1);
    assert!(other.join("q.db-wake").exists());
    assert!(!folder.path().join("link.db-wake").exists());
    symlink("circle.db", folder.path().join("circle.db")).unwrap();
    let circle = text(&folder.path().join("circle.db"));
    let errors = stderr(&run(Some(&circle), &["send", "x"], 3));
    assert!(errors.contains("leads in a circle"), "{errors}");
}

/// Only root can give files away.
#[test]
fn what_another_user_has_prepared_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let give_away = |path: &Path| std::os::unix::fs::lchown(path, Some(65_534), None).unwrap();
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let refuses = |db: &Path| {
        let errors = stderr(&run(Some(&text(db)), &["send", "x"], 3));
        assert!(errors.contains("belongs to user 65534"), "{errors}");
    };
    // A companion of a database of ours.
    fs::write(at("q.db-wake"), "").unwrap();
    give_away(&at("q.db-wake"));
    refuses(&at("q.db"));
    assert_eq!(fs::read(at("q.db-wake")).unwrap(), b"");
    // All of it is theirs, as for root who looks at a host's file, and root leaves nothing of its own.
    give_away(&at("q.db"));
    run(Some(&text(&at("q.db"))), &["send", "x"], 0);
    fs::remove_file(at("q.db-wake")).unwrap();
    run(Some(&text(&at("q.db"))), &["send", "x"], 0);
    for file in fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().uid(), 65_534, "{:?}", file.path());
    }
    // In a folder that everyone can write to, whoever came first decides what is there.
    set_mode(folder.path(), 0o1777);
    refuses(&at("q.db"));
    fs::write(at("mine"), "").unwrap();
    symlink(at("mine"), at("link.db")).unwrap();
    give_away(&at("link.db"));
    refuses(&at("link.db"));
}

#[test]
fn a_database_and_its_companions_are_private_from_their_first_moment() {
    let folder = TempDir::new().unwrap();
    let db = text(&folder.path().join("q.db"));
    let program = env!("CARGO_BIN_EXE_dqhost");
    let mut open_to_all = Command::new("sh");
    open_to_all.args([
        "-c",
        "umask 0; exec \"$0\" \"$@\"",
        program,
        "send",
        "x",
        "--db",
        &db,
    ]);
    expect(open_to_all.output().unwrap(), 0);
    let handler = text(&guest("sleeper"));
    let _host = Host::start(&db, &["--handler", &*handler]);
    for end in ["", "-wal", "-shm", "-wake"] {
        assert_eq!(mode(format!("{db}{end}")), 0o600, "{end}");
    }
}

#[test]
fn the_companions_of_a_database_that_is_shared_are_shared() {
    let folder = TempDir::new().unwrap();
    let db = text(&folder.path().join("q.db"));
    fs::write(&db, "").unwrap();
    set_mode(&db, 0o660);
    let handler = text(&guest("sleeper"));
    let _host = Host::start(&db, &["--handler", &*handler]);
    for end in ["", "-wal", "-shm", "-wake"] {
        assert_eq!(mode(format!("{db}{end}")), 0o660, "{end}");
    }
}

#[test]
fn whoever_else_can_read_a_database_a_secret_or_a_password_is_warned_of() {
    let folder = TempDir::new().unwrap();
    set_mode(folder.path(), 0o755);
    let file = |name: &str| {
        let path = folder.path().join(name);
        fs::write(&path, if name == "q.db" { "" } else { "hunter2" }).unwrap();
        set_mode(&path, 0o644);
        path
    };
    let (db, secret, password) = (file("q.db"), file("secret"), file("password"));
    let handler = text(&guest("noop"));
    let given = format!("TOKEN={}", secret.display());
    let args = ["--handler", &*handler, "--secret-file", &*given];
    let mut host = Host::start(&text(&db), &args);
    for (what, path) in [("the database", &db), ("the secret", &secret)] {
        host.wait_for_start(&format!(
            "any user of this machine can read {what} {}; run `chmod o-rwx",
            path.display()
        ));
    }
    let server = RedisServer::start_with(&["--requirepass", "hunter2"]);
    let file = text(&password);
    let mut host = Host::start(
        &server.url(),
        &["--handler", &*handler, "--redis-password-file", &*file],
    );
    host.wait_for_start("any user of this machine can read the password file");
    // For its owner alone, nothing is said.
    for file in fs::read_dir(folder.path()).unwrap() {
        set_mode(file.unwrap().path(), 0o600);
    }
    let host = Host::start(&text(&db), &args);
    host.signal(rustix::process::Signal::TERM);
    let (_, lines) = host.end();
    let about = |line: &serde_json::Value| line.to_string().contains("any user of this machine");
    assert!(!lines.iter().any(about), "{lines:?}");
}

#[test]
fn a_secret_may_come_through_a_pipe_that_does_not_stand_still() {
    let folder = TempDir::new().unwrap();
    let handler = text(&guest("env-reader"));
    let program = env!("CARGO_BIN_EXE_dqhost");
    // The name is shown for the value, so the value is the one that was written.
    let script = "exec \"$0\" run \"$1\" --payload TOKEN --env PLAIN=hunter2 \
        --secret-file TOKEN=<(sleep 0.1; printf 'hunter%s' 2)";
    let mut bash = Command::new("bash");
    bash.args(["-c", script, program, &handler]);
    let shown = stdout(&expect(bash.output().unwrap(), 0));
    assert!(shown.contains("stdout: [secret TOKEN]"), "{shown}");
    let pipe: PathBuf = folder.path().join("pipe");
    fifo(&pipe);
    let given = format!("TOKEN={}", pipe.display());
    let output = within_a_minute(&dqhost(None, &["run", &*handler, "--secret-file", &given]));
    let errors = stderr(&expect(output, 2));
    assert!(errors.contains("did not finish within 10s"), "{errors}");
    let output = within_a_minute(&dqhost(None, &["run", &*text(&pipe)]));
    let errors = stderr(&expect(output, 4));
    assert!(errors.contains("did not finish within 10s"), "{errors}");
}
