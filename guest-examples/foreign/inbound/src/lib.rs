//! A Spin component for Redis messages that knows nothing of queues: it fails when the payload is `fail`.

wit_bindgen::generate!({
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
        world component {
            export inbound-redis;
        }
    ",
});

use exports::fermyon::spin::inbound_redis::{Error, Guest, Payload};

struct Handler;

impl Guest for Handler {
    fn handle_message(message: Payload) -> Result<(), Error> {
        println!("{}", String::from_utf8_lossy(&message));
        if message == b"fail" {
            Err(Error::Error)
        } else {
            Ok(())
        }
    }
}

export!(Handler);
