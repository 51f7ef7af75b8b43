//! `--allowed-signers`: what nobody of the file has signed does not run.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Web, bytes_of, text};
use crate::dashboard::tty::Tty;
use crate::support::{Host, dqhost, expect, guest, run, stderr, with_hangups};

/// Keys, and who may sign.
struct Signers {
    folder: TempDir,
    allowed: PathBuf,
}

impl Signers {
    /// Of whose keys all but the one of `stranger` are allowed.
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let allowed = folder.path().join("allowed");
        let mut lines = String::new();
        for kind in ["ed25519", "ecdsa", "rsa", "stranger"] {
            let key = folder.path().join(kind);
            let kind_of = if kind == "stranger" { "ed25519" } else { kind };
            keygen(&["-q", "-t", kind_of, "-N", "", "-f", text(&key)]);
            if kind != "stranger" {
                let key = fs::read_to_string(key.with_extension("pub")).unwrap();
                let _ = write!(lines, "{kind}@example.com namespaces=\"dqhost,git\" {key}");
            }
        }
        fs::write(&allowed, lines).unwrap();
        Self { folder, allowed }
    }

    /// Signs a file, whose signature is beside it then.
    fn sign(&self, key: &str, namespace: &str, file: &Path) {
        let _ = fs::remove_file(sig(file));
        let key = self.folder.path().join(key);
        keygen(&["-Y", "sign", "-f", text(&key), "-n", namespace, text(file)]);
    }

    /// A component that nobody has signed yet.
    fn file(&self, name: &str) -> PathBuf {
        let file = self.folder.path().join(format!("{name}.wasm"));
        fs::copy(guest(name), &file).unwrap();
        file
    }

    fn run(&self, file: &Path, code: i32) -> String {
        let args = ["run", text(file), "--allowed-signers", text(&self.allowed)];
        stderr(&run(None, &args, code))
    }
}

fn keygen(args: &[&str]) {
    expect(Command::new("ssh-keygen").args(args).output().unwrap(), 0);
}

fn sig(file: &Path) -> PathBuf {
    PathBuf::from(format!("{}.sig", file.display()))
}

#[test]
fn a_handler_runs_if_one_of_the_signers_has_signed_it() {
    let signers = Signers::new();
    let file = signers.file("echo");
    let told = signers.run(&file, 4);
    assert!(
        told.contains("echo.wasm is refused: it is not signed: there is no "),
        "{told}"
    );
    for key in ["ed25519", "ecdsa", "rsa"] {
        signers.sign(key, "dqhost", &file);
        signers.run(&file, 0);
    }
    signers.sign("stranger", "dqhost", &file);
    let told = signers.run(&file, 4);
    assert!(
        told.contains("has signed it, which is nobody in "),
        "{told}"
    );
    signers.sign("rsa", "git", &file);
    let told = signers.run(&file, 4);
    assert!(told.contains("its signature is for \"git\""), "{told}");
    // A signature of other bytes, and something that is none.
    signers.sign("ecdsa", "dqhost", &file);
    fs::copy(guest("reject"), &file).unwrap();
    let told = signers.run(&file, 4);
    assert!(
        told.contains("its signature is not one of these bytes"),
        "{told}"
    );
    fs::write(sig(&file), "\u{1b}[2J").unwrap();
    let told = signers.run(&file, 4);
    assert!(
        told.contains("its signature is none of OpenSSH's"),
        "{told}"
    );
    fs::write(&signers.allowed, "somebody\n").unwrap();
    let told = signers.run(&file, 4);
    assert!(
        told.contains("line 1 is not NAME [OPTIONS] TYPE KEY"),
        "{told}"
    );
}

#[test]
fn each_bit_of_a_signature_counts() {
    let signers = Signers::new();
    let file = signers.file("echo");
    signers.sign("ed25519", "dqhost", &file);
    let whole = fs::read_to_string(sig(&file)).unwrap();
    // Letters of the Base64, from its last line to its first.
    for (at, letter) in whole
        .char_indices()
        .filter(|(_, c)| c.is_ascii_alphanumeric())
        .step_by(23)
    {
        let other = if letter == 'A' { "B" } else { "A" };
        let mut changed = whole.clone();
        changed.replace_range(at..=at, other);
        fs::write(sig(&file), changed).unwrap();
        signers.run(&file, 4);
    }
}

