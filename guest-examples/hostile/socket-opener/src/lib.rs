//! Tries to open sockets, one of them to the port of 127.0.0.1 that its payload names. Rejects with
//! the errors if nothing worked; else it prints what did, and acks.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn udp(port: u16) -> std::io::Result<usize> {
    UdpSocket::bind((HERE, 0))?.send_to(b"x", (HERE, port))
}

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload);
        let Ok(port) = text.trim().parse::<u16>() else {
            return Verdict::Reject(format!("payload {text:?} is not a port"));
        };
        let tries = [
            ("tcp connect", TcpStream::connect((HERE, port)).err()),
            ("tcp listen", TcpListener::bind((HERE, 0)).err()),
            ("udp send", udp(port).err()),
            ("name lookup", ("localhost", port).to_socket_addrs().err()),
        ];
        let mut errors = Vec::new();
        for (what, error) in &tries {
            match error {
                Some(error) => errors.push(format!("{what}: {error}")),
                None => println!("{what}: it worked"),
            }
        }
        if errors.len() == tries.len() {
            Verdict::Reject(errors.join("; "))
        } else {
            Verdict::Ack
        }
    }
}

export!(Handler);
