//! Which node of a cluster holds which keys.
//!
//! A cluster has 16,384 slots; a key is in the slot that its hash tag gives, and a slot is with one master.
//! A node that is asked for a slot which it does not have answers MOVED, with the address of the one that
//! has it. While the slot is on its way there it answers ASK.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::select_ok;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
};

use super::server::{Node, NodeAddr, Server};
use super::timeouts::within_limit;
use crate::store::redis::decode::text;

const SLOTS: usize = 16_384;

/// How long to wait for a node that is asked for the map.
const LIMIT: Duration = Duration::from_secs(1);

/// Nodes that are asked for the map at once, beside that of the URL.
const ASKED_AT_ONCE: usize = 3;

/// What is known of a cluster. Shared by all connections to it.
pub(crate) struct Cluster {
    pub server: Arc<Server>,
    /// A std mutex: nothing is awaited while it is held.
    map: Mutex<Map>,
    /// Held while nodes are asked for the map, so that it is asked for once. What came of the last time
    /// if it failed.
    asking: tokio::sync::Mutex<Option<RedisError>>,
    /// How often nodes were asked in vain.
    failures: AtomicU64,
}

struct Map {
    /// Masters and replicas, for when the map is asked for.
    places: BTreeSet<NodeAddr>,
    /// By slot.
    owners: Vec<Option<Arc<NodeAddr>>>,
    /// Something happened that says that it may be wrong.
    is_stale: bool,
}

/// CRC-16/XMODEM, as clusters use it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

fn slot_of_key(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|from| {
        let rest = &key[from + 1..];
        let to = rest.iter().position(|byte| *byte == b'}')?;
        (to > 0).then(|| &rest[..to])
    });
    crc16(tag.unwrap_or(key)) % 16_384
}

/// The slot of a command's first key, or of the pattern that it looks for; none for one without keys.
fn slot_of_command(command: &Cmd) -> Option<u16> {
    let mut words = command.args_iter().filter_map(|arg| match arg {
        redis::Arg::Simple(bytes) => Some(bytes),
        _ => None,
    });
    let key = match words.next()? {
        b"EVALSHA" | b"EVALSHA_RO" => words.nth(2)?,
        b"SCAN" => {
            words.find(|word| *word == b"MATCH")?;
            words.next()?
        }
        b"INFO" | b"TIME" | b"SCRIPT" | b"PING" => return None,
        _ => words.next()?,
    };
    Some(slot_of_key(key))
}

/// The slot of commands that go together: all keys of a queue are in one.
pub(crate) fn slot_of(commands: &[Cmd]) -> Option<u16> {
    commands.iter().find_map(slot_of_command)
}

/// A place as a node names it. An empty host is the one that was asked, and no port the address that
/// it was asked at.
pub(crate) fn place(host: &str, port: u16, asked: &NodeAddr) -> NodeAddr {
    match (host, port, asked) {
        (_, 0, _) | ("" | "?", _, None) => asked.clone(),
        ("" | "?", port, Some((asked, _))) => Some((asked.clone(), port)),
        (host, port, _) => Some((host.to_owned(), port)),
    }
}

impl Cluster {
    /// Learns the map from the node of the URL.
    pub(crate) async fn join(server: Arc<Server>) -> RedisResult<Self> {
        let cluster = Self::unknown(server);
        cluster.refresh().await?;
        Ok(cluster)
    }

