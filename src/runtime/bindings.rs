//! The interface of `wit/` and those of other hosts, as Rust. Exports with `store` take their arguments by value.

wasmtime::component::bindgen!({
    path: "wit",
    inline: "
        package dqhost:host;
        world everything {
            include dqhost:queue/consumer-with-logging@0.1.0;
            include dqhost:queue/consumer-with-result@0.1.0;
        }
    ",
    imports: { "dqhost:queue/http.fetch": async | trappable, default: trappable },
    exports: { default: async | store },
});

mod of_async {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "consumer-async",
        with: {
            "dqhost:queue/types": super::dqhost::queue::types,
            "dqhost:queue/outbox": super::dqhost::queue::outbox,
            "dqhost:queue/delivery": super::dqhost::queue::delivery,
            "dqhost:queue/http": super::dqhost::queue::http,
        },
        imports: { default: trappable },
        exports: { default: async | store },
    });
}

pub(super) use of_async::ConsumerAsyncPre;

pub(super) use self::{Everything as Consumer, EverythingPre as ConsumerPre};

mod of_wasmcloud {
    wasmtime::component::bindgen!({
        inline: "
            package wasmcloud:messaging@0.2.0;
            interface types {
                record broker-message {
                    subject: string,
                    body: list<u8>,
                    reply-to: option<string>,
                }
            }
            interface handler {
                use types.{broker-message};
                handle-message: func(msg: broker-message) -> result<_, string>;
            }
            world wasmcloud {
                import types;
                export handler;
            }
        ",
        imports: { default: trappable },
        exports: { default: async | store },
    });
}

mod of_spin {
    wasmtime::component::bindgen!({
        inline: "
            package fermyon:spin;
            interface redis-types {
                enum error { success, error }
                type payload = list<u8>;
            }
            interface inbound-redis {
                use redis-types.{payload, error};
                handle-message: func(message: payload) -> result<_, error>;
            }
            world spin-redis {
                import redis-types;
                export inbound-redis;
            }
        ",
        imports: { default: trappable },
        exports: { default: async | store },
    });
}

pub(super) use of_spin::{SpinRedis, SpinRedisPre, fermyon};
pub(super) use of_wasmcloud::{Wasmcloud, WasmcloudPre, wasmcloud};
