//! What operators want to know of a server, before a host uses it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Cmd, RedisResult, Value};

use super::keys::{Keys, Naming};
use super::open::RedisOptions;
use super::server_info::ServerInfo;
use super::transport::client::Client;
use super::transport::cluster::Cluster;
use super::transport::server::Server;
use super::{Arc, StoreResult, text};
use crate::message::{MessageId, QueueName};
use crate::store::Operation;

/// Requests that are measured.
const SAMPLES: usize = 9;

/// The commands of a host, as one may ask whether they are allowed. `K` stands for a key of the queue, `M`
/// for one of a payload, `W` for its channel, `Q` for the list of queues.
const OF_HOST: [&str; 40] = [
    "info",
    "ping",
    "evalsha x 0",
    "script load x",
    "subscribe W",
    "time",
    "exists K",
    "get M",
    "mget M",
    "mset M v",
    "del M",
    "persist M",
    "pexpiretime M",
    "hlen K",
    "hgetall K",
    "hmget K f",
    "hset K f v",
    "hdel K f",
    "hincrby K f 1",
    "llen K",
    "lpush K v",
    "rpush K v",
    "lpos K v",
    "lrange K 0 0",
    "ltrim K 0 0",
    "sadd Q v",
    "srem K v",
    "scard K",
    "sismember K v",
    "smismember K v",
    "srandmember K",
    "zadd K 0 v",
    "zcard K",
    "zrange K 0 0",
    "zrangebyscore K 0 0",
    "zrem K v",
    "zremrangebyrank K 0 0",
    "zscore K v",
    "zmscore K v",
    "publish W v",
];

/// What was found out about a server.
#[derive(Debug, Clone)]
pub struct Examination {
    /// How it is called, without secrets.
    pub name: String,
    /// What it says of itself.
    pub info: ServerInfo,
    /// Half of the requests took no longer.
    pub round_trip: Duration,
    /// How many milliseconds its clock is ahead of this machine's; none if it did not tell.
    pub ahead_ms: Option<i64>,
    /// When it writes snapshots; none if it did not tell.
    pub snapshots: Option<String>,
    /// The user that was asked with, and the commands of a host that it may not call; none if it did not
    /// tell.
    pub lacks: Option<(String, Vec<String>)>,
}

/// A server that was asked.
#[derive(Debug)]
pub struct Examined {
    /// Where it is, if it is a node of a cluster.
    pub node: Option<String>,
    /// What was found out, or why nothing was.
    pub examination: StoreResult<Examination>,
}

/// Asks a server what operators want to know, or each master of a cluster. It changes nothing.
pub async fn examine(options: &RedisOptions, queue: &QueueName) -> StoreResult<Vec<Examined>> {
    let server = Arc::new(Server::new(&options.url, options.access.clone())?);
    let client = Client::to_one(&server);
    let naming = Naming {
        hash_tag: options.hash_tag,
        prefix: options.prefix.clone(),
    };
    let info = ServerInfo::read(&client).await?;
    if !info.is_cluster() {
        let examination = examine_one(&client, &server, info, (&naming, queue)).await;
        return Ok(vec![Examined {
            node: None,
            examination: Ok(examination?),
        }]);
    }
    let joined = Cluster::join(Arc::clone(&server)).await;
    let cluster = joined.map_err(|error| client.error(Operation::ReadSlots, &error))?;
    let mut examined = Vec::new();
    for place in cluster.masters() {
        let node = place.as_ref();
        let node = node.map_or_else(
            || server.name.to_string(),
            |(host, port)| format!("{host}:{port}"),
        );
        let client = Client::to_node(&server, place);
        let examination = async {
            let info = ServerInfo::read(&client).await?;
            examine_one(&client, &server, info, (&naming, queue)).await
        };
        examined.push(Examined {
            node: Some(node),
            examination: examination.await,
        });
    }
    Ok(examined)
}

