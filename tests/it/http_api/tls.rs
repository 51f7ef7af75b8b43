//! TLS: the API as curl, which trusts one issuer, reaches it.

use std::fs;
use std::io::{Read, Write};
use std::process::Command;
use std::time::Instant;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use super::Answer;
use crate::support::{Host, PATIENCE, dqhost, eventually, run, stats, stderr};

/// What curl ends with when a server's certificate is of an issuer that it does not trust, and when it is
/// of another key than the one it was told.
const NOT_TRUSTED: i32 = 60;
const OTHER_KEY: i32 = 90;

/// A certificate with its keys, in PEM.
struct Issued {
    certificate: String,
    key: String,
    public_key: String,
}

/// An issuer, and what it has issued, in files.
struct Certificates {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    fn new(issuer: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = &mut params.distinguished_name;
        name.push(rcgen::DnType::CommonName, issuer);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(folder.path().join("issuer.crt"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A certificate for `localhost`.
    fn issue(&self) -> Issued {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: made.pem(),
            key: key.serialize_pem(),
            public_key: key.public_key_pem(),
        }
    }

    fn write(&self, issued: &Issued) {
        fs::write(self.path("server.crt"), &issued.certificate).unwrap();
        fs::write(self.path("server.key"), &issued.key).unwrap();
    }

    /// The HTTP API with this certificate, and its port.
    fn serve(&self) -> (Host, String) {
        let (certificate, key, db) = (
            self.path("server.crt"),
            self.path("server.key"),
            self.path("dqhost.db"),
        );
        let mut args = vec!["serve", "--listen", "127.0.0.1:0"];
        args.extend(["--tls-cert", &certificate, "--tls-key", &key]);
        let mut host = Host::start_command(dqhost(Some(&db), &args));
        let line = host.wait_for("listening", |_| true);
        let at = line["address"].as_str().unwrap();
        let port = at.strip_prefix("https://127.0.0.1:").unwrap().to_owned();
        (host, port)
    }

    /// Sends a message with curl, which trusts the issuer alone and accepts no other key than this.
    fn curl(&self, port: &str, issued: &Issued) -> (Option<i32>, String) {
        let public_key = self.path("public.pem");
        fs::write(&public_key, &issued.public_key).unwrap();
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "60", "-d", "payload"])
            .args(["--cacert", &self.path("issuer.crt")])
            .args(["--pinnedpubkey", &public_key])
            .arg(format!("https://localhost:{port}/queues/q/messages"))
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    /// True if the message was sent, false if another certificate was shown.
    fn sends(&self, port: &str, issued: &Issued) -> bool {
        let (code, text) = self.curl(port, issued);
        let is_sent = code == Some(0);
        assert_eq!(is_sent, text.contains("\"id\":"), "{text}");
        assert!(is_sent || code == Some(OTHER_KEY), "{code:?}: {text}");
        is_sent
    }

    fn sent(&self) -> u64 {
        let stats = stats(&self.path("dqhost.db"), "q");
        stats["totals"]["sent"].as_u64().unwrap()
    }
}

#[test]
fn messages_are_sent_with_a_certificate_that_is_replaced_while_it_is_used() {
    let files = Certificates::new("ours");
    let (first, second) = (files.issue(), files.issue());
    files.write(&first);
    let (mut host, port) = files.serve();
    assert!(files.sends(&port, &first));
    // A key that does not fit, as between the two writes of a renewal, changes nothing.
    fs::write(files.path("server.key"), &second.key).unwrap();
    host.wait_for_start("the certificate and its key stay as they were: the key is not");
    assert!(files.sends(&port, &first));
    assert!(!files.sends(&port, &second));
    files.write(&second);
    eventually("the new certificate is shown", || {
        files.sends(&port, &second).then_some(())
    });
    assert!(files.sent() >= 3);
    // Who trusts another issuer does not speak to it.
    let (code, text) = Certificates::new("another").curl(&port, &second);
    assert_eq!(code, Some(NOT_TRUSTED), "{text}");
}

#[test]
fn what_is_no_tls_is_hung_up_on_and_holds_nobody_up() {
    let files = Certificates::new("ours");
    let issued = files.issue();
    files.write(&issued);
    let (host, port) = files.serve();
    let connect = || {
        let stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    // These say nothing, and have begun before all others.
    let mut silent: Vec<_> = (0..20).map(|_| connect()).collect();
    let mut clear = connect();
    let plain = super::request("POST", "/queues/q/messages", &[], b"payload");
    clear.write_all(&plain).unwrap();
    assert!(Answer::read(&mut clear).is_none());
    assert!(files.sends(&port, &issued));
    assert_eq!(files.sent(), 1);
    // They are hung up on as well, in time.
    let begun = Instant::now();
    for stream in &mut silent {
        assert!(matches!(stream.read(&mut [0; 8]), Ok(0)));
    }
    assert!(begun.elapsed() < PATIENCE);
    host.signal(rustix::process::Signal::TERM);
    assert_eq!(host.end().0.code(), Some(0));
}

#[test]
fn each_mistake_in_the_files_and_flags_is_told() {
    let files = Certificates::new("ours");
    let (issued, other) = (files.issue(), files.issue());
    files.write(&Issued {
        key: other.key,
        ..issued
    });
    let (cert, key) = (files.path("server.crt"), files.path("server.key"));
    let db = files.path("dqhost.db");
    let socket = format!("unix:{}", files.path("socket"));
    for (args, says) in [
        (
            &["--tls-cert", &cert] as &[&str],
            "give both --tls-cert and --tls-key",
        ),
        (&["--tls-key", &key], "give both --tls-cert and --tls-key"),
        (
            &["--tls-cert", &cert, "--tls-key", &key],
            "the key is not the key of the certificate",
        ),
        (
            &["--tls-cert", &cert, "--tls-key", &cert],
            "no private key is in the file of --tls-key",
        ),
        (
            &["--tls-cert", &key, "--tls-key", &key],
            "no certificate is in the file of --tls-cert",
        ),
        (
            &["--tls-cert", "/nowhere", "--tls-key", &key],
            "the certificate and its key cannot be used: /nowhere: ",
        ),
        (
            &["--listen", &socket, "--tls-cert", &cert, "--tls-key", &key],
            "a Unix socket has no TLS",
        ),
    ] {
        let errors = stderr(&run(Some(&db), &[&["serve"], args].concat(), 2));
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
    let handler = crate::support::guest("noop").display().to_string();
    let args = [
        "--handler",
        &handler,
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ];
    let errors = stderr(&run(Some(&db), &args, 2));
    assert!(errors.contains("--tls-cert is for --listen"), "{errors}");
}
