//! Compiles in a child process, which limits itself before it reads the component.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::compile::{
    ACCEPTED, ACCEPTED_FOR_ASYNC, Compiled, Order, REFUSED, Refusal, over_memory, over_time, wait,
};
use super::engine::EngineKind;
use super::{ComponentFile, Limits};
use crate::text::printable;

/// The command of the program that compiles as a child, followed by the limits and the order in JSON.
pub const CHILD_COMMAND: &str = "compile-child";

/// What such a child has in its environment beside the threads: the allocator takes from the system what
/// it uses, and no more, and gives it back. Without it, it takes more than the limits allow at its start.
pub const CHILD_ENVIRONMENT: [(&str, &str); 3] = [
    ("MIMALLOC_DISALLOW_ARENA_ALLOC", "1"),
    ("MIMALLOC_ARENA_EAGER_COMMIT", "0"),
    ("MIMALLOC_PAGE_COMMIT_ON_DEMAND", "1"),
];

/// Threads that compile: each takes memory beside what the component needs.
const THREADS_MAX: usize = 4;

/// Bytes that are kept of what a child says as it fails.
const SAID_MAX: u64 = 4096;

/// How long what a child said may take to arrive after its end.
const SAID_LIMIT: Duration = Duration::from_secs(1);

/// How often the end of a child is looked for after its answer.
const END_INTERVAL: Duration = Duration::from_millis(1);

/// What Rust says when it aborts for want of memory.
const LACK_OF_MEMORY: &str = "memory allocation of ";

/// Killed and reaped on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(program: &Path, limits: &Limits, order: Order) -> io::Result<Command> {
    let mut command = Command::new(program);
    command
        .arg0("dqhost")
        .arg(CHILD_COMMAND)
        .arg(serde_json::to_string(limits)?)
        .arg(serde_json::to_string(&order)?)
        // A secret of the environment is none of its business.
        .env_clear()
        .envs(CHILD_ENVIRONMENT)
        .env("RAYON_NUM_THREADS", threads().to_string())
        // Keys of the terminal are for this process.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(folders) = std::env::var_os("LD_LIBRARY_PATH") {
        command.env("LD_LIBRARY_PATH", folders);
    }
    Ok(command)
}

/// Threads that compile in a child.
#[must_use]
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX))
}

/// Compiles a component in a child process of this program. Blocks until the child has ended.
pub(super) fn compile(
    program: &OsStr,
    limits: &Limits,
    order: Order,
    file: &ComponentFile,
) -> Result<Compiled, Refusal> {
    let start = Instant::now();
    let fail = |error: io::Error| format!("the process that compiles it does not start: {error}");
    let mut command = command(Path::new(program), limits, order).map_err(fail)?;
    let mut child = Running(command.spawn().map_err(fail)?);
    let answers = talk(&mut child.0, limits, file).map_err(fail)?;
    let Ok(mut answer) = wait(&answers.stdout, limits.compile_time, file) else {
        return Err(over_time(limits).into());
    };
    let status = loop {
        match child.0.try_wait().map_err(fail)? {
            Some(status) => break status,
            None if start.elapsed() >= limits.compile_time => {
                return Err(over_time(limits).into());
            }
            None => thread::sleep(END_INTERVAL),
        }
    };
    let compiled = |kind, code| Ok(Compiled { kind, code });
    match answer.pop() {
        _ if answer.len() > limits.compile_memory => Err(over_memory(limits).into()),
        Some(ACCEPTED) if status.success() => compiled(EngineKind::Sync, answer),
        Some(ACCEPTED_FOR_ASYNC) if status.success() => compiled(EngineKind::Async, answer),
        Some(REFUSED) if status.success() => Err(refusal(&answer)),
        _ => {
            let said = answers.stderr.recv_timeout(SAID_LIMIT).unwrap_or_default();
            Err(crash(status, &said, limits).into())
        }
    }
}

/// What a child sends, whole.
struct Answers {
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
}

/// Gives the child the component, and reads both of its outputs meanwhile. The threads end with it.
fn talk(child: &mut Child, limits: &Limits, file: &ComponentFile) -> io::Result<Answers> {
    let missing = || io::Error::other("it has no pipes");
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let bytes = Arc::clone(&file.bytes);
    thread::Builder::new()
        .name("compile in".to_owned())
        // It may have refused the component before it has read all of it.
        .spawn(move || drop(stdin.write_all(&bytes)))?;
    let answer_max = u64::try_from(limits.compile_memory).unwrap_or(u64::MAX);
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    Ok(Answers {
        stdout: read("compile out", stdout, answer_max.saturating_add(2))?,
        stderr: read("compile err", stderr, SAID_MAX)?,
    })
}

/// At most `max` bytes from the pipe; more is read and dropped.
fn read(name: &str, pipe: impl Read + Send + 'static, max: u64) -> io::Result<Receiver<Vec<u8>>> {
    let (sender, receiver) = sync_channel(1);
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let (mut pipe, mut bytes) = (pipe.take(max), Vec::new());
            let _ = pipe.read_to_end(&mut bytes);
            let _ = io::copy(&mut pipe.into_inner(), &mut io::sink());
            let _ = sender.send(bytes);
        })?;
    Ok(receiver)
}

/// The reason in an answer. Names in it are the component's.
fn refusal(answer: &[u8]) -> Refusal {
    match serde_json::from_slice::<Refusal>(answer) {
        Ok(refusal) => Refusal {
            reason: printable(&refusal.reason).into_owned(),
            ..refusal
        },
        Err(error) => format!("the process that compiles it gave no valid answer: {error}").into(),
    }
}

/// Why a child ended without an answer.
fn crash(status: ExitStatus, said: &[u8], limits: &Limits) -> String {
    let said = String::from_utf8_lossy(said);
    if said.contains(LACK_OF_MEMORY) {
        return over_memory(limits);
    }
    let hint = match status.signal().and_then(Signal::from_named_raw) {
        Some(Signal::XCPU) => return over_time(limits),
        Some(Signal::KILL) => "; the machine may have no memory left",
        _ => "; this is a bug of the compiler",
    };
    let said = match said.trim() {
        "" => String::new(),
        said => format!(": {}", printable(said)),
    };
    format!("the process that compiles it ended with {status}{hint}{said}")
}
