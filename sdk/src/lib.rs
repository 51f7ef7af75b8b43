#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod error;
pub mod http;
mod message;
mod outbox;
pub mod result;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use error::{Error, Result, ResultExt};
pub use message::Message;
pub use outbox::{Outgoing, SendError};

/// The interface of handlers, for [`handler!`].
#[doc(hidden)]
#[allow(missing_docs, clippy::pedantic, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "consumer-with-result",
        pub_export_macro: true,
        default_bindings_module: "dqhost_handler::bindings",
    });
}

/// Makes a function the handler of this component.
///
/// It takes `fn(&Message) -> Result`, once in a crate of the type `cdylib`.
#[macro_export]
macro_rules! handler {
    ($handle:path) => {
        const _: () = {
            struct Handler;

            impl $crate::bindings::exports::dqhost::queue::handler::Guest for Handler {
                fn handle(
                    message: $crate::bindings::dqhost::queue::types::Message,
                ) -> $crate::bindings::dqhost::queue::types::Verdict {
                    $crate::handle(message, $handle)
                }
            }

    $crate::bindings::export!(Handler with_types_in $crate::bindings);
        };
    };
}

/// One delivery, for [`handler!`].
#[doc(hidden)]
pub fn handle(
    message: bindings::dqhost::queue::types::Message,
    handle: impl FnOnce(&Message) -> Result,
) -> bindings::dqhost::queue::types::Verdict {
    match handle(&message.into()) {
        Ok(()) => bindings::dqhost::queue::types::Verdict::Ack,
        Err(error) => error.into_verdict(),
    }
}
