//! A wasmCloud messaging handler that knows nothing of queues: it fails when the body starts with `fail`.

wit_bindgen::generate!({
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
        world component {
            export handler;
        }
    ",
});

use exports::wasmcloud::messaging::handler::{BrokerMessage, Guest};

struct Handler;

impl Guest for Handler {
    fn handle_message(msg: BrokerMessage) -> Result<(), String> {
        let body = String::from_utf8_lossy(&msg.body);
        println!("{}: {body}", msg.subject);
        match body.strip_prefix("fail") {
            Some(reason) => Err(reason.trim().to_owned()),
            None => Ok(()),
        }
    }
}

export!(Handler);
