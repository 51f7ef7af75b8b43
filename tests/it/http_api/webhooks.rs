//! Messages that others have signed.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tempfile::TempDir;

use super::{Answer, Api, with_each_store};
use crate::support::{dqhost, eventually, guest, run, stderr, stdout};

const SECRET: &[u8; 24] = b"twenty-four secret bytes";
const OTHER: &[u8; 24] = b"another twenty-four byte";

fn line(name: &str, queues: &str, secret: &[u8]) -> String {
    format!("{name} {queues} whsec_{}\n", STANDARD.encode(secret))
}

/// A request that is signed so many seconds from now.
fn signed(secret: &[u8], id: &str, body: &str, in_s: i64) -> [(&'static str, String); 3] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let at = now.as_secs().checked_add_signed(in_s).unwrap();
    let mut hmac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    hmac.update(format!("{id}.{at}.{body}").as_bytes());
    let signature = STANDARD.encode(hmac.finalize().into_bytes());
    [
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", at.to_string()),
        ("webhook-signature", format!("v1,{signature}")),
    ]
}

fn post(api: &Api, path: &str, headers: &[(&'static str, String)], body: &str) -> Answer {
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    let more = [("content-type", "application/json"), ("dqhost-in", "1h")];
    api.post(path, &[&headers, &more[..]].concat(), body)
}

#[test]
fn a_signed_message_is_sent_once_and_without_a_token() {
    with_each_store(|store| {
        let folder = TempDir::new().unwrap();
        let keys = folder.path().join("keys");
        fs::write(
            &keys,
            line("shop", "q", SECRET) + &line("bank", "other", OTHER),
        )
        .unwrap();
        let tokens = folder.path().join("tokens");
        let token = stdout(&run(None, &["token", "new", "eye", "--role", "view"], 0));
        let (token, granted) = token.split_once('\n').unwrap();
        fs::write(&tokens, granted).unwrap();
        let files = [keys.to_str().unwrap(), tokens.to_str().unwrap()];
        let api = Api::serve(store, &["--webhooks", files[0], "--tokens", files[1]]);
        let of_shop = signed(SECRET, "msg_1", "{}", 0);
        let sent = post(&api, "/queues/q/webhooks", &of_shop, "{}").is(201);
        let again = signed(SECRET, "msg_1", "{}", 1);
        let repeat = post(&api, "/queues/q/webhooks", &again, "{}").is(200);
        assert_eq!(repeat.id(), sent.id());
        let changed = signed(SECRET, "msg_1", "[]", 0);
        post(&api, "/queues/q/webhooks", &changed, "[]").is_problem(422, "another payload");
        for (path, headers, body) in [
            ("/queues/q/webhooks", &of_shop, "{ }"),
            ("/queues/other/webhooks", &of_shop, "{}"),
            ("/queues/q/webhooks", &signed(OTHER, "msg_2", "{}", 0), "{}"),
            (
                "/queues/q/webhooks",
                &signed(SECRET, "msg_2", "{}", -301),
                "{}",
            ),
            (
                "/queues/q/webhooks",
                &signed(SECRET, "msg_2", "{}", 310),
                "{}",
            ),
        ] {
            post(&api, path, headers, body).is_problem(401, "webhook-");
        }
        post(&api, "/queues/q/webhooks", &of_shop[1..], "{}")
            .is_problem(401, "the header webhook-id is missing");
        // Only signed parts count: not when it is due.
        let bearer = format!("Bearer {token}");
        let path = format!("/queues/q/messages/{}", sent.id());
        let found = api
            .ask("GET", &path, &[("authorization", &bearer)], b"")
            .is(200);
        let found = found.json();
        assert_eq!(found["state"], "ready", "{found}");
        let headers = found["headers"].as_array().unwrap();
        let names: Vec<&str> = headers.iter().filter_map(|pair| pair[0].as_str()).collect();
        assert_eq!(names, ["content-type", "webhook-id", "webhook-timestamp"]);
        assert_eq!(headers[1][1], "msg_1");
    });
}

/// What is near the path of signed messages needs a token as ever.
#[test]
fn a_signature_opens_one_path_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let keys = folder.path().join("keys");
    fs::write(&keys, line("shop", "*", SECRET)).unwrap();
    let tokens = folder.path().join("tokens");
    let token = stdout(&run(None, &["token", "new", "a", "--role", "operate"], 0));
    fs::write(&tokens, token.lines().nth(1).unwrap()).unwrap();
    let files = [keys.to_str().unwrap(), tokens.to_str().unwrap()];
    let api = Api::serve(&store, &["--webhooks", files[0], "--tokens", files[1]]);
    for (method, path) in [
        ("GET", "/queues/q/webhooks"),
        ("GET", "/queues/q/messages/webhooks"),
        ("DELETE", "/queues/q/dead/webhooks"),
        ("POST", "/queues/q/dead/webhooks/redrive"),
        ("POST", "/queues/q/messages/webhooks"),
        ("POST", "/queues/webhooks"),
        ("POST", "/queues/q/webhooks/"),
        ("POST", "/queues/webhooks/pause"),
        ("POST", "//queues/q/webhooks"),
    ] {
        let signed = signed(SECRET, "msg_1", "", 0);
        let headers: Vec<(&str, &str)> = signed
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        let status = api.ask(method, path, &headers, b"").status;
        assert_eq!(status, 401, "{method} {path}");
    }
}

#[test]
fn keys_are_read_again_and_wrong_ones_change_nothing() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let keys = folder.path().join("keys");
    let path = keys.to_str().unwrap();
    let none = Api::serve(&store, &[]);
    post(&none, "/queues/q/webhooks", &signed(SECRET, "a", "", 0), "")
        .is_problem(404, "--webhooks FILE");
    let handler = guest("noop").display().to_string();
    for (args, says) in [
        (
            &["serve", "--webhooks", path] as &[&str],
            "the keys of webhooks cannot be used",
        ),
        (
            &["--handler", &handler, "--webhooks", path],
            "--webhooks is for --listen",
        ),
    ] {
        let printed = stderr(&run(Some(&store), args, 2));
        assert!(printed.contains(says), "{args:?}: {printed}");
    }
    fs::write(&keys, line("shop", "q", SECRET)).unwrap();
    let mut api = Api::serve(&store, &["--webhooks", path]);
    let status = |api: &Api, secret: &[u8], id: &str| {
        post(api, "/queues/q/webhooks", &signed(secret, id, "", 0), "").status
    };
    assert_eq!(
        (status(&api, SECRET, "b"), status(&api, OTHER, "c")),
        (201, 401)
    );
    fs::write(&keys, "shop q whsec_short\n").unwrap();
    let kept = api
        .host
        .wait_for_start("the keys of webhooks stay as they were: line 1")
        .to_string();
    assert!(!kept.contains("short"), "{kept}");
    assert_eq!(
        (status(&api, SECRET, "d"), status(&api, OTHER, "e")),
        (201, 401)
    );
    fs::write(&keys, line("shop", "q", OTHER) + &line("shop", "q", SECRET)).unwrap();
    eventually("both secrets are known", || {
        (status(&api, OTHER, "f") != 401).then_some(())
    });
    assert_eq!(status(&api, SECRET, "g"), 201);
}

/// One dqhost sends, and another takes it.
#[test]
fn what_the_webhook_example_signs_is_taken() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("keys"), line("shop", "q", SECRET)).unwrap();
    let api = Api::serve(&at("there.db"), &["--webhooks", &at("keys")]);
    let handler = guest("webhook").display().to_string();
    let url = format!("WEBHOOK_URL=http://{}/queues/q/webhooks", api.at);
    let handle = |secret: &[u8], payload: &str, code: i32| {
        fs::write(at("secret"), format!("whsec_{}\n", STANDARD.encode(secret))).unwrap();
        let secret = format!("WEBHOOK_SECRET={}", at("secret"));
        let args = [
            &[
                "run",
                &handler,
                "--payload",
                payload,
                "--allow-http",
                &api.at,
            ] as &[&str],
            &["--env", &url, "--secret-file", &secret],
        ];
        let output = dqhost(None, &args.concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    };
    handle(SECRET, "17", 0);
    handle(OTHER, "18", 6);
    let page = api.get("/queues/q/messages?state=ready").is(200).json();
    assert_eq!(page["messages"].as_array().unwrap().len(), 1, "{page}");
    assert_eq!(page["messages"][0]["payload"], "17");
}
