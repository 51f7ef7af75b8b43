//! Starts tasks, streams or waits without end, as the word in its payload says.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer-async" });

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::Poll;

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler_async::Guest;
use wasip3::cli::types::ErrorCode;
use wasip3::cli::{environment, stdout};
use wasip3::clocks::monotonic_clock::wait_for;
use wasip3::filesystem::preopens;
use wasip3::random::random::get_random_bytes;
use wasip3::sockets::types::{IpAddressFamily, TcpSocket, UdpSocket};
use wasip3::{wit_future, wit_stream};

const LONG: u64 = 3_600_000_000_000;

struct Handler;

impl Guest for Handler {
    async fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload).into_owned();
        match text.as_str() {
            "wait" => wait_for(LONG).await,
            "nothing-left" => pending().await,
            "yield" => loop {
                wit_bindgen::yield_async().await;
            },
            "spin" => {
                wait_for(1).await;
                loop {
                    std::hint::black_box(&text);
                }
            }
            "afterwards" => afterwards(),
            "tasks" => tasks(),
            "waits" => waits().await,
            "cancelled-waits" => cancelled_waits().await,
            "streams" => streams(),
            "lost-streams" => lost_streams().await,
            "futures" => futures(),
            "prints" => prints().await,
            "copies" => copies().await,
            "powers" => return powers().await,
            "random" => {
                let got = get_random_bytes(1 << 30).len();
                return Verdict::Reject(format!("{got} bytes"));
            }
            other => return Verdict::Reject(format!("unknown: {other}")),
        }
        Verdict::Ack
    }
}

/// Tasks that go on after the verdict.
fn afterwards() {
    wit_bindgen::spawn_local(async {
        loop {
            wit_bindgen::yield_async().await;
            println!("still here");
        }
    });
    wit_bindgen::spawn_local(async {
        wait_for(LONG).await;
    });
}

/// Tasks, each of which waits, without waiting for any.
fn tasks() {
    let mut tasks = Vec::new();
    loop {
        let mut wait = Box::pin(wait_for(LONG));
        start(&mut wait);
        tasks.push(wait);
    }
}

/// Makes a call and looks once whether it is done.
fn start<F: Future + Unpin>(call: &mut F) {
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    let _ = pin!(call).as_mut().poll(&mut context);
}

/// The same in tasks of the bindings.
async fn waits() {
    loop {
        wit_bindgen::spawn_local(wait_for(LONG));
        wit_bindgen::yield_async().await;
    }
}

/// Waits that are given up at once.
async fn cancelled_waits() {
    loop {
        let mut wait = Box::pin(wait_for(LONG));
        poll_fn(|context| {
            let _ = wait.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
        drop(wait);
    }
}

fn streams() {
    let mut all = Vec::new();
    loop {
        all.push(wit_stream::new::<u8>());
    }
}

/// Streams that are given to the host and let go of.
async fn lost_streams() {
    loop {
        let (writer, reader) = wit_stream::new();
        drop(stdout::write_via_stream(reader));
        drop(writer);
    }
}

fn futures() {
    let mut all = Vec::new();
    loop {
        all.push(wit_future::new::<Result<(), ErrorCode>>(|| Ok(())));
    }
}

/// All of its memory, again and again, in one write each.
async fn prints() {
    let (mut writer, reader) = wit_stream::new();
    let _ended = stdout::write_via_stream(reader);
    loop {
        let left = writer.write_all(vec![b'x'; 3 << 20]).await;
        assert!(left.is_empty());
    }
}

/// A stream to itself, of as much as fits, in one piece.
async fn copies() {
    let bytes = 3 << 20;
    let (mut writer, mut reader) = wit_stream::new();
    wit_bindgen::spawn_local(async move {
        loop {
            let left = writer.write_all(vec![7; bytes]).await;
            assert!(left.is_empty());
        }
    });
    loop {
        let (_, read) = reader.read(Vec::with_capacity(bytes)).await;
        assert!(!read.is_empty());
    }
}

/// What it must not have.
async fn powers() -> Verdict {
    let mut found = Vec::new();
    if TcpSocket::create(IpAddressFamily::Ipv4).is_ok() {
        found.push("TCP".to_owned());
    }
    if UdpSocket::create(IpAddressFamily::Ipv6).is_ok() {
        found.push("UDP".to_owned());
    }
    let name = "localhost".to_owned();
    if wasip3::sockets::ip_name_lookup::resolve_addresses(name)
        .await
        .is_ok()
    {
        found.push("names".to_owned());
    }
    found.extend(
        preopens::get_directories()
            .into_iter()
            .map(|(_, path)| path),
    );
    found.extend(
        environment::get_environment()
            .into_iter()
            .map(|(name, _)| name),
    );
    found.extend(environment::get_arguments());
    Verdict::Reject(format!("found: {}", found.join(", ")))
}

export!(Handler);
