//! What there is to say of a store.

use std::path::Path;
use std::time::{Duration, Instant};

use super::Findings;
use crate::cli::open::{self, Missing};
use crate::cli::{StoreArgs, Usage};
use crate::message::QueueName;
use crate::store::Inspect;
use crate::store::address::{self, StoreAddress};
use crate::store::redis::{Defect, Examination, Examined};
use crate::store::sqlite::{Older, SqliteOptions, SqliteStore};

/// Requests of a file that are measured.
const SAMPLES: usize = 9;

/// A request that takes longer costs throughput.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(10);

/// Clocks that are further apart make due times look wrong.
const CLOCKS_MAX_MS: u64 = 1000;

/// A disk on which sends are refused, and one that should have more room.
const FREE_MIN: u64 = 16 << 20;
const FREE_GOOD: u64 = 1 << 30;

/// Kinds of network file systems by their numbers in `statfs`: NFS, SMB, SMB 2, CIFS, Coda, AFS, Ceph, 9P.
#[cfg(target_os = "linux")]
const NETWORK: [u32; 8] = [
    0x6969,
    0x517b,
    0xfe53_4d42,
    0xff53_4d42,
    0x7375_7245,
    0x5346_414f,
    0x00c3_6400,
    0x0102_1997,
];

pub(super) async fn look(
    findings: &mut Findings,
    args: &StoreArgs,
    queue: &QueueName,
) -> anyhow::Result<()> {
    let address = open::named_or_default(args)?;
    match &address {
        StoreAddress::Memory => findings.warn(
            "store",
            "it is in memory, and nothing is kept",
            "give --db PATH or --redis URL",
        ),
        StoreAddress::File(path) => file(findings, path, args, queue).await?,
        StoreAddress::Redis(url) => {
            let settings = open::settings(&address, &args.settings, Missing::Refuse)?;
            let allows_eviction = settings.allow_eviction;
            match address::examine(url, settings, queue).await {
                Ok(found) => servers(findings, found, allows_eviction),
                Err(error) => findings.bad(
                    "store",
                    error.to_string(),
                    "start it, or give its address, user and password",
                ),
            }
            if address.is_in_the_clear() {
                findings.warn(
                    "encryption",
                    "passwords and messages go over the network in the clear",
                    "reach a Redis with TLS by rediss://",
                );
            }
        }
    }
    Ok(())
}

/// One server, or each master of a cluster: a queue may be on any of them.
fn servers(findings: &mut Findings, found: Vec<Examined>, allows_eviction: bool) {
    for Examined { node, examination } in found {
        findings.node = node;
        match examination {
            Ok(examination) => server(findings, &examination, allows_eviction),
            Err(error) => findings.bad(
                "store",
                error.to_string(),
                "start it, or let this machine reach it",
            ),
        }
    }
    findings.node = None;
}

fn server(findings: &mut Findings, found: &Examination, allows_eviction: bool) {
    let info = &found.info;
    findings.ok("store", format!("{} at {}", info.program(), found.name));
    for (about, defect) in [
        ("version", info.age()),
        ("role", info.role()),
        ("disk", info.disk()),
    ] {
        if let Some(Defect { what, mend }) = defect {
            findings.bad(about, what, mend);
        }
    }
    match info.eviction() {
        None => findings.ok(
            "eviction",
            "a full memory refuses messages and deletes none",
        ),
        Some(Defect { what, mend }) if allows_eviction => findings.warn("eviction", what, mend),
        Some(Defect { what, mend }) => findings.bad("eviction", what, mend),
    }
    persistence(findings, found);
    memory(findings, found);
    round_trip(findings, found.round_trip);
    clocks(findings, found.ahead_ms);
    rights(findings, found);
}

fn persistence(findings: &mut Findings, found: &Examination) {
    let about = "persistence";
    let Some(Defect { what, mend }) = found.info.persistence() else {
        return findings.ok(about, "it keeps an append-only file");
    };
    match found.snapshots.as_deref() {
        Some("") => findings.bad(
            about,
            "it keeps no append-only file and no snapshots: its restart loses all messages",
            mend,
        ),
        _ => findings.warn(about, what, mend),
    }
}

fn memory(findings: &mut Findings, found: &Examination) {
    let about = "memory";
    let (used, max) = match found.info.memory() {
        Some((used, Some(max))) => (used, max),
        Some((used, None)) => {
            return findings.ok(about, format!("{} MiB in use, without a limit", used >> 20));
        }
        None => return findings.unknown(about, "it is not known", "allow INFO"),
    };
    let what = format!("{} of {} MiB in use", used >> 20, max >> 20);
    let mend = "let hosts catch up, delete dead letters, or raise maxmemory";
    if used >= max / 20 * 19 {
        findings.bad(about, what + "; sends are refused soon", mend);
    } else if used >= max / 5 * 4 {
        findings.warn(about, what, mend);
    } else {
        findings.ok(about, what);
    }
}

