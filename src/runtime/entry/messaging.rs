//! Handlers of wasmCloud and of Spin, which are given a payload and answer that it went well or did not.

use wasmtime::Store;

use super::{Answer, call_in};
use crate::runtime::bindings::{SpinRedisPre, WasmcloudPre, wasmcloud as interface};
use crate::runtime::call::Call;
use crate::runtime::imports::State;

/// The subject is the queue's name. There is nobody to reply to.
pub(super) async fn wasmcloud(
    pre: &WasmcloudPre<State>,
    store: &mut Store<State>,
    call: Call,
) -> wasmtime::Result<Answer> {
    let handler = pre.instantiate_async(&mut *store).await?;
    let message = interface::messaging::types::BrokerMessage {
        subject: call.queue,
        body: call.payload,
        reply_to: None,
    };
    let handle = handler.wasmcloud_messaging_handler().func_handle_message();
    let (answer,) = call_in(store, handle, (message,)).await?;
    Ok(match answer {
        Ok(()) => Answer::Ack,
        Err(reason) => Answer::Nack {
            delay: None,
            reason,
        },
    })
}

pub(super) async fn spin_redis(
    pre: &SpinRedisPre<State>,
    store: &mut Store<State>,
    call: Call,
) -> wasmtime::Result<Answer> {
    let handler = pre.instantiate_async(&mut *store).await?;
    let handle = handler.fermyon_spin_inbound_redis().func_handle_message();
    let (answer,) = call_in(store, handle, (call.payload,)).await?;
    Ok(match answer {
        Ok(()) => Answer::Ack,
        Err(_) => Answer::Nack {
            delay: None,
            reason: "the component answered an error, which has no text".to_owned(),
        },
    })
}
