//! Prints the variable that its payload names: as it is, escaped, in Base64, in hexadecimal. Then it
//! rejects with one more of these forms.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let name = String::from_utf8_lossy(&msg.payload);
        let Ok(value) = std::env::var(&*name) else {
            return Verdict::Reject(format!("{name} is not set"));
        };
        println!("plain {value}");
        println!("debug {value:?}");
        println!("twice {:?}", format!("{value:?}"));
        println!("codes {}", value.escape_unicode());
        for (number, before) in ["", "u", "us"].into_iter().enumerate() {
            println!("base64 {number} {}", base64(&format!("{before}{value}")));
        }
        println!("percent {}", bytes(&value, |byte| format!("%{byte:02X}")));
        eprintln!("hex {}", bytes(&value, |byte| format!("{byte:02x}")));
        Verdict::Reject(format!("Basic {}", base64(&format!("user:{value}"))))
    }
}

fn bytes(text: &str, form: impl Fn(u8) -> String) -> String {
    text.bytes().map(form).collect()
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for part in text.as_bytes().chunks(3) {
        let at = |index: usize| u32::from(part.get(index).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..=part.len() {
            let index = group >> (18 - 6 * digit) & 63;
            encoded.push(char::from(DIGITS[index as usize]));
        }
    }
    encoded
}

export!(Handler);
