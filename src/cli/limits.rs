//! The limits of handlers by name, as `--limit` takes them.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::time;
use crate::runtime::Limits;
use crate::store::{OUTBOX_BYTES_MAX, OUTBOX_MAX};

/// One limit that can be set by its name.
struct Named {
    name: &'static str,
    what: &'static str,
    kind: Kind,
}

/// What kind of value it has, where that is kept, and which are taken.
enum Kind {
    Count(fn(&mut Limits) -> &mut usize, RangeInclusive<usize>),
    Bytes(fn(&mut Limits) -> &mut usize, RangeInclusive<usize>),
    Time(fn(&mut Limits) -> &mut Duration),
}

const MIB: usize = 1024 * 1024;

/// All of them, but for time and memory, which have flags of their own.
const ALL: [Named; 18] = [
    Named {
        name: "tables",
        what: "tables of a component",
        kind: Kind::Count(|l| &mut l.tables, 1..=1000),
    },
    Named {
        name: "table-elements",
        what: "elements of a table",
        kind: Kind::Count(|l| &mut l.table_elements, 1..=10_000_000),
    },
    Named {
        name: "instances",
        what: "core instances of a component",
        kind: Kind::Count(|l| &mut l.instances, 1..=1000),
    },
    Named {
        name: "stack",
        what: "stack of guest code",
        kind: Kind::Bytes(|l| &mut l.stack, MIB / 16..=64 * MIB),
    },
    Named {
        name: "resources",
        what: "handles that a run holds at a time",
        kind: Kind::Count(|l| &mut l.resources, 1..=1_000_000),
    },
    Named {
        name: "call-bytes",
        what: "one call to the host, or the verdict",
        kind: Kind::Bytes(|l| &mut l.call_bytes, 1024..=256 * MIB),
    },
    Named {
        name: "log-bytes",
        what: "kept of what a run prints and logs",
        kind: Kind::Bytes(|l| &mut l.log_bytes, 0..=64 * MIB),
    },
    Named {
        name: "log-lines",
        what: "lines kept of it",
        kind: Kind::Count(|l| &mut l.log_lines, 0..=1_000_000),
    },
    Named {
        name: "sends",
        what: "messages that a run sends",
        kind: Kind::Count(|l| &mut l.sends, 0..=OUTBOX_MAX),
    },
    Named {
        name: "send-bytes",
        what: "payloads and headers of them",
        kind: Kind::Bytes(|l| &mut l.send_bytes, 0..=OUTBOX_BYTES_MAX),
    },
    Named {
        name: "result-bytes",
        what: "what a run returns",
        kind: Kind::Bytes(|l| &mut l.result_bytes, 0..=MIB),
    },
    Named {
        name: "http-requests",
        what: "HTTP requests of a run",
        kind: Kind::Count(|l| &mut l.http_requests, 0..=1_000_000),
    },
    Named {
        name: "http-connections",
        what: "connections of a host at a time",
        kind: Kind::Count(|l| &mut l.http_connections, 1..=100_000),
    },
    Named {
        name: "http-connect",
        what: "until the connection of a request is there",
        kind: Kind::Time(|l| &mut l.http_connect),
    },
    Named {
        name: "http-total",
        what: "until its response has been read",
        kind: Kind::Time(|l| &mut l.http_total),
    },
    Named {
        name: "component-bytes",
        what: "component file",
        kind: Kind::Bytes(|l| &mut l.component_bytes, 1024..=1024 * MIB),
    },
    Named {
        name: "compile-time",
        what: "until a component is compiled",
        kind: Kind::Time(|l| &mut l.compile_time),
    },
    Named {
        name: "compile-memory",
        what: "memory to compile a component",
        kind: Kind::Bytes(|l| &mut l.compile_memory, 64 * MIB..=16 * 1024 * MIB),
    },
];

/// Those of the engine, of compilation, and of what all queues share: no two queues of a host can differ
/// in them.
const OF_HOST: [&str; 7] = [
    "tables",
    "instances",
    "stack",
    "http-connections",
    "component-bytes",
    "compile-time",
    "compile-memory",
];

/// True for a limit that is the same for all queues of a host.
pub(super) fn is_of_host(name: &str) -> bool {
    OF_HOST.contains(&name)
}

/// The names of all limits, and what each limits.
pub(super) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|limit| (limit.name, limit.what))
}

/// A limit and its value, checked.
#[derive(Debug, Clone)]
pub(super) struct LimitArg {
    name: &'static str,
    value: Value,
}

#[derive(Debug, Clone, Copy)]
enum Value {
    Number(usize),
    Time(Duration),
}

