//! The interface of `wit/`, as Rust.

wasmtime::component::bindgen!({
    path: "wit",
    world: "consumer-with-logging",
    imports: { default: trappable },
    exports: { default: async },
});

pub(super) use self::{ConsumerWithLogging as Consumer, ConsumerWithLoggingPre as ConsumerPre};