#[test]
fn a_handler_is_replaced_by_a_signed_one_only() {
    let signers = Signers::new();
    let file = signers.file("echo");
    signers.sign("ed25519", "dqhost", &file);
    let db = signers
        .folder
        .path()
        .join("dqhost.db")
        .display()
        .to_string();
    let mut args = vec!["--handler", text(&file)];
    args.extend(["--allowed-signers", text(&signers.allowed), "--watch"]);
    let mut host = Host::start_command(with_hangups(&dqhost(Some(&db), &args)));
    host.wait_for("serving", |_| true);
    let new = signers.file("reject");
    fs::rename(&new, &file).unwrap();
    host.wait_for_start("the old handler goes on: ");
    // The signature alone is what changes now.
    signers.sign("ecdsa", "dqhost", &file);
    host.wait_for("the handler was replaced", |_| true);
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
    // Without its signature the host does not start.
    fs::remove_file(sig(&file)).unwrap();
    let refused = stderr(&run(Some(&db), &args[..4], 4));
    assert!(refused.contains("it is not signed"), "{refused}");
}

#[test]
fn a_server_has_the_signature_beside_the_handler() {
    let signers = Signers::new();
    let file = signers.file("echo");
    let web = Web::start();
    let echo = bytes_of("echo");
    web.put("/h.wasm", &echo);
    let url = web.url("/h.wasm", &echo);
    let args = [&*url, "--allowed-signers", text(&signers.allowed)];
    let told = web.run(&args, 4);
    assert!(
        told.contains("it is not signed: there is no https://localhost:"),
        "{told}"
    );
    signers.sign("stranger", "dqhost", &file);
    web.put("/h.wasm.sig", &fs::read(sig(&file)).unwrap());
    assert!(web.run(&args, 4).contains("nobody in "));
    signers.sign("rsa", "dqhost", &file);
    web.put("/h.wasm.sig", &fs::read(sig(&file)).unwrap());
    web.run(&args, 0);
    // Both are kept, and the signature is checked again.
    web.files.lock().unwrap().clear();
    web.run(&args, 0);
    fs::write(&signers.allowed, "").unwrap();
    web.run(&args, 4);
}

#[test]
fn a_server_that_is_away_is_not_said_to_have_no_signature() {
    let signers = Signers::new();
    let web = Web::start();
    let echo = bytes_of("echo");
    web.put("/h.wasm", &echo);
    let url = web.url("/h.wasm", &echo);
    // The handler is kept, and its server is away then.
    web.run(&[&url], 0);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let url = url.replace(&format!(":{}/", web.server.port), &format!(":{port}/"));
    let told = web.run(&[&url, "--allowed-signers", text(&signers.allowed)], 4);
    assert!(told.contains("its signature cannot be fetched: "), "{told}");
    assert!(told.contains("is not reached"), "{told}");
    assert!(!told.contains("not signed"), "{told}");
}

#[test]
fn a_trial_on_a_queue_that_is_not_served_takes_a_signed_handler_only() {
    let signers = Signers::new();
    let store = signers.folder.path().join("dqhost.db");
    let store = store.display().to_string();
    let reject = guest("reject").display().to_string();
    run(Some(&store), &["send", "x", "--queue", "other"], 0);
    let bury = [
        "--handler",
        &reject,
        "--queue",
        "other",
        "--exit-when-empty",
    ];
    run(Some(&store), &bury, 0);
    let file = signers.file("echo");
    signers.sign("ed25519", "dqhost", &file);
    let spec = format!("q={}", file.display());
    let args = [
        "--queue",
        &spec,
        "--allowed-signers",
        text(&signers.allowed),
    ];
    let mut tty = Tty::start(&store, &args, (120, 40));
    tty.wait_for("> q");
    let unsigned = signers.file("reject");
    let trial = |file: &Path| format!(":try all --queue other --handler {}\r", file.display());
    tty.keys(&trial(&unsigned));
    tty.wait_for("it is not signed");
    tty.keys(&trial(&file));
    tty.wait_for("acks 1 of 1");
    tty.keys("q");
    tty.end(0);
}
