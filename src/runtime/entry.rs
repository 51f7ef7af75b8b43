//! How a component is called: by what it exports. A component that was made for another host is given the
//! message in the form that it knows, and its answer is translated.

use std::time::Duration;

use wasmtime::Store;
use wasmtime::component::{ComponentNamedList, InstancePre, Lift, Lower, TypedFunc};
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi::p3::bindings::CommandPre as CommandAsyncPre;
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p3::bindings::ServicePre;

use super::bindings::dqhost::queue::types as wit;
use super::bindings::{ConsumerAsyncPre, ConsumerPre, SpinRedisPre, WasmcloudPre};
use super::call::Call;
use super::imports::State;

mod command;
mod http;
mod messaging;

/// What a component was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It exports the interface of `wit/`.
    Handler,
    /// It exports the asynchronous interface of `wit/`.
    HandlerAsync,
    /// It exports `wasmcloud:messaging/handler`.
    Wasmcloud,
    /// It exports Spin's `inbound-redis`.
    SpinRedis,
    /// It exports `wasi:http/incoming-handler`.
    Http,
    /// It exports `wasi:http/handler` of WASI 0.3.
    HttpAsync,
    /// It exports `wasi:cli/run`: a program.
    Command,
    /// The same of WASI 0.3.
    CommandAsync,
}

/// The names of exports, up to the versions that fit each other. If a component has several of them, the
/// first is called.
const EXPORTS: [(Kind, &str); 8] = [
    (Kind::Handler, "dqhost:queue/handler@0.1."),
    (Kind::HandlerAsync, "dqhost:queue/handler-async@0.1."),
    (Kind::Wasmcloud, "wasmcloud:messaging/handler@0.2."),
    (Kind::SpinRedis, "fermyon:spin/inbound-redis"),
    (Kind::Http, "wasi:http/incoming-handler@0.2."),
    (Kind::HttpAsync, "wasi:http/handler@0.3."),
    (Kind::Command, "wasi:cli/run@0.2."),
    (Kind::CommandAsync, "wasi:cli/run@0.3."),
];

impl Kind {
    /// Of a component with these exports.
    pub(super) fn of(exports: &[String]) -> Option<Self> {
        let has = |name: &str| exports.iter().any(|export| export.starts_with(name));
        let found = EXPORTS.into_iter().find(|(_, name)| has(name));
        found.map(|(kind, _)| kind)
    }

    /// What it is given, and what its answers mean.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Handler => "a handler for dqhost",
            Self::HandlerAsync => "an asynchronous handler for dqhost",
            Self::Wasmcloud => "a wasmCloud messaging handler: ok is an ack, an error is a nack",
            Self::SpinRedis => "a Spin component for Redis: ok is an ack, an error is a nack",
            Self::Http | Self::HttpAsync => {
                "an HTTP handler: the message is a POST; 2xx is an ack; 408, 429 and 5xx are a nack; \
                 the rest is a reject"
            }
            Self::Command | Self::CommandAsync => {
                "a program: the payload is its standard input; exit code 0 is an ack, 75 a nack, \
                 65 a reject"
            }
        }
    }
}

/// A component that is ready to be instantiated.
pub(super) enum Entry {
    Handler(ConsumerPre<State>),
    HandlerAsync(ConsumerAsyncPre<State>),
    Wasmcloud(WasmcloudPre<State>),
    SpinRedis(SpinRedisPre<State>),
    Http(ProxyPre<State>),
    HttpAsync(ServicePre<State>),
    Command(CommandPre<State>),
    CommandAsync(CommandAsyncPre<State>),
}

/// What a component answered.
pub(super) enum Answer {
    Ack,
    Nack {
        delay: Option<Duration>,
        reason: String,
    },
    Reject {
        reason: String,
    },
    /// A program ended with this code.
    Exit(i32),
}

