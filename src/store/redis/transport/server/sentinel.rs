//! Sentinels: they watch a master and its replicas, make a replica the master when it fails, and tell
//! who it is. They are asked before each new connection, so that a failover needs no restart.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{
    AsyncConnectionConfig, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult,
};

use super::{Node, Server, mistake};
use crate::store::redis::transport::timeouts::within_limit;

/// The port of a sentinel that is named without one.
const PORT: u16 = 26_379;

/// How long to wait for each sentinel.
const LIMIT: Duration = Duration::from_secs(1);

/// The sentinels of one master.
pub(super) struct Sentinels {
    at: Vec<Node>,
    master: String,
    /// The one that answered last, which is asked first.
    first: AtomicUsize,
}

/// What is wrong with a URL.
type Complaint = &'static str;

/// `HOST[:PORT]`, the host perhaps an IPv6 address in brackets.
fn node(text: &str) -> Result<Node, Complaint> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => {
            let port = port.parse().map_err(|_| "a port is not a number")?;
            (host, port)
        }
        _ => (text, PORT),
    };
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    if host.is_empty() {
        return Err("the host of a sentinel is missing");
    }
    Ok((host.to_owned(), port))
}

/// The parts of `redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/MASTER[/DB]`, of which
/// the scheme has been taken off; with TLS, `rediss+sentinel`, `scheme` is "rediss". Returned is how
/// the master is logged in to, at an address that is not its own.
pub(super) fn parse(scheme: &str, rest: &str) -> Result<(ConnectionInfo, Sentinels), Complaint> {
    let (authority, path) = rest
        .split_once('/')
        .ok_or("the name of the master is missing")?;
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let at = hosts.split(',').map(node).collect::<Result<Vec<_>, _>>()?;
    let (master, db) = path.split_once('/').unwrap_or((path, "0"));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if master.is_empty() || !master.chars().all(is_name) {
        return Err("the name of the master is missing or not one");
    }
    let info = format!("{scheme}://{user}localhost/{db}")
        .into_connection_info()
        .map_err(|_| "the user, the password or the database is not understood")?;
    let sentinels = Sentinels {
        at,
        master: master.to_owned(),
        first: AtomicUsize::new(0),
    };
    Ok((info, sentinels))
}

impl Sentinels {
    pub(super) fn nodes(&self) -> &[Node] {
        &self.at
    }

    /// As in a URL, after the scheme.
    pub(super) fn name(&self) -> String {
        let hosts = self.at.iter().map(|(host, port)| {
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        });
        let hosts: Vec<String> = hosts.collect();
        format!("{}/{}", hosts.join(","), self.master)
    }

    /// Who is the master now.
    pub(super) async fn master(&self, server: &Server) -> RedisResult<Node> {
        let first = self.first.load(Ordering::Relaxed);
        let mut last = None;
        for offset in 0..self.at.len() {
            let at = (first + offset) % self.at.len();
            match self.ask(server, &self.at[at]).await {
                Ok(Some(master)) => {
                    self.first.store(at, Ordering::Relaxed);
                    return Ok(master);
                }
                Ok(None) => {
                    let master = &self.master;
                    last = Some(mistake(format!("its sentinels know no master {master}")));
                }
                Err(error) => {
                    // Whoever asks next may have no time for another that is silent.
                    self.first.store(at + 1, Ordering::Relaxed);
                    last = last.or(Some(error));
                }
            }
        }
        let none = || RedisError::from((ErrorKind::EmptySentinelList, "no sentinel is named"));
        Err(last.unwrap_or_else(none))
    }

    async fn ask(&self, server: &Server, sentinel: &Node) -> RedisResult<Option<Node>> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LIMIT))
            .set_response_timeout(Some(LIMIT));
        let asking = async {
            let client = server.sentinel(sentinel).await?;
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            let mut command = redis::cmd("SENTINEL");
            command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
            command.query_async(&mut connection).await
        };
        within_limit(LIMIT, asking).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_names_sentinels_and_a_master() {
        let (info, sentinels) = parse("redis", "u:p%40@a,b:7,[::1],[::2]:8/main/3").unwrap();
        let settings = info.redis_settings();
        assert_eq!(settings.username(), Some("u"));
        assert_eq!(settings.password(), Some("p@"));
        assert_eq!(settings.db(), 3);
        assert_eq!(sentinels.name(), "a:26379,b:7,[::1]:26379,[::2]:8/main");
        let (info, _) = parse("redis", "a/main").unwrap();
        assert_eq!(info.redis_settings().password(), None);
    }

    #[test]
    fn what_is_no_such_url_is_refused() {
        for bad in [
            "", "a", "a/", "a:x/main", ",/main", "a,/main", "a/main/x", "a/m n", "/main",
        ] {
            assert!(parse("redis", bad).is_err(), "{bad}");
        }
    }
}