    /// Without a map.
    fn unknown(server: Arc<Server>) -> Self {
        Self {
            server,
            map: Mutex::new(Map {
                places: BTreeSet::new(),
                owners: vec![None; SLOTS],
                is_stale: true,
            }),
            asking: tokio::sync::Mutex::default(),
            failures: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who has this slot, as far as is known; none when nobody has. For no slot, anyone.
    pub(crate) async fn owner(&self, slot: Option<u16>) -> RedisResult<Option<Arc<NodeAddr>>> {
        let Some(slot) = slot else {
            return Ok(Some(Arc::new(self.anyone())));
        };
        let known = |map: &Map| map.owners[usize::from(slot) % SLOTS].clone();
        {
            let map = self.lock();
            if !map.is_stale {
                return Ok(known(&map));
            }
        }
        self.refresh().await?;
        Ok(known(&self.lock()))
    }

    /// Any of the nodes.
    pub(crate) fn anyone(&self) -> NodeAddr {
        let map = self.lock();
        let number = fastrand::usize(..map.places.len().max(1));
        map.places.iter().nth(number).cloned().flatten()
    }

    /// The masters that have slots.
    pub(crate) fn masters(&self) -> BTreeSet<NodeAddr> {
        let map = self.lock();
        map.owners
            .iter()
            .flatten()
            .map(|owner| NodeAddr::clone(owner))
            .collect()
    }

    pub(crate) fn knows(&self, place: &NodeAddr) -> bool {
        self.lock().places.contains(place)
    }

    /// Notes what a MOVED says.
    pub(crate) fn moved(&self, slot: u16, to: NodeAddr) {
        let mut map = self.lock();
        map.places.insert(to.clone());
        map.owners[usize::from(slot) % SLOTS] = Some(Arc::new(to));
    }

    /// Asks for the map before it is used again.
    pub(crate) fn mark_stale(&self) {
        self.lock().is_stale = true;
    }

    /// Brings the map up to date. Those who wait while nodes are asked share what comes of it, also a
    /// failure. With a try for each, one after the other, a host of 64 queues took a minute to stop while
    /// its cluster was silent.
    async fn refresh(&self) -> RedisResult<()> {
        let failures = self.failures.load(Ordering::Relaxed);
        let mut last_failure = self.asking.lock().await;
        if !self.lock().is_stale {
            return Ok(());
        }
        if let Some(failure) = &*last_failure
            && self.failures.load(Ordering::Relaxed) > failures
        {
            return Err(failure.clone());
        }
        let asked = self.ask_some().await;
        if let Err(failure) = &asked {
            *last_failure = Some(failure.clone());
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        asked
    }

    /// Asks some nodes for the map, in any choice, and that of the URL. The first answer counts, so that
    /// nobody waits for a node that is silent.
    async fn ask_some(&self) -> RedisResult<()> {
        let mut places: Vec<NodeAddr> = {
            let map = self.lock();
            map.places
                .iter()
                .filter(|place| place.is_some())
                .cloned()
                .collect()
        };
        fastrand::shuffle(&mut places);
        places.truncate(ASKED_AT_ONCE);
        places.push(None);
        let asked = places.into_iter().map(|place| Box::pin(self.ask(place)));
        let ((ranges, asked), _) = select_ok(asked).await?;
        self.learn(&ranges, &asked);
        Ok(())
    }

    async fn ask(&self, place: NodeAddr) -> RedisResult<(Vec<Range>, NodeAddr)> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LIMIT))
            .set_response_timeout(Some(LIMIT));
        let asking = async {
            let client = self.server.client(place.as_ref()).await?;
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            let mut command = redis::cmd("CLUSTER");
            command.arg("SLOTS");
            command.query_async(&mut connection).await
        };
        let answer: Vec<Value> = within_limit(LIMIT, asking).await?;
        let ranges: Vec<Range> = answer.into_iter().filter_map(range).collect();
        if ranges.iter().all(|range| range.nodes.is_empty()) {
            // One that was reset, or has left, and knows of nobody.
            let what = "a node of the cluster knows no slots";
            return Err((ErrorKind::Server(ServerErrorKind::ClusterDown), what).into());
        }
        Ok((ranges, place))
    }

    fn learn(&self, ranges: &[Range], asked: &NodeAddr) {
        let mut map = self.lock();
        map.owners = vec![None; SLOTS];
        map.places.clear();
        for Range { from, to, nodes } in ranges {
            let of = |(host, port): &Node| place(host, *port, asked);
            map.places.extend(nodes.iter().map(of));
            let owner = nodes.first().map(|node| Arc::new(of(node)));
            let (from, to) = (usize::from(*from), usize::from(*to) + 1);
            if let Some(slots) = map.owners.get_mut(from..to) {
                slots.fill(owner);
            }
        }
        for node in map.places.iter().flatten() {
            self.server.note(node);
        }
        map.is_stale = false;
    }
}

/// Slots, from one to the other, with their master and its replicas.
struct Range {
    from: u16,
    to: u16,
    nodes: Vec<Node>,
}

