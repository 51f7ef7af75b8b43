//! A cluster of three masters: its queues, the move of a queue from node to node while messages pass,
//! and the loss of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use dqhost::store::redis::{RedisOptions, RedisStore};
use rustix::process::Signal;
use serde_json::Value;

use super::acl::{add_users, as_user};
use super::tools::Server;
use crate::support::{Host, dqhost, eventually, guest, run, stats, stderr, stdout};

struct Cluster {
    /// The masters, and a replica for each of those that are to have one.
    nodes: Vec<Server>,
    ids: Vec<String>,
}

/// Slots from one to the other, for each of the masters.
const SLOTS: [[&str; 2]; 3] = [["0", "5460"], ["5461", "10922"], ["10923", "16383"]];

fn is_ok(node: &Server, count: usize) -> Option<()> {
    let info: String = node.try_command(&["CLUSTER", "INFO"])?;
    let known = format!("cluster_known_nodes:{count}\r\n");
    let all = "cluster_slots_ok:16384\r\n";
    (info.contains("cluster_state:ok") && info.contains(&known) && info.contains(all)).then_some(())
}

impl Cluster {
    /// Three masters, and so many replicas, of the first master, the second and so on.
    fn start(replicas: usize) -> Self {
        let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
        let nodes: Vec<Server> = (0..3 + replicas)
            .map(|_| Server::start(&settings))
            .collect();
        let ids: Vec<String> = nodes
            .iter()
            .map(|node| node.command(&["CLUSTER", "MYID"]))
            .collect();
        for (number, node) in nodes.iter().enumerate() {
            let epoch = (number + 1).to_string();
            let () = node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            if let Some([from, to]) = SLOTS.get(number) {
                let () = node.command(&["CLUSTER", "ADDSLOTSRANGE", from, to]);
            }
            let port = nodes[0].port.to_string();
            let () = node.command(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        }
        let cluster = Self { nodes, ids };
        cluster.wait_until_ok(3 + replicas);
        for number in 0..replicas {
            let replica = &cluster.nodes[3 + number];
            let () = replica.command(&["CLUSTER", "REPLICATE", &cluster.ids[number]]);
        }
        for number in 0..replicas {
            eventually("it replicates", || {
                let told: String =
                    cluster.nodes[3 + number].try_command(&["INFO", "replication"])?;
                told.contains("master_link_status:up").then_some(())
            });
        }
        cluster
    }

    fn wait_until_ok(&self, count: usize) {
        for node in &self.nodes {
            eventually("all nodes know each other", || is_ok(node, count));
        }
    }

    fn slot(&self, queue: &str) -> String {
        let key = format!("{{dp:{queue}}}");
        let slot: u16 = self.nodes[0].command(&["CLUSTER", "KEYSLOT", &key]);
        slot.to_string()
    }

    /// Begins to move a slot.
    fn begin_move(&self, slot: &str, from: usize, to: usize) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let () = target.command(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &self.ids[from]]);
        let () = source.command(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &self.ids[to]]);
    }

    /// Moves these keys.
    fn move_keys(&self, keys: &[String], from: usize, to: usize) {
        let port = self.nodes[to].port.to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        let () = self.nodes[from].command(&words);
    }

    /// Moves what is left, a few keys at a time, and then the slot, as an operator does.
    fn end_move(&self, slot: &str, from: usize, to: usize) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        loop {
            let keys: Vec<String> = source.command(&["CLUSTER", "GETKEYSINSLOT", slot, "3"]);
            if keys.is_empty() {
                break;
            }
            self.move_keys(&keys, from, to);
        }
        for node in [target, source].into_iter().chain(&self.nodes) {
            let () = node.command(&["CLUSTER", "SETSLOT", slot, "NODE", &self.ids[to]]);
        }
    }
}

/// The number of the master that has this slot.
fn owner(slot: &str) -> usize {
    let slot: u16 = slot.parse().unwrap();
    let has =
        |[from, to]: &[&str; 2]| (from.parse().unwrap()..=to.parse().unwrap()).contains(&slot);
    SLOTS.iter().position(has).unwrap()
}