impl Entry {
    pub(super) fn new(kind: Kind, pre: InstancePre<State>) -> wasmtime::Result<Self> {
        Ok(match kind {
            Kind::Handler => Self::Handler(ConsumerPre::new(pre)?),
            Kind::HandlerAsync => Self::HandlerAsync(ConsumerAsyncPre::new(pre)?),
            Kind::Wasmcloud => Self::Wasmcloud(WasmcloudPre::new(pre)?),
            Kind::SpinRedis => Self::SpinRedis(SpinRedisPre::new(pre)?),
            Kind::Http => Self::Http(ProxyPre::new(pre)?),
            Kind::HttpAsync => Self::HttpAsync(ServicePre::new(pre)?),
            Kind::Command => Self::Command(CommandPre::new(pre)?),
            Kind::CommandAsync => Self::CommandAsync(CommandAsyncPre::new(pre)?),
        })
    }

    pub(super) async fn call(
        &self,
        store: &mut Store<State>,
        call: Call,
    ) -> wasmtime::Result<Answer> {
        match self {
            Self::Handler(pre) => {
                let handler = pre.instantiate_async(&mut *store).await?;
                let handle = handler.dqhost_queue_handler().func_handle();
                let (verdict,) = call_in(store, handle, (message(call),)).await?;
                Ok(answer(verdict))
            }
            Self::HandlerAsync(pre) => {
                let handler = pre.instantiate_async(&mut *store).await?;
                let handle = handler.dqhost_queue_handler_async().func_handle();
                let (verdict,) = call_in(store, handle, (message(call),)).await?;
                Ok(answer(verdict))
            }
            // Boxed, so that the future of the first is no larger: it is moved several times a message.
            Self::Wasmcloud(pre) => Box::pin(messaging::wasmcloud(pre, store, call)).await,
            Self::SpinRedis(pre) => Box::pin(messaging::spin_redis(pre, store, call)).await,
            Self::Http(pre) => Box::pin(http::call(pre, store, call)).await,
            Self::HttpAsync(pre) => Box::pin(http::call_async(pre, store, call)).await,
            Self::Command(pre) => Box::pin(command::call(pre, store, call)).await,
            Self::CommandAsync(pre) => Box::pin(command::call_async(pre, store, call)).await,
        }
    }
}

/// Calls a function of a guest.
///
/// In the engine for asynchronous components, not by `call_async`: that one panics as it ends if the guest's task
/// has ended without a result.
async fn call_in<P, R>(
    store: &mut Store<State>,
    function: TypedFunc<P, R>,
    params: P,
) -> wasmtime::Result<R>
where
    P: ComponentNamedList + Lower + Send + Sync + 'static,
    R: ComponentNamedList + Lift + Send + Sync + 'static,
{
    if store.concurrent_resource_table().is_none() {
        return function.call_async(store, params).await;
    }
    let done = store
        .run_concurrent(async move |accessor| function.call_concurrent(accessor, params).await);
    Box::pin(done).await?
}

fn message(call: Call) -> wit::Message {
    wit::Message {
        id: call.id,
        queue: call.queue,
        payload: call.payload,
        headers: call.headers,
        attempt: call.attempt,
        max_attempts: call.attempts_max,
        sent_at_ms: call.sent_at_ms,
        due_at_ms: call.due_at_ms,
    }
}

fn answer(verdict: wit::Verdict) -> Answer {
    match verdict {
        wit::Verdict::Ack => Answer::Ack,
        wit::Verdict::Nack(nack) => Answer::Nack {
            delay: nack.delay_ms.map(Duration::from_millis),
            reason: nack.reason.unwrap_or_default(),
        },
        wit::Verdict::Reject(reason) => Answer::Reject { reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_export_of_the_list_is_called() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Kind::of(&names)
        };
        assert_eq!(of(&["wasi:cli/run@0.2.6"]), Some(Kind::Command));
        let both = ["wasi:cli/run@0.2.6", "wasi:http/incoming-handler@0.2.0"];
        assert_eq!(of(&both), Some(Kind::Http));
        let ours = [both[0], both[1], "dqhost:queue/handler@0.1.0"];
        assert_eq!(of(&ours), Some(Kind::Handler));
        assert_eq!(of(&["wasi:cli/run@0.3.0"]), Some(Kind::CommandAsync));
        assert_eq!(of(&["wasi:http/handler@0.3.2"]), Some(Kind::HttpAsync));
        assert_eq!(of(&["wasi:cli/run@0.4.0", "run"]), None);
    }
}