async fn examine_one(
    client: &Client,
    server: &Server,
    info: ServerInfo,
    (naming, queue): (&Naming, &QueueName),
) -> StoreResult<Examination> {
    let (round_trip, ahead_ms) = measure(client).await?;
    let mut save = redis::cmd("CONFIG");
    save.arg("GET").arg("save");
    let snapshots = match one(client, save).await? {
        Ok(Value::Map(pairs)) => pairs.into_iter().next().map(|(_, value)| text(value)),
        Ok(Value::Array(mut pair)) if pair.len() == 2 => pair.pop().map(text),
        _ => None,
    };
    Ok(Examination {
        name: server.name.to_string(),
        info,
        round_trip,
        ahead_ms,
        snapshots,
        lacks: lacks(client, naming, queue).await?,
    })
}

async fn one(client: &Client, command: Cmd) -> StoreResult<RedisResult<Value>> {
    let mut answers = client.run_each(Operation::ReadInfo, &[command]).await?;
    Ok(answers.pop().unwrap_or(Ok(Value::Nil)))
}

/// How long a request takes, and how far the server's clock is ahead by the quickest of them.
async fn measure(client: &Client) -> StoreResult<(Duration, Option<i64>)> {
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        let (asked_at, wall) = (Instant::now(), SystemTime::now());
        let answer = one(client, redis::cmd("TIME")).await?;
        let took = asked_at.elapsed();
        let here = wall.duration_since(UNIX_EPOCH).unwrap_or_default() + took / 2;
        let there = answer.ok().and_then(time);
        samples.push((took, there.map(|there| millis(there) - millis(here))));
    }
    samples.sort_unstable();
    let ahead = samples.first().and_then(|(_, ahead)| *ahead);
    let median = samples.get(SAMPLES / 2).map_or(Duration::ZERO, |one| one.0);
    Ok((median, ahead))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn time(value: Value) -> Option<Duration> {
    let Value::Array(parts) = value else {
        return None;
    };
    let mut numbers = parts.into_iter().map(|part| text(part).parse::<u64>());
    let (seconds, micros) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Duration::from_secs(seconds) + Duration::from_micros(micros))
}

/// The commands of a host that this user may not call.
async fn lacks(
    client: &Client,
    naming: &Naming,
    queue: &QueueName,
) -> StoreResult<Option<(String, Vec<String>)>> {
    let mut who = redis::cmd("ACL");
    who.arg("WHOAMI");
    let Ok(Value::BulkString(user)) = one(client, who).await? else {
        return Ok(None);
    };
    let user = String::from_utf8_lossy(&user).into_owned();
    let keys = Keys::new(queue, naming);
    let payload = keys.message(&MessageId::new());
    let words = |line: &str| {
        let mut command = redis::cmd("ACL");
        command.arg("DRYRUN").arg(&user);
        for word in line.split(' ') {
            match word {
                "K" => command.arg(&keys.ready),
                "M" => command.arg(&payload),
                "W" => command.arg(&keys.wake),
                "Q" => command.arg(naming.queues()),
                word => command.arg(word),
            };
        }
        command
    };
    let commands: Vec<Cmd> = OF_HOST.iter().map(|line| words(line)).collect();
    let answers = client.run_each(Operation::ReadInfo, &commands).await?;
    let mut lacks = Vec::new();
    for (line, answer) in OF_HOST.iter().zip(answers) {
        match answer {
            Ok(Value::Okay) => {}
            Ok(Value::SimpleString(text)) if text == "OK" => {}
            Ok(_) => lacks.push((*line).to_owned()),
            // It may not ask, or the server knows no such question.
            Err(_) => return Ok(None),
        }
    }
    Ok(Some((user, lacks)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_rights_that_are_asked_for_are_those_of_the_documentation() {
        let page = include_str!("../../../docs/stores.md");
        let rule = page
            .lines()
            .find(|line| line.starts_with("ACL SETUSER dq-host "));
        let words = rule
            .unwrap()
            .split(' ')
            .filter_map(|word| word.strip_prefix('+'));
        let documented: BTreeSet<&str> =
            words.map(|word| word.split('|').next().unwrap()).collect();
        let asked = OF_HOST.iter().map(|line| line.split(' ').next().unwrap());
        assert_eq!(asked.collect::<BTreeSet<_>>(), documented);
    }
}
