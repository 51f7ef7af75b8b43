//! Whether a file can be a handler at all, told in words that say what to do.

use wasmtime::Engine;
use wasmtime::component::Component;

use super::HANDLER_EXPORT;
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

/// Names the export that is missing and the imports that are not given, which the linker's own
/// errors do one at a time and in its own words.
pub(super) fn types(engine: &Engine, component: &Component) -> Result<(), String> {
    let component_type = component.component_type();
    let exports: Vec<String> = component_type
        .exports(engine)
        .map(|(name, _)| name.to_owned())
        .collect();
    if !exports.iter().any(|name| name.starts_with(HANDLER_EXPORT)) {
        let found = if exports.is_empty() {
            "nothing".to_owned()
        } else {
            exports.join(", ")
        };
        return Err(format!(
            "it does not export {HANDLER_EXPORT}x; it exports {}. Build it against wit/queue.wit",
            printable(&found)
        ));
    }
    let given = |name: &str| {
        let package = name.split('/').next().unwrap_or(name);
        matches!(
            package,
            "wasi:cli"
                | "wasi:clocks"
                | "wasi:filesystem"
                | "wasi:io"
                | "wasi:random"
                | "wasi:sockets"
                | "dqhost:queue"
        )
    };
    let refused: Vec<String> = component_type
        .imports(engine)
        .map(|(name, _)| name.to_owned())
        .filter(|name| !given(name))
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(format!(
        "it imports {}, which handlers are not given; they have the wasi:cli interfaces \
         (without files, network or environment) and dqhost:queue",
        printable(&refused.join(", "))
    ))
}
