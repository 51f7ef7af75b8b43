//! `dqhost backup`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::support::{
    Host, RedisServer, dqhost, eventually, feed, guest, run, stats, stderr, stdout,
};

fn send_many(store: &str) {
    let lines = "{\"payload\": \"1\"}\n".repeat(200);
    let sent = feed(dqhost(Some(store), &["send", "--ndjson"]), lines.as_bytes());
    assert!(sent.status.success());
}

/// Each copy is whole by itself, and together with what was acked until then it has every message.
#[test]
fn a_file_is_copied_while_a_host_works_on_it() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (store, handler) = (at("a.db"), guest("sleeper").display().to_string());
    send_many(&store);
    let host = Host::start(&store, &["--handler", &handler, "--slots", "4"]);
    for n in 1..=5 {
        send_many(&store);
        let before = stats(&store, "default")["totals"]["acked"]
            .as_u64()
            .unwrap();
        let copy = at(&format!("copy {n}"));
        let said = stdout(&run(Some(&store), &["backup", &copy], 0));
        assert!(
            said.starts_with("copied into ") && said.contains(" bytes"),
            "{said}"
        );
        let mode = fs::metadata(&copy).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        run(Some(&copy), &["audit"], 0);
        let copied = stats(&copy, "default");
        let count = |name: &str| copied[name].as_u64().unwrap();
        let waiting: u64 = ["pending", "ready", "unack", "retry"]
            .map(count)
            .iter()
            .sum();
        let acked = copied["totals"]["acked"].as_u64().unwrap();
        assert_eq!(waiting + acked, 200 * (n + 1));
        assert!(acked >= before, "{acked} of {before}");
    }
    eventually("all are acked", || {
        (stats(&store, "default")["totals"]["acked"] == 1200).then_some(())
    });
    drop(host);
    // What was in flight in the copy is delivered when the leases of that time end.
    let copy = at("copy 1");
    run(
        Some(&copy),
        &["--handler", &handler, "--exit-when-empty"],
        0,
    );
    assert_eq!(stats(&copy, "default")["totals"]["acked"], 400);
    // Nothing but the copies and the store is left.
    let hidden = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    assert!(
        !fs::read_dir(folder.path())
            .unwrap()
            .any(|entry| hidden(entry.unwrap()))
    );
}

#[test]
fn a_copy_takes_the_place_of_nothing() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let store = at("a.db");
    run(Some(&store), &["send", "x"], 0);
    fs::write(at("there"), "mine").unwrap();
    let told = stderr(&run(Some(&store), &["backup", &at("there")], 1));
    assert!(told.contains("there is a file of this name"), "{told}");
    assert_eq!(fs::read_to_string(at("there")).unwrap(), "mine");
    let told = stderr(&run(Some(&store), &["backup", &at("")], 2));
    assert!(told.contains("is a folder: name the file"), "{told}");
    let told = stderr(&run(Some(&store), &["backup", &at("no/folder")], 1));
    assert!(told.contains("no copy was made in"), "{told}");
    // SQLite itself follows no link.
    fs::create_dir(at("real")).unwrap();
    std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
    run(Some(&store), &["backup", &at("link/copy.db")], 0);
    assert_eq!(stats(&at("real/copy.db"), "default")["ready"], 1);
    let told = stderr(&run(Some(&at("missing.db")), &["backup", &at("new")], 3));
    assert!(told.contains("there is no file"), "{told}");
    assert!(!Path::new(&at("new")).exists());
    let server = RedisServer::start();
    let told = stderr(&run(Some(&server.url()), &["backup", &at("new")], 2));
    assert!(told.contains("BGSAVE"), "{told}");
}
