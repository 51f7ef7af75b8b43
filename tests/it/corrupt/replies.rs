//! A server that answers with anything: each answer of it is decoded or refused.

use std::sync::{Arc, Mutex};

use dqhost::message::{MessageId, QueueName};
use dqhost::store::redis::{RedisOptions, RedisStore};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::any::{IDS, SCORES, VALUES, bytes, cases};
use super::methods::{handle, look, steer};

/// An answer, as it goes over the wire.
#[derive(Debug, Clone)]
enum Answer {
    Nil,
    Int(i64),
    Status(&'static str),
    Error(&'static str),
    Bytes(Vec<u8>),
    List(Vec<Answer>),
}

impl Answer {
    fn write(&self, wire: &mut Vec<u8>) {
        match self {
            Self::Nil => wire.extend(b"$-1\r\n"),
            Self::Int(number) => wire.extend(format!(":{number}\r\n").bytes()),
            Self::Status(text) => wire.extend(format!("+{text}\r\n").bytes()),
            Self::Error(text) => wire.extend(format!("-{text}\r\n").bytes()),
            Self::Bytes(bytes) => {
                wire.extend(format!("${}\r\n", bytes.len()).bytes());
                wire.extend(bytes);
                wire.extend(b"\r\n");
            }
            Self::List(answers) => {
                wire.extend(format!("*{}\r\n", answers.len()).bytes());
                for answer in answers {
                    answer.write(wire);
                }
            }
        }
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    let numbers = [0, 1, 2, -1, 7, 250, i64::MAX, i64::MIN, 1 << 32, 1 << 53];
    let errors = [
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "ERR something",
        "OOM command not allowed",
        "NOSCRIPT No matching script",
        "BUSY Redis is busy",
        "READONLY You can't write",
        "MOVED 1 127.0.0.1:1",
        "\u{1b}[2J \u{202e}",
    ];
    let leaf = prop_oneof![
        Just(Answer::Nil),
        prop::sample::select(numbers.to_vec()).prop_map(Answer::Int),
        prop::sample::select(vec!["OK", "none", "QUEUED", ""]).prop_map(Answer::Status),
        prop::sample::select(errors.to_vec()).prop_map(Answer::Error),
        bytes(&IDS).prop_map(Answer::Bytes),
        bytes(&VALUES).prop_map(Answer::Bytes),
        prop::sample::select(&SCORES[..])
            .prop_map(|score| Answer::Bytes(score.as_bytes().to_vec())),
    ];
    // Six numbers or seven parts, as scripts answer; and whatever else.
    leaf.prop_recursive(4, 60, 10, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 0..10).prop_map(Answer::List),
            1 => prop::collection::vec(any::<i16>().prop_map(|n| Answer::Int(n.into())), 5..8)
                .prop_map(Answer::List),
            1 => (prop::collection::vec(any::<u16>(), 5), inner).prop_map(|(numbers, last)| {
                let mut parts: Vec<Answer> =
                    numbers.into_iter().map(|n| Answer::Int(n.into())).collect();
                parts.push(last);
                Answer::List(parts)
            }),
        ]
    })
}

/// Reads one command: its words, and how many bytes it takes. None while it is not complete.
fn command(buffer: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut at = 0;
    let mut line = |sign: u8| -> Option<usize> {
        let end = at + buffer[at..].windows(2).position(|two| two == b"\r\n")?;
        assert_eq!(buffer[at], sign);
        let number = std::str::from_utf8(&buffer[at + 1..end])
            .unwrap()
            .parse()
            .unwrap();
        at = end + 2;
        if sign == b'$' {
            // The word and its end.
            at += number + 2;
            (at <= buffer.len()).then_some(at - number - 2)
        } else {
            Some(number)
        }
    };
    let count = line(b'*')?;
    let mut starts = Vec::new();
    for _ in 0..count {
        starts.push(line(b'$')?);
    }
    let words = starts.iter().map(|&start| {
        let end = buffer[start..].windows(2).position(|two| two == b"\r\n");
        let end = start + end.unwrap_or(0);
        String::from_utf8_lossy(&buffer[start..end]).into_owned()
    });
    Some((words.collect(), at))
}

type Answers = Arc<Mutex<(Vec<Answer>, usize)>>;

/// Answers the questions of a client that connects well, and all else as it comes.
async fn serve(mut stream: TcpStream, answers: Answers) {
    // Answers go one by one, and none is to wait for the word that the one before has come.
    stream.set_nodelay(true).unwrap();
    let mut buffer = Vec::new();
    loop {
        while let Some((words, size)) = (!buffer.is_empty()).then(|| command(&buffer)).flatten() {
            buffer.drain(..size);
            let mut wire = Vec::new();
            match words[0].as_str() {
                "CLIENT" | "SELECT" | "AUTH" => Answer::Status("OK").write(&mut wire),
                "INFO" => {
                    let info = b"redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
                    Answer::Bytes(info.to_vec()).write(&mut wire);
                }
                _ => {
                    let mut answers = answers.lock().unwrap();
                    let (all, next) = &mut *answers;
                    all[*next % all.len()].write(&mut wire);
                    *next += 1;
                }
            }
            if stream.write_all(&wire).await.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

async fn server(answers: Answers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&answers)));
        }
    });
    url
}

async fn store(url: String) -> RedisStore {
    let options = RedisOptions::new(url);
    RedisStore::open(&options).await.unwrap()
}

#[test]
fn any_answer_is_decoded_or_refused() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answers = Answers::default();
    let (queue, ids): (QueueName, Vec<MessageId>) =
        ("q".parse().unwrap(), vec!["a".into(), "".into()]);
    let store = runtime.block_on(async { store(server(Arc::clone(&answers)).await).await });
    proptest!(cases(48), |(some in prop::collection::vec(answer(), 1..12))| {
        *answers.lock().unwrap() = (some, 0);
        runtime.block_on(async {
            look(&store, &queue, &ids).await;
            handle(&store, &queue).await;
            steer(&store, &queue, &ids).await;
        });
    });
}

/// A server that announces more than it sends, or more than there is memory for, gets no more than the
/// time of an answer, and takes nothing down.
#[tokio::test]
async fn what_is_announced_and_does_not_come_is_not_waited_for() {
    let announced = [
        "$9000000000000000000\r\n",
        "*4000000000000\r\n",
        "*1000000000\r\n$5\r\nab",
    ];
    let opened = announced.map(|announced| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    // Whatever it is asked.
                    while let Ok(1..) = stream.read(&mut buffer).await {
                        if stream.write_all(announced.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let options = RedisOptions::new(url);
        RedisStore::open(&options).await.is_err()
    });
    let all = futures_util::future::join_all(opened);
    let refused = tokio::time::timeout(crate::support::PATIENCE, all).await;
    assert_eq!(refused.unwrap(), [true; 3]);
}
