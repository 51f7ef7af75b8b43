//! What a server tells of itself: what it must be before a message is entrusted to it.

use super::transport::client::Client;
use super::{StoreResult, text};
use crate::store::Operation;

/// The oldest version that will do.
const MAJOR_MIN: u32 = 7;

/// What is wrong with a server, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub mend: String,
}

impl Defect {
    fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            mend: mend.into(),
        }
    }
}

/// What a server says of itself in its answer to INFO.
#[derive(Debug, Clone)]
pub struct ServerInfo(String);

impl ServerInfo {
    pub(super) async fn read(of: &Client) -> StoreResult<Self> {
        let answers = of.run(Operation::ReadInfo, &[redis::cmd("INFO")]).await?;
        Ok(Self(answers.into_iter().map(text).collect()))
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        lines
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// True for a node of a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.field("cluster_enabled") == Some("1")
    }

    /// Which program it is, and its version.
    #[must_use]
    pub fn program(&self) -> String {
        let others = [
            ("Valkey", "valkey_version"),
            ("Dragonfly", "dragonfly_version"),
            ("Garnet", "garnet_version"),
        ];
        for (name, field) in others {
            if let Some(version) = self.field(field) {
                return format!("{name} {}", version.trim_start_matches("df-v"));
            }
        }
        let is_keydb = |path: &str| path.contains("keydb");
        let name = if self.field("executable").is_some_and(is_keydb) {
            "KeyDB"
        } else {
            "Redis"
        };
        format!("{name} {}", self.version())
    }

    fn version(&self) -> &str {
        self.field("redis_version").unwrap_or("unknown")
    }

    /// It is too old.
    #[must_use]
    pub fn age(&self) -> Option<Defect> {
        let version = self.version();
        let major = version.split('.').next().and_then(|n| n.parse().ok());
        major.is_none_or(|major: u32| major < MAJOR_MIN).then(|| {
            Defect::new(
                format!("it runs Redis {version}, and dqhost needs {MAJOR_MIN}.0 or later (script flags)"),
                "upgrade it, or give another server",
            )
        })
    }

    /// It takes no writes. Any node of a cluster knows the masters.
    #[must_use]
    pub fn role(&self) -> Option<Defect> {
        let is_replica = matches!(self.field("role"), Some("slave" | "replica"));
        (is_replica && !self.is_cluster()).then(|| {
            let (host, port) = (self.field("master_host"), self.field("master_port"));
            let (host, port) = (host.unwrap_or("unknown"), port.unwrap_or("unknown"));
            Defect::new(
                "it is a read-only replica",
                format!("give the address of its master ({host}:{port})"),
            )
        })
    }

    /// What it does when its memory is full.
    #[must_use]
    pub fn policy(&self) -> &str {
        self.field("maxmemory_policy").unwrap_or("unknown")
    }

    /// It may delete messages when its memory is full.
    #[must_use]
    pub fn eviction(&self) -> Option<Defect> {
        let policy = self.policy();
        (policy != "noeviction").then(|| {
            Defect::new(
                format!("its maxmemory-policy is {policy}, so a full memory would silently delete messages"),
                "mend it with `redis-cli CONFIG SET maxmemory-policy noeviction`, or accept the loss with \
                 --allow-eviction",
            )
        })
    }

    /// It writes no log of what it accepts.
    #[must_use]
    pub fn persistence(&self) -> Option<Defect> {
        (self.field("aof_enabled") == Some("0")).then(|| {
            Defect::new(
                "this Redis keeps no append-only file: its restart may lose messages",
                "`redis-cli CONFIG SET appendonly yes`",
            )
        })
    }

    /// Its last write to the disk has failed.
    #[must_use]
    pub fn disk(&self) -> Option<Defect> {
        let fields = ["aof_last_write_status", "rdb_last_bgsave_status"];
        let failed = fields
            .into_iter()
            .find(|field| self.field(field) == Some("err"))?;
        Some(Defect::new(
            format!("its last write to the disk has failed ({failed})"),
            "look into its log, and make room on its disk",
        ))
    }

    /// Bytes in use, and the most that it may use, if there is a limit.
    #[must_use]
    pub fn memory(&self) -> Option<(u64, Option<u64>)> {
        let max = self.number("maxmemory").filter(|max| *max > 0);
        Some((self.number("used_memory")?, max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(lines: &str) -> ServerInfo {
        ServerInfo(lines.to_owned())
    }

    #[test]
    fn programs_are_told_apart() {
        for (lines, program) in [
            ("redis_version:7.2.5\r\n", "Redis 7.2.5"),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n",
                "Valkey 8.0.1",
            ),
            (
                "redis_version:7.4.0\r\ndragonfly_version:df-v1.27.1\r\n",
                "Dragonfly 1.27.1",
            ),
            (
                "garnet_version:1.0.50\r\nredis_version:7.4.3",
                "Garnet 1.0.50",
            ),
            (
                "redis_version:6.3.4\r\nexecutable:/usr/bin/keydb-server\r\n",
                "KeyDB 6.3.4",
            ),
            ("", "Redis unknown"),
        ] {
            assert_eq!(info(lines).program(), program);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        let good = "redis_version:7.0.0\nrole:master\nmaxmemory_policy:noeviction\naof_enabled:1\n\
            aof_last_write_status:ok\nmaxmemory:0\nused_memory:5\n";
        let of = |lines: &str| {
            let info = info(lines);
            [
                info.age(),
                info.role(),
                info.eviction(),
                info.persistence(),
                info.disk(),
            ]
        };
        assert_eq!(of(good), [const { None }; 5]);
        assert_eq!(info(good).memory(), Some((5, None)));
        for (number, (from, to)) in [
            ("version:7", "version:6"),
            ("role:master", "role:slave"),
            ("noeviction", "allkeys-lru"),
            ("enabled:1", "enabled:0"),
            ("status:ok", "status:err"),
        ]
        .into_iter()
        .enumerate()
        {
            let found = of(&good.replace(from, to));
            let which: Vec<usize> = (0..5).filter(|at| found[*at].is_some()).collect();
            assert_eq!(which, [number], "{to}");
        }
        let replica = "role:slave\nmaster_host:h\nmaster_port:7\n";
        assert!(info(replica).role().unwrap().mend.contains("(h:7)"));
        assert_eq!(info("role:slave\ncluster_enabled:1\n").role(), None);
    }
}