fn sent(url: &str, queue: &str) -> Option<String> {
    let output = dqhost(Some(url), &["send", "x", "--queue", queue])
        .output()
        .unwrap();
    let id = stdout(&output).trim().to_owned();
    output.status.success().then_some(id)
}

/// How often each message was acked.
fn acks(lines: &[Value]) -> BTreeMap<String, usize> {
    let mut acks = BTreeMap::new();
    for line in lines.iter().filter(|line| line["message"] == "acked") {
        *acks
            .entry(line["id"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    acks
}

fn end(hosts: Vec<Host>) -> BTreeMap<String, usize> {
    let mut all = Vec::new();
    for host in hosts {
        host.signal(Signal::TERM);
        let (status, lines) = host.end();
        assert!(status.success());
        all.extend(lines);
    }
    acks(&all)
}

fn wait_until_empty(url: &str, queue: &str) -> Value {
    eventually("nothing waits any more", || {
        let output = dqhost(Some(url), &["stats", "--json", "--queue", queue])
            .output()
            .unwrap();
        let counts: Value = serde_json::from_slice(&output.stdout).ok()?;
        let counts = counts["queues"][0].clone();
        let waits = ["pending", "ready", "unack", "retry"];
        waits
            .iter()
            .all(|state| counts[state] == 0)
            .then_some(counts)
    })
}

#[test]
fn events_reach_listeners_wherever_their_queue_is() {
    let cluster = Cluster::start(0);
    let queues = ["a", "b", "c", "d"];
    let owners: BTreeSet<usize> = queues.iter().map(|q| owner(&cluster.slot(q))).collect();
    assert!(owners.len() > 1, "they are on several nodes");
    for queue in queues {
        sent(&cluster.nodes[0].url(), queue).unwrap();
    }
    let args = ["events", "--follow", "a", "b", "c", "d"];
    let mut command = dqhost(Some(&cluster.nodes[1].url()), &args);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut heard = BufReader::new(child.stdout.take().unwrap()).lines();
    for queue in queues {
        let node = &cluster.nodes[owner(&cluster.slot(queue))];
        let key = format!("{{dp:{queue}}}:listeners");
        eventually("somebody listens", || {
            (node.command::<u64>(&["EXISTS", &key]) == 1).then_some(())
        });
    }
    let noop = guest("noop").display().to_string();
    let mut args = vec!["--handler", &noop, "--exit-when-empty"];
    args.extend(queues.iter().flat_map(|queue| ["--queue", queue]));
    run(Some(&cluster.nodes[2].url()), &args, 0);
    let mut acked = BTreeSet::new();
    while acked.len() < queues.len() {
        let line: Value = serde_json::from_str(&heard.next().unwrap().unwrap()).unwrap();
        if line["event"] == "acked" {
            acked.insert(line["queue"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(acked, queues.map(str::to_owned).into());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn queues_of_all_nodes_are_reached_from_any() {
    let cluster = Cluster::start(0);
    let urls: Vec<String> = cluster.nodes.iter().map(Server::url).collect();
    // Some for each node.
    let names: Vec<String> = (0..9).map(|number| format!("q{number}")).collect();
    let owners: BTreeSet<usize> = names
        .iter()
        .map(|name| owner(&cluster.slot(name)))
        .collect();
    assert_eq!(owners.len(), 3);
    for (number, name) in names.iter().enumerate() {
        sent(&urls[number % 3], name).unwrap();
    }
    let listed = stdout(&run(Some(&urls[1]), &["stats", "--json"], 0));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["queues"].as_array().unwrap().len(), 9, "{listed}");

    let echo = guest("echo").display().to_string();
    let served: Vec<String> = names.iter().map(|name| format!("{name}={echo}")).collect();
    let mut args: Vec<&str> = vec!["--exit-when-empty"];
    args.extend(
        served
            .iter()
            .flat_map(|served| ["--queue", served.as_str()]),
    );
    run(Some(&urls[2]), &args, 0);
    for (number, name) in names.iter().enumerate() {
        assert_eq!(stats(&urls[number % 3], name)["totals"]["acked"], 1);
    }
    // A host that sleeps is woken through whatever node it listens to.
    let mut host = Host::start(&urls[0], &args[1..]);
    for name in &names {
        let id = sent(&urls[1], name).unwrap();
        host.wait_for("acked", |line| line["id"] == id.as_str());
    }
    let told = stderr(&run(Some(&urls[0]), &["stats", "--no-hash-tag"], 3));
    assert!(told.contains("leave out --no-hash-tag"), "{told}");
    let () = cluster.nodes[2].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let told = stderr(&run(Some(&urls[0]), &["stats"], 3));
    assert!(
        told.contains("allkeys-lru") && told.contains(&cluster.nodes[2].port.to_string()),
        "{told}"
    );
}

#[tokio::test]
async fn all_nodes_are_kept_from_handlers() {
    let cluster = Cluster::start(0);
    let options = RedisOptions::new(cluster.nodes[0].url());
    let store = RedisStore::open(&options).await.unwrap();
    for node in &cluster.nodes {
        assert_eq!(options.access.endpoints.at_port(node.port), ["127.0.0.1"]);
    }
    drop(store);
}

#[test]
fn users_with_few_rights_do_their_work_in_a_cluster() {
    let cluster = Cluster::start(0);
    for node in &cluster.nodes {
        add_users(node, &["+cluster|slots", "+asking"]);
    }
    let as_user = |name| as_user(&cluster.nodes[0], name);
    let echo = guest("echo").display().to_string();
    for queue in ["q0", "q1", "q2"] {
        sent(&as_user("dq-producer"), queue).unwrap();
        let served = format!("{queue}={echo}");
        run(
            Some(&as_user("dq-host")),
            &["--queue", &served, "--exit-when-empty"],
            0,
        );
        assert_eq!(stats(&as_user("dq-viewer"), queue)["totals"]["acked"], 1);
    }
}

#[test]
fn a_queue_is_moved_to_another_node_while_messages_pass() {
    let cluster = Cluster::start(0);
    let slot = cluster.slot("default");
    let home = owner(&slot);
    let urls: Vec<String> = cluster.nodes.iter().map(Server::url).collect();
    let echo = guest("echo").display().to_string();
    // Both learned the map before the move.
    let mut hosts: Vec<Host> = urls[..2]
        .iter()
        .map(|url| Host::start(url, &["--handler", &echo]))
        .collect();
    let first = sent(&urls[2], "default").unwrap();
    let is_moved = AtomicBool::new(false);
    let accepted: BTreeSet<String> = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..2)
            .map(|number| {
                let (url, is_moved) = (&urls[number], &is_moved);
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    while !is_moved.load(Ordering::SeqCst) || ids.len() < 20 {
                        ids.extend(sent(url, "default"));
                    }
                    ids
                })
            })
            .collect();
        for turn in 0..6 {
            let (from, to) = ((home + turn) % 3, (home + turn + 1) % 3);
            cluster.begin_move(&slot, from, to);
            cluster.end_move(&slot, from, to);
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        is_moved.store(true, Ordering::SeqCst);
        let ids = producers
            .into_iter()
            .flat_map(|producer| producer.join().unwrap());
        ids.collect()
    });
    let last = sent(&urls[0], "default").unwrap();
    let counts = wait_until_empty(&urls[1], "default");
    assert_eq!(
        (&counts["dead"], &counts["totals"]["expired"]),
        (&0.into(), &0.into())
    );
    // In one of the two logs.
    eventually("the last one is in a log", || {
        hosts
            .iter_mut()
            .any(|host| host.has("acked", &last))
            .then_some(())
    });
    let acks = end(hosts);
    assert!(accepted.len() >= 40 && acks.contains_key(&first));
    for id in &accepted {
        assert_eq!(acks.get(id), Some(&1), "{id}");
    }
    assert!(acks.values().all(|times| *times == 1), "{acks:?}");
    assert_eq!(counts["totals"]["acked"], acks.len());
}

/// Half of a queue is here and half is there: what needs one key is done where that is, what needs
/// more waits for the rest.
#[test]
fn a_queue_between_two_nodes_is_seen_and_waits() {
    let cluster = Cluster::start(0);
    let slot = cluster.slot("default");
    let from = owner(&slot);
    let to = (from + 1) % 3;
    let url = cluster.nodes[from].url();
    let id = sent(&url, "default").unwrap();
    cluster.begin_move(&slot, from, to);
    cluster.move_keys(&["{dp:default}:ready".to_owned()], from, to);
    let counts = stats(&url, "default");
    assert_eq!(
        (&counts["ready"], &counts["totals"]["sent"]),
        (&1.into(), &1.into())
    );
    // A script that the other node does not know yet, about a key that is nowhere.
    run(Some(&url), &["pause"], 0);
    assert_eq!(stats(&url, "default")["paused"], true);
    run(Some(&url), &["resume"], 0);
    let told = stderr(&run(Some(&url), &["send", "x"], 3));
    assert!(
        told.contains("is not reachable (send)") && told.contains("TryAgain"),
        "{told}"
    );
    cluster.end_move(&slot, from, to);
    sent(&url, "default").unwrap();
    let echo = guest("echo").display().to_string();
    run(Some(&url), &["--handler", &echo, "--exit-when-empty"], 0);
    let counts = stats(&url, "default");
    assert_eq!(counts["totals"]["acked"], 2, "{id}: {counts}");
}

#[test]
fn the_loss_of_a_node_is_survived_where_it_has_a_replica() {
    let mut cluster = Cluster::start(3);
    let slot = cluster.slot("default");
    let dies = owner(&slot);
    // The one that dies is also the one that everyone was told to ask.
    let url = cluster.nodes[dies].url();
    let echo = guest("echo").display().to_string();
    let mut host = Host::start(&url, &["--handler", &echo]);
    let before = sent(&url, "default").unwrap();
    host.wait_for("acked", |line| line["id"] == before.as_str());
    let waits = run(Some(&url), &["send", "later", "--in", "3s"], 0);
    let waits = stdout(&waits).trim().to_owned();
    let replica = 3 + dies;
    eventually("the replica has it", || {
        let offset = |node: usize, name: &str| -> Option<u64> {
            let info: String = cluster.nodes[node].try_command(&["INFO", "replication"])?;
            let line = info.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        let sent = offset(dies, "master_repl_offset:")?;
        (offset(replica, "slave_repl_offset:")? >= sent).then_some(())
    });
    cluster.nodes[dies].kill();
    let other = cluster.nodes[(dies + 1) % 3].url();
    let after = eventually("the replica has taken over", || sent(&other, "default"));
    for id in [&waits, &after] {
        host.wait_for("acked", |line| line["id"] == id.as_str());
    }
    wait_until_empty(&other, "default");
    assert!(end(vec![host]).values().all(|times| *times == 1));
}

#[test]
fn queues_of_others_are_found_on_all_nodes_and_a_prefix_is_refused() {
    let cluster = Cluster::start(0);
    let url = cluster.nodes[0].url();
    let mut nodes = BTreeSet::new();
    let mut expected = Vec::new();
    for number in 0..9 {
        let queue = format!("q{number}");
        let home = owner(&cluster.slot(&queue));
        let at = |name: &str| format!("{{dp:{queue}}}:{name}");
        let () = cluster.nodes[home].command(&["SET", &at("msg:x"), "from go"]);
        let () = cluster.nodes[home].command(&["HSET", &at("retry:cnt"), "x", "3"]);
        let () = cluster.nodes[home].command(&["ZADD", &at("pending"), "1", "x"]);
        nodes.insert(home);
        expected.push(queue);
    }
    assert_eq!(nodes.len(), 3);
    let listed = stdout(&run(Some(&url), &["stats", "--discover", "--json"], 0));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let found = listed["queues"].as_array().unwrap().iter();
    let found: Vec<&str> = found
        .map(|queue| queue["queue"].as_str().unwrap())
        .collect();
    assert_eq!(found, expected);

    let told = stderr(&run(Some(&url), &["stats", "--prefix", "shop"], 3));
    assert!(told.contains("Leave out --prefix"), "{told}");
    // A message of another prefix, whose keys are with another node than its payload.
    let slot: String = {
        let slot: u16 = cluster.nodes[0].command(&["CLUSTER", "KEYSLOT", "{shop:q0}"]);
        slot.to_string()
    };
    let () = cluster.nodes[owner(&slot)].command(&["HSET", "{shop:q0}:retry:cnt", "y", "3"]);
    let () = cluster.nodes[owner(&slot)].command(&["ZADD", "{shop:q0}:pending", "1", "y"]);
    let home = owner(&cluster.slot("q0"));
    let () = cluster.nodes[home].command(&["SET", "{dp:q0}:msg:y", "of shop"]);
    run(Some(&url), &["audit", "--repair", "--queue", "q0"], 0);
    assert_eq!(stats(&url, "q0")["dead"], 0);
}

/// One queue after the other would take a second each.
#[test]
fn a_host_of_many_queues_stops_soon_while_its_cluster_is_silent() {
    const QUEUES: usize = 64;
    let cluster = Cluster::start(0);
    let url = cluster.nodes[0].url();
    let echo = guest("echo").display().to_string();
    let names: Vec<String> = (0..QUEUES).map(|number| format!("q{number}")).collect();
    let served: Vec<String> = names.iter().map(|name| format!("{name}={echo}")).collect();
    let args: Vec<&str> = served
        .iter()
        .flat_map(|served| ["--queue", served.as_str()])
        .collect();
    let mut host = Host::start(&url, &args);
    for name in &names {
        let id = sent(&url, name).unwrap();
        host.wait_for("acked", |line| line["id"] == id.as_str());
    }
    for node in &cluster.nodes {
        node.signal(Signal::STOP);
    }
    // All of them have seen it: from here on each asks where its keys are.
    for name in &names {
        host.wait_for_queue("trying again until the store answers", name);
    }
    let told = std::time::Instant::now();
    host.signal(Signal::TERM);
    let (status, _) = host.end();
    let took = told.elapsed();
    for node in &cluster.nodes {
        node.signal(Signal::CONT);
    }
    assert!(status.success());
    assert!(took.as_secs() < QUEUES as u64 / 2, "{took:?}");
}

/// An empty hash tag is none, so the keys of such a "queue" are on many nodes.
#[test]
fn a_name_with_an_empty_hash_tag_ends_no_audit() {
    let cluster = Cluster::start(0);
    let set = |words: [&str; 3]| {
        let slot: u16 = cluster.nodes[0].command(&["CLUSTER", "KEYSLOT", words[1]]);
        let () = cluster.nodes[owner(&slot.to_string())].command(&words);
    };
    set(["SADD", "{}x:q}:garbage", "orphan"]);
    set(["SET", "{dp:q}:msg:orphan", "x"]);
    let url = cluster.nodes[0].url();
    let args = ["audit", "--repair", "--queue", "q"];
    let told = stdout(&run(Some(&url), &args, 0));
    assert!(told.contains("orphan-payload"), "{told}");
    assert_eq!(stats(&url, "q")["dead"], 1);
}

/// A queue may be on any master, so what is wrong with the last one matters as much.
#[test]
fn a_doctor_looks_at_each_master() {
    let cluster = Cluster::start(0);
    let url = cluster.nodes[0].url();
    let doctor = |code| {
        let output = run(Some(&url), &["doctor", "--json"], code);
        let lines = stdout(&output);
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<serde_json::Value>>()
    };
    let about = |found: &[serde_json::Value], about: &str, level: &str| {
        let of_it = found
            .iter()
            .filter(|one| one["about"] == about && one["level"] == level);
        let what = of_it.map(|one| one["what"].as_str().unwrap().to_owned());
        what.collect::<Vec<String>>()
    };
    let nodes: Vec<String> = cluster
        .nodes
        .iter()
        .map(|node| format!("127.0.0.1:{}: ", node.port))
        .collect();
    let found = doctor(0);
    let stores = about(&found, "store", "ok");
    assert_eq!(stores.len(), 3, "{stores:?}");
    for node in &nodes {
        assert!(
            stores.iter().any(|what| what.starts_with(node)),
            "{stores:?}"
        );
    }
    for number in [1, 2] {
        let policy = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
        let () = cluster.nodes[number].command(&policy);
    }
    let evicting = about(&doctor(1), "eviction", "bad");
    assert_eq!(evicting.len(), 2, "{evicting:?}");
    assert!(!evicting.iter().any(|what| what.starts_with(&nodes[0])));
}
