//! TLS, and passwords in files.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use super::tools::{Server, free_port};
use crate::support::{Host, dqhost, expect, guest, run, stats, stderr, stdout};

type Ca = CertifiedIssuer<'static, KeyPair>;

/// A CA whose certificate is in a file.
fn ca(folder: &Path, name: &str) -> Ca {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let ca = Ca::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join(format!("{name}.crt")), ca.pem()).unwrap();
    ca
}

/// A certificate for these names, and its key, in files.
fn certificate(folder: &Path, ca: &Ca, name: &str, of: &[&str]) {
    let of: Vec<String> = of.iter().map(|&name| name.to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(of)
        .unwrap()
        .signed_by(&key, ca)
        .unwrap();
    std::fs::write(folder.join(format!("{name}.crt")), made.pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// A server that speaks TLS only and wants certificates of the CA `ours`, as it has one itself.
struct Secured {
    files: TempDir,
    server: Server,
}

impl Secured {
    /// Its certificate is for these names.
    fn start(names: &[&str]) -> Self {
        let files = TempDir::new().unwrap();
        let ours = ca(files.path(), "ours");
        let theirs = ca(files.path(), "theirs");
        certificate(files.path(), &ours, "server", names);
        certificate(files.path(), &ours, "client", &["client"]);
        certificate(files.path(), &theirs, "stranger", &["client"]);
        let port = free_port();
        let path = |name: &str| files.path().join(name).display().to_string();
        let arguments = [
            ["--port", "0"].map(str::to_owned),
            ["--tls-port".to_owned(), port.to_string()],
            ["--tls-cert-file".to_owned(), path("server.crt")],
            ["--tls-key-file".to_owned(), path("server.key")],
            ["--tls-ca-cert-file".to_owned(), path("ours.crt")],
        ];
        let server = Server::start_at(port, &arguments.concat());
        Self { files, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}", self.server.port)
    }

    /// The flags that name these files.
    fn flags(&self, files: &[(&str, &str)]) -> Vec<String> {
        let pair = |(flag, name): &(&str, &str)| {
            [(*flag).to_owned(), self.path(name).display().to_string()]
        };
        files.iter().flat_map(pair).collect()
    }
}

const ALL: [(&str, &str); 3] = [
    ("--redis-ca", "ours.crt"),
    ("--redis-cert", "client.crt"),
    ("--redis-key", "client.key"),
];

#[test]
fn messages_pass_through_tls_with_certificates_on_both_sides() {
    let redis = Secured::start(&["localhost", "127.0.0.1"]);
    let handler = guest("echo");
    for (number, host) in ["localhost", "127.0.0.1"].into_iter().enumerate() {
        let url = redis.url(host);
        let with = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            [words, redis.flags(&ALL)].concat()
        };
        run(Some(&url), &with(&["send", "x"]), 0);
        let handler = handler.to_str().unwrap();
        run(
            Some(&url),
            &with(&["--handler", handler, "--exit-when-empty"]),
            0,
        );
        let told = stdout(&run(Some(&url), &with(&["stats", "--json"]), 0));
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["queues"][0]["totals"]["acked"], number + 1, "{told}");
    }
    // The same from the environment, as a host woken by another: its subscription goes through TLS too.
    let mut command = dqhost(Some(&redis.url("localhost")), &["send", "x"]);
    for (flag, name) in ALL {
        let variable = flag
            .trim_start_matches('-')
            .replace('-', "_")
            .to_uppercase();
        command.env(format!("DQHOST_{variable}"), redis.path(name));
    }
    expect(command.output().unwrap(), 0);
}

#[test]
fn a_server_that_cannot_be_trusted_is_refused() {
    let redis = Secured::start(&["redis.example"]);
    let (own, other) = (redis.url("127.0.0.1"), redis.url("localhost"));
    let [_, cert, key] = ALL;
    for (url, files, says) in [
        (&own, ALL.to_vec(), "another host"),
        (&other, ALL.to_vec(), "another host"),
        (&own, vec![cert, key], "a CA that is not trusted"),
        (
            &own,
            vec![("--redis-ca", "theirs.crt"), cert, key],
            "a CA that is not trusted",
        ),
        (
            &own,
            vec![("--redis-ca", "server.key"), cert, key],
            "no certificate is in it",
        ),
        (
            &own,
            vec![("--redis-ca", "missing.crt"), cert, key],
            "No such file",
        ),
    ] {
        let args = [vec!["stats".to_owned()], redis.flags(&files)].concat();
        let told = stderr(&run(Some(url), &args, 3));
        assert!(told.contains(says), "{files:?}: {told}");
    }
    // There is no way to say that it does not matter.
    let insecure = format!("{own}/#insecure");
    run(
        Some(&insecure),
        &[vec!["stats".to_owned()], redis.flags(&ALL)].concat(),
        3,
    );
}

#[test]
fn a_client_that_the_server_does_not_trust_is_told_why() {
    let redis = Secured::start(&["localhost"]);
    let url = redis.url("localhost");
    let [ca, cert, key] = ALL;
    let stranger = [
        ("--redis-cert", "stranger.crt"),
        ("--redis-key", "stranger.key"),
    ];
    for (files, code, says) in [
        (vec![ca], 3, "--redis-cert FILE and --redis-key FILE"),
        (
            [&[ca][..], &stranger[..]].concat(),
            3,
            "does not take the certificate",
        ),
        (
            vec![ca, cert, ("--redis-key", "stranger.key")],
            3,
            "KeyMismatch",
        ),
        (
            vec![ca, ("--redis-cert", "client.key"), key],
            3,
            "no certificate is in it",
        ),
        (vec![ca, cert], 2, "--redis-key"),
    ] {
        let args = [vec!["stats".to_owned()], redis.flags(&files)].concat();
        let told = stderr(&run(Some(&url), &args, code));
        assert!(told.contains(says), "{files:?}: {told}");
    }
    let plain = Server::start(&[]);
    let secured = plain.url().replace("redis://", "rediss://");
    let args = [vec!["stats".to_owned()], redis.flags(&[ca])].concat();
    run(Some(&secured), &args, 3);
    // Files for TLS are no help where there is none.
    run(Some(&plain.url()), &args, 2);
}

/// A server on an address of this machine's network cannot be had in every test, so what is not there
/// must do: the warning comes before the connection is tried.
#[test]
fn what_goes_in_the_clear_is_told_once() {
    let handler = guest("echo");
    let args = ["--handler", handler.to_str().unwrap(), "--no-tui"];
    let warned = |url: &str| {
        let told = dqhost(Some(url), &args).output().unwrap();
        stderr(&expect(told, 3)).matches("in the clear").count()
    };
    assert_eq!(warned("redis://redis.invalid"), 1);
    assert_eq!(warned("rediss://redis.invalid"), 0);
    assert_eq!(warned("redis://127.0.0.1:1"), 0);
}

#[test]
fn the_password_may_be_in_a_file() {
    let server = Server::start(&["--requirepass", "first-secret"]);
    let files = TempDir::new().unwrap();
    let file = files.path().join("password");
    let path = file.to_str().unwrap();
    let url = server.url();
    let flag = ["--redis-password-file", path];
    let send = |code| {
        let told = run(Some(&url), &[&["send", "x"][..], &flag].concat(), code);
        stderr(&told)
    };
    for (content, says) in [
        (&b""[..], "it is empty"),
        (b"\n", "it is empty"),
        (b"\xff\xfe", "it is not text"),
        (&[b'x'; 5000], "more than 4096 bytes"),
        (b"wrong-secret\n", "password"),
    ] {
        std::fs::write(&file, content).unwrap();
        let told = send(3);
        assert!(
            told.contains(says) && !told.contains("wrong-secret"),
            "{told}"
        );
    }
    std::fs::remove_file(&file).unwrap();
    assert!(send(3).contains("No such file"));
    for end in ["", "\n", "\r\n"] {
        std::fs::write(&file, format!("first-secret{end}")).unwrap();
        send(0);
    }
    let mut command = dqhost(Some(&url), &["send", "x"]);
    command.env("DQHOST_REDIS_PASSWORD_FILE", path);
    expect(command.output().unwrap(), 0);
    let in_both = url.replace("redis://", "redis://:first-secret@");
    let told = run(Some(&in_both), &[&["stats"][..], &flag].concat(), 2);
    assert!(!stderr(&told).contains("first-secret"));

    // To another store and back.
    let db = files.path().join("a.db");
    let db = db.to_str().unwrap();
    for (from, to) in [(&*url, db), (db, &*url)] {
        run(
            None,
            &[&["move", "--from", from, "--to", to][..], &flag].concat(),
            0,
        );
    }
}

#[test]
fn a_new_password_is_taken_up_without_a_restart() {
    let server = Server::start(&["--requirepass", "first-secret"]);
    let files = TempDir::new().unwrap();
    let file = files.path().join("password");
    std::fs::write(&file, "first-secret\n").unwrap();
    let handler = guest("echo");
    let flag = ["--redis-password-file", file.to_str().unwrap()];
    let args = [&["--handler", handler.to_str().unwrap()][..], &flag].concat();
    let mut host = Host::start(&server.url(), &args);
    let as_admin = |password: &str, words: &[&str]| {
        let url = server
            .url()
            .replace("redis://", &format!("redis://:{password}@"));
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let mut command = redis::cmd(words[0]);
        let () = command.arg(&words[1..]).query(&mut connection).unwrap();
    };
    as_admin(
        "first-secret",
        &["CONFIG", "SET", "requirepass", "second-secret"],
    );
    std::fs::write(&file, "second-secret\n").unwrap();
    as_admin(
        "second-secret",
        &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
    );
    as_admin("second-secret", &["CLIENT", "KILL", "TYPE", "pubsub"]);
    run(
        Some(&server.url()),
        &[&["send", "x"][..], &flag].concat(),
        0,
    );
    host.wait_for("acked", |_| true);
    host.signal(rustix::process::Signal::TERM);
    let (status, lines) = host.end();
    assert!(status.success());
    assert!(!serde_json::to_string(&lines).unwrap().contains("secret"));
    let url = server.url().replace("redis://", "redis://:second-secret@");
    assert_eq!(stats(&url, "default")["totals"]["acked"], 1);
}