/// Reads `NAME=VALUE`.
pub(super) fn parse(text: &str) -> Result<LimitArg, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| "give it as NAME=VALUE".to_owned())?;
    let named = ALL.iter().find(|limit| limit.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|limit| limit.name).collect();
        format!("there is no such limit; there are {}", names.join(", "))
    })?;
    let value = match &named.kind {
        Kind::Time(_) => Value::Time(time::some_duration(value)?),
        Kind::Count(_, allowed) => Value::Number(number(name, value, allowed)?),
        Kind::Bytes(_, allowed) => Value::Number(bytes(name, value, allowed)?),
    };
    Ok(LimitArg {
        name: named.name,
        value,
    })
}

fn number(name: &str, text: &str, allowed: &RangeInclusive<usize>) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| {
        let (least, most) = (allowed.start(), allowed.end());
        format!("{name} must be a whole number from {least} to {most}")
    })
}

fn bytes(name: &str, text: &str, allowed: &RangeInclusive<usize>) -> Result<usize, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let (digits, unit) = units
        .iter()
        .find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)))
        .unwrap_or((text, 1));
    let number = digits.trim().parse::<usize>().ok();
    let bytes = number.and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| allowed.contains(bytes))
        .ok_or_else(|| {
            let (least, most) = (size(*allowed.start()), size(*allowed.end()));
            format!("{name} must be a size from {least} to {most}, as in 4096, 64KiB or 4MiB")
        })
}

/// Sets what was given, in its order.
pub(super) fn apply(limits: &mut Limits, given: &[LimitArg]) {
    for LimitArg { name, value } in given {
        let Some(named) = ALL.iter().find(|limit| limit.name == *name) else {
            continue;
        };
        match (&named.kind, *value) {
            (Kind::Count(place, _) | Kind::Bytes(place, _), Value::Number(number)) => {
                *place(limits) = number;
            }
            (Kind::Time(place), Value::Time(time)) => *place(limits) = time,
            _ => {}
        }
    }
}

/// The names with their defaults, for the help.
pub(super) fn help() -> String {
    let mut limits = Limits::default();
    let mut text =
        "Another limit of handlers, as in --limit log-bytes=1MiB; may be repeated:\n".to_owned();
    for Named { name, what, kind } in &ALL {
        let default = match kind {
            Kind::Count(place, _) => place(&mut limits).to_string(),
            Kind::Bytes(place, _) => size(*place(&mut limits)),
            Kind::Time(place) => format!("{:?}", place(&mut limits)),
        };
        let _ = write!(text, "\n  {name:<16} {default:>7}  {what}");
    }
    text
}

fn size(bytes: usize) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_limit_is_set_by_its_name_and_no_two_are_the_same() {
        let default = Limits::default();
        let mut seen = Vec::new();
        for limit in &ALL {
            let value = match limit.kind {
                Kind::Time(_) => "123ms",
                Kind::Bytes(_, ref allowed) if *allowed.start() > MIB => "77MiB",
                Kind::Bytes(..) => "77KiB",
                Kind::Count(..) => "77",
            };
            let mut limits = default;
            apply(
                &mut limits,
                &[parse(&format!("{}={value}", limit.name)).unwrap()],
            );
            assert_ne!(limits, default, "{}", limit.name);
            assert!(!seen.contains(&limits), "{}", limit.name);
            seen.push(limits);
            assert!(help().contains(limit.name));
        }
    }

    #[test]
    fn values_are_checked() {
        let set = |text: &str| {
            let mut limits = Limits::default();
            apply(&mut limits, &[parse(text).unwrap()]);
            limits
        };
        assert_eq!(set("stack=1MiB").stack, MIB);
        assert_eq!(set("log-bytes=2KiB").log_bytes, 2048);
        assert_eq!(set("http-connect=2s").http_connect, Duration::from_secs(2));
        for bad in [
            "stack",
            "nonsense=1",
            "stack=-1",
            "stack=1TiB",
            "stack=1GiB",
            "sends=1001",
            "tables=0",
            "table-elements=0",
            "component-bytes=0",
            "stack=1KiB",
            "send-bytes=5MiB",
            "http-total=5",
            "http-total=0s",
            "log-bytes=99999999999999999999GiB",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn limits_of_any_form_are_set_or_refused(
            name in prop::sample::select(ALL.map(|limit| limit.name).to_vec()),
            value in "[0-9]{1,22} ?(KiB|MiB|GiB|s|ms|h)?|.*",
        ) {
            let text = format!("{name}={value}");
            if let Ok(limit) = parse(&text) {
                apply(&mut Limits::default(), &[limit]);
            }
            let _ = (parse(&value), parse(&format!("{value}={name}")));
        }
    }
}
