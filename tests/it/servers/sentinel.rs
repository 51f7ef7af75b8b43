//! A master that sentinels watch: what becomes of hosts and messages when it dies.

use std::collections::BTreeSet;

use serde_json::Value;

use super::tools::{Server, free_port};
use crate::support::{Host, dqhost, eventually, expect, feed, guest, run, stats, stderr, stdout};

/// A master, its replica, and three sentinels.
struct Watched {
    master: Server,
    replica: Server,
    sentinels: Vec<Server>,
}

impl Watched {
    fn start() -> Self {
        let master = Server::start(&[]);
        let port = master.port.to_string();
        let replica = Server::start(&["--replicaof", "127.0.0.1", &port]);
        let lines = [
            format!("sentinel monitor main 127.0.0.1 {port} 2"),
            "sentinel down-after-milliseconds main 500".to_owned(),
            "sentinel failover-timeout main 3000".to_owned(),
        ];
        let sentinels: Vec<Server> = (0..3).map(|_| Server::start_sentinel(&lines)).collect();
        let watched = Self {
            master,
            replica,
            sentinels,
        };
        for sentinel in &watched.sentinels {
            eventually("the sentinels know the replica and each other", || {
                let told: Vec<String> = sentinel.try_command(&["SENTINEL", "MASTER", "main"])?;
                let is = |name: &str, value: &str| {
                    told.windows(2)
                        .any(|pair| pair[0] == name && pair[1] == value)
                };
                (is("num-slaves", "1") && is("num-other-sentinels", "2")).then_some(())
            });
        }
        watched.wait_until_caught_up();
        watched
    }

    /// With one that is not there, first.
    fn url(&self) -> String {
        let at = |sentinel: &Server| format!(",127.0.0.1:{}", sentinel.port);
        let at: String = self.sentinels.iter().map(at).collect();
        format!("redis+sentinel://127.0.0.1:{}{at}/main", free_port())
    }

    /// Returns when the replica has all that the master has now.
    fn wait_until_caught_up(&self) {
        let offset = |server: &Server, name: &str| -> Option<u64> {
            let info: String = server.try_command(&["INFO", "replication"])?;
            let line = info.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        eventually("the replica has caught up", || {
            let sent = offset(&self.master, "master_repl_offset:")?;
            (offset(&self.replica, "slave_repl_offset:")? >= sent).then_some(())
        });
    }

    fn wait_until_promoted(&self) {
        eventually("the replica is the master", || {
            let role: Vec<redis::Value> = self.replica.try_command(&["ROLE"])?;
            (role.first() == Some(&redis::Value::BulkString(b"master".to_vec()))).then_some(())
        });
    }
}

fn send_many(url: &str, count: usize, delay: &str) -> BTreeSet<String> {
    let line = format!("{{\"payload\": \"x\", \"in\": \"{delay}\"}}\n");
    let command = dqhost(Some(url), &["send", "--ndjson"]);
    let output = expect(feed(command, line.repeat(count).as_bytes()), 0);
    stdout(&output).lines().map(str::to_owned).collect()
}

fn wait_until_acked(host: &mut Host, ids: &BTreeSet<String>) {
    for id in ids {
        host.wait_for("acked", |line| line["id"] == id.as_str());
    }
}

fn echo(url: &str) -> Host {
    Host::start(url, &["--handler", guest("echo").to_str().unwrap()])
}

fn wait_until_empty(url: &str) -> Value {
    eventually("nothing waits any more", || {
        let counts = stats(url, "default");
        let waits = ["pending", "ready", "unack", "retry"];
        waits
            .iter()
            .all(|state| counts[state] == 0)
            .then_some(counts)
    })
}

#[test]
fn a_failover_to_a_replica_that_had_everything_loses_nothing() {
    let mut redis = Watched::start();
    let url = redis.url();
    let mut host = echo(&url);
    wait_until_acked(&mut host, &send_many(&url, 1, "0s"));
    let waiting = send_many(&url, 200, "3s");
    assert_eq!(waiting.len(), 200);
    redis.wait_until_caught_up();
    redis.master.kill();
    host.wait_for_start("trying again until the store answers");
    redis.wait_until_promoted();
    host.wait_for("the store answers again", |_| true);
    wait_until_acked(&mut host, &waiting);
    // A producer finds the new master too.
    let new = send_many(&url, 1, "0s");
    wait_until_acked(&mut host, &new);
    let counts = wait_until_empty(&url);
    assert_eq!(counts["totals"]["acked"], 202, "{counts}");
    host.signal(rustix::process::Signal::TERM);
    let (status, _) = host.end();
    assert!(status.success());
}

/// What was acked may run once more, and what was sent may be gone; nothing is stuck.
#[test]
fn a_failover_to_a_replica_that_was_cut_off_wedges_nothing() {
    let mut redis = Watched::start();
    let url = redis.url();
    let mut host = echo(&url);
    let revived = send_many(&url, 20, "2s");
    redis.wait_until_caught_up();
    let nowhere = free_port().to_string();
    let () = redis.replica.command(&["REPLICAOF", "127.0.0.1", &nowhere]);
    // The replica still has them, as messages that wait.
    wait_until_acked(&mut host, &revived);
    send_many(&url, 20, "1h");
    redis.master.kill();
    redis.wait_until_promoted();
    let new = eventually("messages are accepted again", || {
        let output = dqhost(Some(&url), &["send", "x"]).output().unwrap();
        let is_sent = output.status.success();
        is_sent.then(|| BTreeSet::from([stdout(&output).trim().to_owned()]))
    });
    wait_until_acked(&mut host, &new);
    let lost = stats(&url, "default")["pending"] == 0;
    assert!(lost, "the replica was cut off");
    let counts = wait_until_empty(&url);
    assert_eq!(counts["dead"], 0);
    host.signal(rustix::process::Signal::TERM);
    let (status, lines) = host.end();
    assert!(status.success());
    for id in &revived {
        let runs = lines
            .iter()
            .filter(|line| line["message"] == "acked" && line["id"] == id.as_str());
        assert_eq!(runs.count(), 2, "{id} is acked, revived and acked again");
    }
}

#[test]
fn sentinels_that_cannot_help_are_told_apart() {
    let redis = Watched::start();
    let at = format!("127.0.0.1:{}", redis.sentinels[0].port);
    let nobody = format!("127.0.0.1:{}", free_port());
    for (url, says) in [
        (
            format!("redis+sentinel://{at}/other"),
            "know no master other",
        ),
        (format!("redis+sentinel://{nobody}/main"), "refused"),
        (
            format!("redis+sentinel://{at}"),
            "the name of the master is missing",
        ),
        (
            format!("redis+sentinel://u:secret@{at}:x/main"),
            "a port is not a number",
        ),
        (format!("rediss+sentinel://{at}/main"), "rediss+sentinel://"),
    ] {
        let told = stderr(&run(Some(&url), &["stats"], 3));
        assert!(told.contains(says) && !told.contains("secret"), "{told}");
    }
    let with_db = format!("redis+sentinel://{nobody},{at}/main/5");
    run(Some(&with_db), &["send", "x"], 0);
    assert_eq!(stats(&with_db, "default")["ready"], 1);
    assert_eq!(stats(&redis.url(), "default")["ready"], 0);
}