/// An entry of CLUSTER SLOTS: from, to, and of each node the host, the port and what is not needed.
fn range(entry: Value) -> Option<Range> {
    let Value::Array(parts) = entry else {
        return None;
    };
    let mut parts = parts.into_iter();
    let mut slot = || match parts.next()? {
        Value::Int(slot) => u16::try_from(slot).ok(),
        _ => None,
    };
    let (from, to) = (slot()?, slot()?);
    let node = |node| match node {
        Value::Array(parts) => {
            let mut parts = parts.into_iter();
            let host = text(parts.next()?);
            let Some(Value::Int(port)) = parts.next() else {
                return None;
            };
            Some((host, u16::try_from(port).ok()?))
        }
        _ => None,
    };
    let nodes = parts.filter_map(node).collect();
    Some(Range { from, to, nodes })
}

/// What to do with a command that a node did not run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot is there now.
    Moved(u16, NodeAddr),
    /// This time there.
    Ask(NodeAddr),
    /// Again in a moment: its keys are on their way, or it is being decided who has them.
    Wait,
}

/// None for an error that is none of these. `asked` is where it comes from.
pub(crate) fn redirect(error: &RedisError, asked: &NodeAddr) -> Option<Redirect> {
    match error.kind() {
        ErrorKind::Server(kind @ (ServerErrorKind::Moved | ServerErrorKind::Ask)) => {
            let (address, slot) = error.redirect_node()?;
            let (host, port) = address.rsplit_once(':')?;
            let to = place(host, port.parse().ok()?, asked);
            Some(match kind {
                ServerErrorKind::Moved => Redirect::Moved(slot, to),
                _ => Redirect::Ask(to),
            })
        }
        ErrorKind::Server(ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown) => {
            Some(Redirect::Wait)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::Access;

    #[tokio::test]
    async fn those_who_wait_for_the_map_of_a_silent_cluster_share_one_failure() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", silent.local_addr().unwrap());
        let server = Server::new(&url, Access::default()).unwrap();
        let cluster = Cluster::unknown(Arc::new(server));
        let mut connections = Vec::new();
        let waits = futures_util::future::join_all((0..64).map(|slot| cluster.owner(Some(slot))));
        let answers = tokio::select! {
            answers = waits => answers,
            () = async {
                loop {
                    connections.push(silent.accept().await.unwrap());
                }
            } => unreachable!(),
        };
        assert!(answers.iter().all(Result::is_err));
        assert_eq!(connections.len(), 1);
        // Who comes later asks anew.
        let again = tokio::join!(cluster.owner(Some(1)), silent.accept());
        assert!(again.0.is_err() && again.1.is_ok());
    }

    #[test]
    fn keys_are_in_the_slots_that_redis_says() {
        // As CLUSTER KEYSLOT answers.
        for (key, slot) in [
            ("123456789", 12_739),
            ("dqhost:queues", 9667),
            ("{dp:default}:ready", 3087),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
        ] {
            assert_eq!(slot_of_key(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn commands_go_where_their_keys_are() {
        let mut script = redis::cmd("EVALSHA");
        script.arg("hash").arg(1).arg("{a}:x").arg("b");
        let mut scan = redis::cmd("SCAN");
        scan.arg(0).arg("COUNT").arg(10).arg("MATCH").arg("{a}:*");
        let mut get = redis::cmd("GET");
        get.arg("{a}:y");
        let a = Some(slot_of_key(b"a"));
        for command in [script, scan, get] {
            assert_eq!(slot_of(&[redis::cmd("TIME"), command]), a);
        }
        assert_eq!(slot_of(&[redis::cmd("INFO")]), None);
    }

    #[test]
    fn nodes_without_a_name_are_those_that_were_asked() {
        let asked = Some(("h".to_owned(), 1));
        assert_eq!(place("", 2, &asked), Some(("h".to_owned(), 2)));
        assert_eq!(place("i", 2, &asked), Some(("i".to_owned(), 2)));
        assert_eq!(place("", 0, &asked), asked);
        assert_eq!(place("", 2, &None), None);
        assert_eq!(place("fd00::1", 2, &None), Some(("fd00::1".to_owned(), 2)));
    }
}
