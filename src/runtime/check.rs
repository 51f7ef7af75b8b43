//! Whether a file can be a handler at all, told in words that say what to do.

use serde::{Deserialize, Serialize};
use wasmtime::Engine;
use wasmtime::component::Component;

use super::engine::EngineKind;
use super::entry::Kind;
use super::{ComponentFile, HandlerError};
use crate::text::printable;

/// Tells a component from what is often mistaken for one.
pub(super) fn kind(bytes: &[u8]) -> Result<(), String> {
    match bytes {
        [] => Err("the file is empty".to_owned()),
        [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => Err(
            "it is a core WebAssembly module, not a component; build it with \
             `cargo build --target wasm32-wasip2`, or wrap it with `wasm-tools component new`"
                .to_owned(),
        ),
        _ => Err("it is not WebAssembly".to_owned()),
    }
}

/// What the component was made for. Names the export that is missing and the imports that are not given, which the linker's own
/// errors do one at a time and in its own words.
pub(super) fn types(engine: &Engine, component: &Component) -> Result<Kind, String> {
    let component_type = component.component_type();
    let exports: Vec<String> = component_type
        .exports(engine)
        .map(|(name, _)| name.to_owned())
        .collect();
    let Some(kind) = Kind::of(&exports) else {
        let found = if exports.is_empty() {
            "nothing".to_owned()
        } else {
            exports.join(", ")
        };
        return Err(format!(
            "it does not export dqhost:queue/handler@0.1.x; it exports {}. Build it against \
             wit/queue.wit. A program (wasi:cli/run@0.2 or @0.3) or an HTTP handler \
             (wasi:http/incoming-handler@0.2 or wasi:http/handler@0.3) runs as it is",
            printable(&found)
        ));
    };
    let refused: Vec<String> = component_type
        .imports(engine)
        .map(|(name, _)| name.to_owned())
        .filter(|name| need_of(name) == Need::NotGiven)
        .collect();
    if refused.is_empty() {
        return Ok(kind);
    }
    Err(format!(
        "it imports {}, which handlers are not given; they have the wasi:cli interfaces \
         (without files and sockets), wasi:http, wasi:logging and dqhost:queue",
        printable(&refused.join(", "))
    ))
}

/// What the engine says of a component that has more of something than is allowed, and what is said
/// instead: the two numbers, and the flag that allows as many.
const TOO_MANY: [(&str, &str, &str, &str); 7] = [
    (
        "transitively contains ",
        " core module instances, which exceeds the configured maximum of ",
        "core module instances",
        "`--limit instances=`",
    ),
    (
        "transitively contains ",
        " tables, which exceeds the configured maximum of ",
        "tables",
        "`--limit tables=`",
    ),
    (
        "defined tables count of ",
        " exceeds the per-instance limit of ",
        "tables",
        "`--limit tables=`",
    ),
    (
        "has a minimum element size of ",
        " which exceeds the limit of ",
        "elements in one table",
        "`--limit table-elements=`",
    ),
    (
        "transitively contains ",
        " Wasm linear memories, which exceeds the configured maximum of ",
        "memories",
        "",
    ),
    (
        "defined memories count of ",
        " exceeds the per-instance limit of ",
        "memories",
        "",
    ),
    (
        "memory has a minimum byte size of ",
        " which exceeds the limit of ",
        "bytes of memory at its start",
        "`--memory`",
    ),
];

/// The reason in our words, if it is that a component has more of something than is allowed.
pub(super) fn too_many(reason: &str) -> Option<String> {
    let number = |text: &str| {
        let word = text.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
        match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        }
    };
    TOO_MANY.iter().find_map(|&(before, between, what, flag)| {
        let (start, limit) = reason.split_once(between)?;
        let (_, count) = start.rsplit_once(before)?;
        let (count, limit) = (number(count)?, number(limit)?);
        let remedy = match flag {
            "" => "no flag allows more".to_owned(),
            "`--memory`" => format!("allow them with `--memory {}`", count.div_ceil(1 << 20)),
            flag => format!("allow them with {}{count}`", flag.trim_end_matches('`')),
        };
        Some(format!(
            "it has {count} {what}, and {limit} are allowed; {remedy}"
        ))
    })
}

/// What an import needs before calls of it are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// The permission to make HTTP requests.
    Http,
    /// The permission to send to a queue.
    Sends,
    /// It is there, and every call is refused.
    Refused,
    /// There is no such thing here: a component that imports it cannot run.
    NotGiven,
}

/// An interface that a component imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Its name with its version; not fit for a terminal as it is.
    pub name: String,
    /// What it needs.
    pub need: Need,
}

/// What a component file is and wants.
#[derive(Debug)]
pub struct Inspection {
    /// The SHA-256 of the file, hexadecimal.
    pub digest: String,
    /// Bytes.
    pub size: usize,
    /// Names of exports; not fit for a terminal as they are.
    pub exports: Vec<String>,
    /// What it was made for, if that is something that is known here.
    pub kind: Option<Kind>,
    /// The engine that it needs, if it came as far as that.
    pub engine: Option<EngineKind>,
    /// What it imports.
    pub imports: Vec<Import>,
    /// Why it cannot run.
    pub problem: Option<HandlerError>,
}

fn need_of(import: &str) -> Need {
    let package = import.split('/').next().unwrap_or(import);
    match package {
        "wasi:sockets" => Need::Refused,
        "wasi:http" if import.starts_with("wasi:http/outgoing-handler") => Need::Http,
        "wasi:http" if import.starts_with("wasi:http/client@") => Need::Http,
        "dqhost:queue" if import.starts_with("dqhost:queue/http@") => Need::Http,
        // That of a component around another one.
        "wasi:http" if import.starts_with("wasi:http/handler@") => Need::NotGiven,
        "dqhost:queue" if import.starts_with("dqhost:queue/outbox") => Need::Sends,
        "wasi:cli" | "wasi:clocks" | "wasi:filesystem" | "wasi:io" | "wasi:random"
        | "wasi:logging" | "wasi:http" | "dqhost:queue" => Need::Nothing,
        // Types without functions.
        "wasmcloud:messaging" if import.starts_with("wasmcloud:messaging/types@0.2.") => {
            Need::Nothing
        }
        "fermyon:spin" if import == "fermyon:spin/redis-types" => Need::Nothing,
        _ => Need::NotGiven,
    }
}

/// The names of exports and imports; not fit for a terminal as they are.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Names {
    pub exports: Vec<String>,
    pub imports: Vec<String>,
}

pub(super) fn names(engine: &Engine, component: &Component) -> Names {
    let types = component.component_type();
    let exports = types.exports(engine).map(|(name, _)| name.to_owned());
    let imports = types.imports(engine).map(|(name, _)| name.to_owned());
    Names {
        exports: exports.collect(),
        imports: imports.collect(),
    }
}

pub(super) fn inspect(
    Names { exports, imports }: Names,
    engine: Option<EngineKind>,
    file: &ComponentFile,
    problem: Option<HandlerError>,
) -> Inspection {
    let imports = imports.into_iter().map(|name| Import {
        need: need_of(&name),
        name,
    });
    Inspection {
        digest: file.digest.to_string(),
        size: file.size(),
        kind: Kind::of(&exports),
        engine,
        exports,
        imports: imports.collect(),
        problem,
    }
}