fn round_trip(findings: &mut Findings, took: Duration) {
    let what = format!("half of the requests took at most {took:.1?}");
    if took <= ROUND_TRIP_MAX {
        findings.ok("latency", what);
    } else {
        findings.warn("latency", what, "run the host nearer to its store");
    }
}

fn clocks(findings: &mut Findings, ahead_ms: Option<i64>) {
    let about = "clock";
    let Some(ahead) = ahead_ms else {
        return findings.unknown(about, "the store does not tell its time", "allow TIME");
    };
    let by = Duration::from_millis(ahead.unsigned_abs());
    let side = if ahead < 0 { "behind" } else { "ahead" };
    let what = format!("the store's is {by:?} {side}");
    if ahead.unsigned_abs() <= CLOCKS_MAX_MS {
        findings.ok(about, what);
    } else {
        let mend = "set both by NTP: due times are told by the store's clock";
        findings.warn(about, what, mend);
    }
}

fn rights(findings: &mut Findings, found: &Examination) {
    let about = "rights";
    let mend = "docs/stores.md has the rule for a host (ACL SETUSER)";
    match &found.lacks {
        None => findings.unknown(about, "this user may not ask what it may do", mend),
        Some((user, lacks)) if lacks.is_empty() => {
            findings.ok(about, format!("user {user} may do what a host does"));
        }
        Some((user, lacks)) => {
            let commands = lacks.iter().filter_map(|line| line.split(' ').next());
            let commands = commands.collect::<Vec<_>>().join(", ");
            findings.bad(about, format!("user {user} may not: {commands}"), mend);
        }
    }
}

async fn file(
    findings: &mut Findings,
    path: &Path,
    args: &StoreArgs,
    queue: &QueueName,
) -> Result<(), Usage> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let address = StoreAddress::File(path.to_owned());
    let settings = open::settings(&address, &args.settings, Missing::Refuse)?;
    let mut options = SqliteOptions::file(path);
    (options.durability, options.create) = (settings.durability, settings.create);
    // Whoever only asks changes nothing.
    options.older = Older::Keep;
    if path.exists() {
        match SqliteStore::open(&options).await {
            Ok(store) => opened(findings, &store, queue).await,
            Err(error) => findings.bad(
                "store",
                error.to_string(),
                "mend that; another --db is another store, without these messages",
            ),
        }
    } else if rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok() {
        findings.ok("store", format!("{} will be made", path.display()));
    } else {
        let what = format!("{} is not there and cannot be made", path.display());
        findings.bad(
            "store",
            what,
            "make its folder, and let this user write there",
        );
    }
    disk(findings, folder);
    Ok(())
}

/// What there is to say of a file that was opened.
async fn opened(findings: &mut Findings, store: &SqliteStore, queue: &QueueName) {
    match store.older_schema() {
        None => findings.ok("store", store.describe()),
        Some((0, _)) => {
            let what = format!("{} is empty: a host makes its tables", store.describe());
            return findings.ok("store", what);
        }
        Some((found, known)) => {
            let what = format!(
                "an older dqhost has made {} (schema {found}, this one has {known})",
                store.describe()
            );
            let mend = "the next host brings it up to date; `dqhost backup FILE` copies it as it is, for the \
                        way back";
            return findings.warn("store", what, mend);
        }
    }
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        let asked_at = Instant::now();
        if let Err(error) = store.counts(queue).await {
            let mend = "`dqhost audit` checks the file";
            findings.bad("store", error.to_string(), mend);
        }
        samples.push(asked_at.elapsed());
    }
    samples.sort_unstable();
    round_trip(findings, samples[SAMPLES / 2]);
}

fn disk(findings: &mut Findings, folder: &Path) {
    if let Ok(disk) = rustix::fs::statvfs(folder) {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let what = format!("{} MiB are free", free >> 20);
        let mend = "make room on the disk";
        if free < FREE_MIN {
            findings.bad("disk", what + ", and sends are refused", mend);
        } else if free < FREE_GOOD {
            findings.warn("disk", what, mend);
        } else {
            findings.ok("disk", what);
        }
    }
    #[cfg(target_os = "linux")]
    if let Ok(found) = rustix::fs::statfs(folder) {
        // Its type differs by platform; the numbers have 32 bits.
        #[expect(clippy::cast_possible_truncation, reason = "they have 32 bits")]
        #[expect(clippy::cast_sign_loss, reason = "they have 32 bits")]
        let kind = found.f_type as u32;
        if NETWORK.contains(&kind) {
            let what = "the file is on a network file system, whose locks may not hold";
            findings.bad("file system", what, "put it on a local disk, or use Redis");
        } else {
            findings.ok("file system", "the file is on a local disk");
        }
    }
}
