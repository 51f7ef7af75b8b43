//! `oci://` and `dqhost push`, with Debian's docker-registry, and with one that gives tokens.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dqhost::text::hex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::{Server, answer, bytes_of, text};
use crate::servers::tools::free_port;
use crate::support::{Request, dqhost, eventually, expect, guest, stderr, stdout};

/// The password `word` of the user `user`, as htpasswd keeps it.
const PASSWORD: &str = "user:$2b$04$n/dl9QXEd7hlvEM34bCmt.tIpxHIv9Bx3Kg5HKTzoROgO/oSd9tF2\n";

/// The same for a client.
const LOGIN: &str = "dXNlcjp3b3Jk";

struct Registry {
    folder: TempDir,
    port: u16,
    server: Child,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Registry {
    fn start(has_password: bool) -> Self {
        let folder = TempDir::new().unwrap();
        let port = free_port();
        let root = folder.path().join("data");
        let mut settings = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"127.0.0.1:{port}\"}}\n",
            root.display()
        );
        if has_password {
            let file = folder.path().join("htpasswd");
            fs::write(&file, PASSWORD).unwrap();
            let path = file.display();
            let auth = format!("auth: {{htpasswd: {{realm: here, path: {path}}}}}\n");
            settings.push_str(&auth);
        }
        let file = folder.path().join("settings.yml");
        fs::write(&file, settings).unwrap();
        let server = Command::new("docker-registry")
            .args(["serve", text(&file)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry is there (tests/setup.sh redis)");
        eventually("the registry listens", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        Self {
            folder,
            port,
            server,
        }
    }

    fn client(&self, args: &[&str]) -> Command {
        let mut command = dqhost(None, args);
        let home = self.folder.path();
        command
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("DOCKER_CONFIG", home);
        command
    }

    fn ask(&self, args: &[&str], code: i32) -> String {
        let output = expect(self.client(args).output().unwrap(), code);
        stdout(&output) + &stderr(&output)
    }

    /// What it has at a path, and the type of that.
    fn get(&self, path: &str, kind: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let asked = format!("GET /v2/{path} HTTP/1.0\r\nhost: localhost\r\naccept: {kind}\r\n\r\n");
        stream.write_all(asked.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        assert!(
            head.starts_with("http/1.1 200 ") || head.starts_with("http/1.0 200 "),
            "{head}"
        );
        let kind = head
            .lines()
            .find_map(|line| line.strip_prefix("content-type: "));
        (
            kind.unwrap_or_default().to_owned(),
            bytes.split_off(end + 4),
        )
    }

    fn push(&self, file: &Path, to: &str, code: i32) -> String {
        let to = format!("oci://127.0.0.1:{}/{to}", self.port);
        let told = self.ask(&["push", text(file), &to], code);
        // The address stands alone on stdout, which comes first; a slow machine says more on stderr.
        let address = told.lines().next().unwrap_or_default();
        if code == 0 { address } else { told.trim() }.to_owned()
    }

    /// Forgets what the client has kept.
    fn forget(&self) {
        fs::remove_dir_all(self.folder.path().join("cache")).unwrap();
    }
}

#[test]
fn what_is_pushed_is_run_by_its_digest_also_while_the_registry_is_away() {
    let mut registry = Registry::start(false);
    let address = registry.push(&guest("echo"), "team/handlers/echo:v1", 0);
    let start = format!(
        "oci://127.0.0.1:{}/team/handlers/echo@sha256:",
        registry.port
    );
    assert!(address.starts_with(&start), "{address}");
    // Without a tag, too.
    registry.push(&guest("reject"), "team/handlers/echo", 0);
    registry.forget();
    let told = registry.ask(&["run", &address, "--payload", "hello"], 0);
    assert!(told.contains("hello"), "{told}");
    let unknown = format!("{start}{}", "0".repeat(64));
    let told = registry.ask(&["run", &unknown], 4);
    assert!(told.contains("answered 404"), "{told}");
    let told = registry.ask(&["run", &address, "--limit", "component-bytes=1KiB"], 4);
    assert!(told.contains("and 1024 are allowed"), "{told}");
    for (args, says) in [
        (
            vec!["run", start.split('@').next().unwrap()],
            "name the digest",
        ),
        (vec!["push", "x.wasm", &address], "leave out @sha256"),
        (
            vec!["push", "x.wasm", "example.com/x"],
            "it begins with oci://",
        ),
        (vec!["push", &address, "oci://127.0.0.1/x"], "name a file"),
    ] {
        let told = registry.ask(&args, 2);
        assert!(told.contains(says), "{told}");
    }
    let junk = registry.folder.path().join("junk.wasm");
    fs::write(&junk, "no component").unwrap();
    let told = registry.push(&junk, "junk", 4);
    assert!(told.contains("it is not WebAssembly"), "{told}");
    registry.server.kill().unwrap();
    registry.server.wait().unwrap();
    registry.ask(&["run", &address], 0);
    registry.forget();
    let told = registry.ask(&["run", &address], 4);
    assert!(told.contains("is not reached"), "{told}");
    let told = registry.push(&guest("echo"), "echo", 1);
    assert!(told.contains("is not pushed"), "{told}");
}

#[test]
fn the_interface_is_pushed_as_a_package_that_tools_find_by_its_version() {
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    let registry = Registry::start(false);
    let root = format!("oci://127.0.0.1:{}", registry.port);
    let place = format!("{root}/team/dqhost/queue");
    let told = registry.ask(&["push", "--wit", &place], 0);
    assert!(told.starts_with(&format!("{place}@sha256:")), "{told}");
    let (kind, manifest) = registry.get("team/dqhost/queue/manifests/0.1.0", MANIFEST);
    assert_eq!(kind, MANIFEST);
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(
        manifest["config"]["mediaType"],
        "application/vnd.wasm.config.v0+json"
    );
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 1);
    assert_eq!(layers[0]["mediaType"], "application/wasm");
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        registry
            .get(&format!("team/dqhost/queue/blobs/{digest}"), "*/*")
            .1
    };
    let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
    assert_eq!(config["layerDigests"][0], layers[0]["digest"]);
    assert_eq!(
        (&config["architecture"], &config["os"]),
        (&json!("wasm"), &json!("wasip2"))
    );
    let exports = config["component"]["exports"].as_array().unwrap();
    assert!(
        exports.contains(&json!("dqhost:queue/handler@0.1.0")),
        "{config}"
    );
    // What it is, is read out of the bytes again.
    let decoded = wit_parser::decoding::decode(&blob(&layers[0])).unwrap();
    let wit_parser::decoding::DecodedWasm::WitPackage(resolve, package) = decoded else {
        panic!("it is no package of an interface");
    };
    let package = &resolve.packages[package];
    assert_eq!(package.name.to_string(), "dqhost:queue@0.1.0");
    for world in ["consumer", "consumer-async", "consumer-with-logging"] {
        assert!(package.worlds.contains_key(world), "{world}");
    }
    registry.ask(&["push", "--wit", &format!("{place}:0.1.0")], 0);
    for (args, says) in [
        (
            vec!["push", "--wit", &*format!("{root}/team/wit")],
            "its place ends with dqhost/queue",
        ),
        (
            vec!["push", "--wit", &*format!("{place}:latest")],
            "say :0.1.0",
        ),
        (
            vec!["push", "x.wasm", &place, "--wit", &place],
            "cannot be used with",
        ),
        (vec!["push", "x.wasm"], "<TO>"),
    ] {
        let told = registry.ask(&args, 2);
        assert!(told.contains(says), "{told}");
    }
}

#[test]
fn a_registry_with_passwords_wants_that_of_docker_login() {
    let registry = Registry::start(true);
    let told = registry.push(&guest("echo"), "echo", 1);
    assert!(told.contains("`docker login 127.0.0.1:"), "{told}");
    let config = format!(
        r#"{{"auths": {{"127.0.0.1:{}": {{"auth": "{LOGIN}"}}}}}}"#,
        registry.port
    );
    fs::write(registry.folder.path().join("config.json"), config).unwrap();
    let address = registry.push(&guest("echo"), "echo", 0);
    registry.forget();
    registry.ask(&["run", &address], 0);
}

#[test]
fn the_signature_beside_a_file_is_pushed_with_it() {
    let registry = Registry::start(false);
    let folder = registry.folder.path();
    let (file, key, allowed) = (
        folder.join("h.wasm"),
        folder.join("key"),
        folder.join("allowed"),
    );
    fs::copy(guest("echo"), &file).unwrap();
    let keygen = |args: &[&str]| {
        expect(Command::new("ssh-keygen").args(args).output().unwrap(), 0);
    };
    keygen(&["-q", "-t", "ed25519", "-N", "", "-f", text(&key)]);
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    fs::write(&allowed, format!("us {public}")).unwrap();
    let unsigned = registry.push(&file, "h", 0);
    keygen(&["-Y", "sign", "-f", text(&key), "-n", "dqhost", text(&file)]);
    let signed = registry.push(&file, "h", 0);
    assert_ne!(unsigned, signed);
    registry.forget();
    registry.ask(&["run", &signed, "--allowed-signers", text(&allowed)], 0);
    registry.forget();
    let told = registry.ask(&["run", &unsigned, "--allowed-signers", text(&allowed)], 4);
    assert!(told.contains("it is not signed"), "{told}");
}

/// Answers to those with its token, which it gives to everybody.
fn with_tokens(request: &Request, manifest: &[u8], component: &[u8]) -> Vec<u8> {
    let host = &request.headers["host"];
    if request.path == "/token?service=here&scope=repository%3Ateam%2Fh%3Apull" {
        return answer(200, "", br#"{"access_token": "the-token"}"#);
    }
    if request
        .headers
        .get("authorization")
        .is_none_or(|token| token != "Bearer the-token")
    {
        let wanted = format!(
            "www-authenticate: Bearer realm=\"http://{host}/token\",service=\"here\",\
             scope=\"repository:team/h:pull\"\r\n"
        );
        return answer(401, &wanted, b"");
    }
    let path = |kind: &str, bytes: &[u8]| {
        format!("/v2/team/h/{kind}/sha256:{}", hex(&Sha256::digest(bytes)))
    };
    match &request.path {
        asked if *asked == path("manifests", manifest) => answer(200, "", manifest),
        asked if *asked == path("blobs", component) => answer(200, "", component),
        _ => answer(404, "", b""),
    }
}

#[test]
fn a_registry_that_gives_tokens_is_asked_for_one() {
    let component = bytes_of("echo");
    let digest = hex(&Sha256::digest(&component));
    let layer = |kind: &str| {
        let size = component.len();
        format!(
            r#"{{"layers": [{{"mediaType": "{kind}", "digest": "sha256:{digest}", "size": {size}}}]}}"#
        )
    };
    for (kind, code, says) in [
        ("application/wasm", 0, "acked"),
        (
            "text/plain",
            4,
            "the artifact has no layer of the type application/wasm",
        ),
    ] {
        let manifest = layer(kind).into_bytes();
        let of_manifest = hex(&Sha256::digest(&manifest));
        let component = component.clone();
        let answers = move |request: &Request| with_tokens(request, &manifest, &component);
        let server = Server::start(None, Arc::new(answers));
        let address = format!(
            "oci://127.0.0.1:{}/team/h@sha256:{of_manifest}",
            server.port
        );
        let home = TempDir::new().unwrap();
        let mut command = dqhost(None, &["run", &address]);
        command
            .env("XDG_CACHE_HOME", home.path())
            .env("DOCKER_CONFIG", home.path());
        let output = expect(command.output().unwrap(), code);
        let told = stdout(&output) + &stderr(&output);
        assert!(told.contains(says), "{told}");
    }
}

#[test]
fn a_password_goes_to_no_server_that_a_registry_leads_to() {
    let is_told = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_told);
    let thief = Server::start(
        None,
        Arc::new(move |request: &Request| {
            told.fetch_or(
                request.headers.contains_key("authorization"),
                Ordering::SeqCst,
            );
            let realm = format!("http://{}/token", request.headers["host"]);
            let wanted = format!("www-authenticate: Bearer realm=\"{realm}\"\r\n");
            answer(401, &wanted, b"")
        }),
    );
    let place = format!("location: http://127.0.0.1:{}/x\r\n", thief.port);
    let leads = move |_: &Request| answer(307, &place, b"");
    let registry = Server::start(None, Arc::new(leads));
    let home = TempDir::new().unwrap();
    let config = format!(
        r#"{{"auths": {{"127.0.0.1:{}": {{"auth": "{LOGIN}"}}}}}}"#,
        registry.port
    );
    fs::write(home.path().join("config.json"), config).unwrap();
    let address = format!(
        "oci://127.0.0.1:{}/team/h@sha256:{}",
        registry.port,
        "0".repeat(64)
    );
    let mut command = dqhost(None, &["run", &address]);
    command
        .env("XDG_CACHE_HOME", home.path())
        .env("DOCKER_CONFIG", home.path());
    let output = expect(command.output().unwrap(), 4);
    assert!(stderr(&output).contains("answered 401"), "{output:?}");
    assert!(thief.connections() > 0);
    assert!(!is_told.load(Ordering::SeqCst));
}
