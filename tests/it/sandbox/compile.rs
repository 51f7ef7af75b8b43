//! A component that is made to exhaust the compiler harms nothing: it is compiled in a process of its own,
//! which is limited.

use std::fs::{self, File, Permissions as Mode};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dqhost::runtime::{
    CHILD_COMMAND, CHILD_ENVIRONMENT, Effort, Handler, HandlerError, Limits, Permissions, Runtime,
};
use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use super::bombs::{bomb, empty_functions, heaviest, nested};
use crate::support::{dqhost, eventually, expect, feed, guest, run, stdout};

/// How often the memory of processes is read. The kernel keeps the peak of each, so that little is
/// missed.
const LOOK: Duration = Duration::from_millis(2);

/// What all processes together may take, bytes.
const MEMORY_MAX: u64 = 600_000_000;

const BOMBS: usize = 200;

/// The processes that a process has started and not yet reaped.
fn children(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{of}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(
            text.split_whitespace()
                .map(|pid| pid.parse::<u32>().unwrap()),
        );
    }
    found
}

/// The greatest resident memory that a process has had, bytes.
fn peak(of: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{of}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.map_or(0, |kib| kib.parse::<u64>().unwrap() * 1024)
}

/// Waits for the end of a process and returns the peak of it and its children together.
fn peak_until_end(child: &mut Child) -> u64 {
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let pid = child.id();
        let all: u64 = children(pid).into_iter().map(peak).sum();
        most = most.max(peak(pid) + all);
        thread::sleep(LOOK);
    }
    most
}

/// Starts a program whose output is read after its end, whatever its length.
fn start(command: &mut Command, output: &Path) -> Child {
    let output = File::create(output).unwrap();
    command.stdout(output.try_clone().unwrap()).stderr(output);
    command.spawn().unwrap()
}

/// What checking a file said, the peak of its memory, and its time.
struct Checked {
    said: String,
    peak: u64,
    time: Duration,
}

fn check(file: &Path, limits: &[&str]) -> Checked {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("output");
    let began = Instant::now();
    let args = [&["check", file.to_str().unwrap()], limits].concat();
    let mut command = dqhost(None, &args);
    let mut child = start(command.env("XDG_CACHE_HOME", folder.path()), &output);
    let peak = peak_until_end(&mut child);
    let time = began.elapsed();
    let said = fs::read_to_string(&output).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4), "{said}");
    Checked { said, peak, time }
}

const LIMIT: Duration = Duration::from_millis(300);
const LIMITS: [&str; 2] = ["--limit", "compile-time=300ms"];

/// Checks one bomb. If it takes too long, it is checked again: the machine may be busy.
fn check_bomb(number: usize, file: &Path) {
    let (kind, bytes) = bomb(number);
    fs::write(file, &bytes).unwrap();
    let mut tries = 5;
    loop {
        let Checked { said, peak, time } = check(file, &LIMITS);
        tries -= 1;
        let what = format!(
            "bomb {number} of {kind}, {} bytes: {said:.1000}",
            bytes.len()
        );
        assert!(said.contains("it cannot run"), "{what}");
        assert!(peak < MEMORY_MAX, "{peak} bytes of memory: {what}");
        if time < LIMIT + Duration::from_secs(2) {
            return;
        }
        assert!(tries > 0, "{time:?}: {what}");
    }
}

/// A host that is told to serve bombs alone serves none, and takes no more memory than for one. Returns
/// those that took longer to load than they may.
fn load_bombs(folder: &Path, numbers: &[usize]) -> Vec<usize> {
    let mut command = dqhost(Some(":memory:"), &["up", "--no-tui", "--log", "debug"]);
    command.args(["--log-format", "json"]);
    command.args(LIMITS).env("XDG_CACHE_HOME", folder);
    for number in numbers {
        let file = folder.join(number.to_string());
        command.args(["--queue", &format!("q{number}={}", file.display())]);
    }
    let output = folder.join(format!("output-{}", numbers[0]));
    let mut child = start(&mut command, &output);
    let peak = peak_until_end(&mut child);
    let said = fs::read_to_string(&output).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4), "{said:.1000}");
    assert!(peak < MEMORY_MAX, "{peak} bytes of memory");
    let lines = said.lines().filter(|line| line.contains("read a handler"));
    let times = lines.map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        Duration::from_secs_f64(line["took"].as_f64().unwrap())
    });
    let times: Vec<Duration> = times.collect();
    assert_eq!(times.len(), numbers.len(), "{said:.1000}");
    let is_slow = |time: &Duration| *time >= LIMIT + Duration::from_secs(2);
    let slow = numbers.iter().zip(times).filter(|(_, time)| is_slow(time));
    slow.map(|(number, _)| *number).collect()
}

/// Loads each of these within its time. Those that take too long are loaded again: the machine may be busy.
fn load_each(folder: &Path, numbers: Range<usize>) {
    let mut slow: Vec<usize> = numbers.collect();
    for _ in 0..5 {
        slow = load_bombs(folder, &slow);
        if slow.is_empty() {
            return;
        }
    }
    panic!("bombs {slow:?} take too long to load");
}

#[test]
fn two_hundred_bombs_stay_within_600_mb_and_their_time() {
    let folder = TempDir::new().unwrap();
    let next = AtomicUsize::new(0);
    let check_next = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= BOMBS {
                return;
            }
            check_bomb(number, &folder.path().join(number.to_string()));
        }
    };
    thread::scope(|scope| {
        scope.spawn(check_next);
        scope.spawn(check_next);
    });
    thread::scope(|scope| {
        scope.spawn(|| load_each(folder.path(), 0..BOMBS / 2));
        scope.spawn(|| load_each(folder.path(), BOMBS / 2..BOMBS));
    });
}

#[test]
fn the_heaviest_bombs_stay_within_600_mb_under_the_default_limits() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("bomb");
    for (number, bytes) in heaviest().into_iter().enumerate() {
        fs::write(&file, bytes).unwrap();
        let Checked { said, peak, .. } = check(&file, &[]);
        assert!(
            said.contains("more than 480MiB of memory"),
            "{number}: {said}"
        );
        assert!(peak < MEMORY_MAX, "{number}: {peak} bytes of memory");
    }
}

#[test]
fn what_takes_too_much_memory_or_time_is_refused_with_the_flag_that_allows_more() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("bomb");
    fs::write(&file, nested(2, 40, "")).unwrap();
    let Checked { said, .. } = check(&file, &["--limit", "compile-memory=100MiB"]);
    assert!(said.contains("more than 100MiB of memory"), "{said}");
    assert!(said.contains("`--limit compile-memory=200MiB`"), "{said}");
    let Checked { said, .. } = check(&file, &["--limit", "compile-time=1ms"]);
    assert!(said.contains("within 1ms (--limit compile-time)"), "{said}");
    // The flag helps: what needs a little more memory is compiled, and refused for what it is.
    fs::write(&file, empty_functions(50_000)).unwrap();
    let Checked { said, .. } = check(&file, &["--limit", "compile-memory=64MiB"]);
    assert!(said.contains("--limit compile-memory="), "{said}");
    let Checked { said, .. } = check(&file, &[]);
    assert!(said.contains("it exports nothing"), "{said}");
}

fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_dqhost").into()
}

fn load(program: &Path, limits: Limits, cache: Option<&Path>) -> Result<Handler, HandlerError> {
    let runtime = Runtime::new(1, limits, Permissions::default(), cache)?.compile_with(program);
    runtime.load(&runtime.read(&guest("noop"))?)
}

/// A program in the shell's language. Another process writes it: one that this process has open for
/// writing as it starts another program could not be started.
fn script(path: &Path, text: &str) {
    let mut command = Command::new("sh");
    command
        .args(["-c", "cat > \"$0\" && chmod 700 \"$0\""])
        .arg(path);
    let text = format!("#!/bin/sh\necho $$ > \"$0.pid\"\nenv > \"$0.env\"\n{text}\n");
    expect(feed(command, text.as_bytes()), 0);
}

#[test]
fn a_compiler_that_crashes_hangs_or_babbles_is_an_error_that_says_so() {
    let folder = TempDir::new().unwrap();
    let (time, memory) = ("(--limit compile-time)", "--limit compile-memory=");
    for (number, (text, says)) in [
        ("kill -SEGV $$", "ended with signal: 11 (SIGSEGV)"),
        (
            "kill -KILL $$",
            "(SIGKILL); the machine may have no memory left",
        ),
        ("kill -XCPU $$", time),
        (
            "printf 'bad \\033[31m\\n' >&2; exit 3",
            "ended with exit status: 3; this is a bug of the compiler: bad \\u{1b}[31m",
        ),
        (
            "echo 'memory allocation of 7 bytes failed' >&2; kill -ABRT $$",
            memory,
        ),
        ("exit 0", "ended with exit status: 0"),
        ("printf 'any text'", "ended with exit status: 0"),
        (
            r#"printf '{"reason":"a\\u001bb","names":{"exports":[],"imports":[]}}\0'"#,
            "a\\u{1b}b",
        ),
        ("printf 'half\\0'", "no valid answer"),
        ("printf 'no code\\001'", "it does not compile"),
        ("exec cat /dev/zero", time),
        ("exec >&-; exec sleep 1000", time),
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.path().join(format!("program-{number}"));
        script(&file, text);
        let limits = Limits {
            compile_time: Duration::from_secs(if says == time { 1 } else { 60 }),
            compile_memory: 1 << 20,
            ..Limits::default()
        };
        let error = load(&file, limits, None).err().unwrap().to_string();
        assert!(error.contains(says), "{text}: {error}");
        // It is gone, and no zombie is left of it.
        let pid = fs::read_to_string(file.with_extension("pid")).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        assert!(test_kill_process(pid).is_err(), "{text}");
        // Nothing of this process's environment is in its own.
        let env = fs::read_to_string(file.with_extension("env")).unwrap();
        assert!(!env.contains("CARGO"), "{env}");
    }
    let missing = load(&folder.path().join("missing"), Limits::default(), None);
    let error = missing.err().unwrap().to_string();
    assert!(error.contains("does not start"), "{error}");
}

#[test]
fn the_process_that_compiles_has_limits_and_nothing_else() {
    let limits = Limits::default();
    // It inherits a file that is none of its business.
    let text = "exec 3<&0 7</dev/null; \"$@\" <&3 & echo $!; wait";
    let mut command = Command::new("sh");
    command.args([
        "-c",
        text,
        "sh",
        env!("CARGO_BIN_EXE_dqhost"),
        CHILD_COMMAND,
    ]);
    command
        .arg(serde_json::to_string(&limits).unwrap())
        .arg(r#"{"kind":null,"effort":"Full"}"#);
    command
        .envs(CHILD_ENVIRONMENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut shell = command.spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let pid = line.trim();
    let of = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    // It now waits for a component.
    let in_force = eventually("it is limited", || {
        let text = of("limits");
        let is_last = |line: &str| line.starts_with("Max open files") && line.contains(" 3 ");
        text.lines().any(is_last).then_some(text)
    });
    let limit = |name: &str| {
        let line = in_force.lines().find_map(|line| line.strip_prefix(name));
        let words: Vec<&str> = line.unwrap().split_whitespace().take(2).collect();
        words.join(" ")
    };
    let data = limits.compile_memory;
    assert_eq!(limit("Max data size"), format!("{data} {data}"));
    assert_eq!(limit("Max file size"), "0 0");
    assert_eq!(limit("Max core file size"), "0 0");
    assert_eq!(limit("Max open files"), "3 3");
    assert!(!limit("Max cpu time").contains("unlimited"));
    assert!(of("status").contains("NoNewPrivs:\t1"));
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let file = fs::read_link(descriptor.unwrap().path()).unwrap();
        assert!(file.to_str().unwrap().starts_with("pipe:"), "{file:?}");
    }
    shell.kill().unwrap();
    // Its pipes are open all the while.
    let ends = "it ends with the process that started it";
    eventually(ends, || {
        output
            .read_line(&mut line)
            .is_ok_and(|n| n == 0)
            .then_some(())
    });
    shell.wait().unwrap();
}

#[test]
fn a_handler_that_was_compiled_is_loaded_without_a_process() {
    let cache = TempDir::new().unwrap();
    let limits = Limits::default();
    load(&program(), limits, Some(cache.path())).unwrap();
    // There is no program that could compile.
    load(Path::new("/nonexistent"), limits, Some(cache.path())).unwrap();
    assert!(load(Path::new("/nonexistent"), limits, None).is_err());
}

#[tokio::test]
async fn quick_code_runs_and_is_no_hosts_while_full_code_is_everybodys() {
    let cache = TempDir::new().unwrap();
    let load = |program: &Path, effort: Effort| {
        let limits = Limits::default();
        let runtime = Runtime::new(1, limits, Permissions::default(), Some(cache.path())).unwrap();
        let runtime = runtime.compile_with(program).with_effort(effort);
        let handler = runtime.load(&runtime.read(&guest("echo")).unwrap());
        handler.map(|handler| (runtime, handler))
    };
    let sizes = || -> Vec<u64> {
        let files = fs::read_dir(cache.path()).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .collect()
    };
    let nowhere = Path::new("/nonexistent");
    let (_runtime, handler) = load(&program(), Effort::Quick).unwrap();
    let report = handler.run(crate::guests::call(b"x", 1)).await;
    assert_eq!(report.outcome.class(), "acked");
    assert!(load(nowhere, Effort::Quick).is_ok() && load(nowhere, Effort::Full).is_err());
    let quick = sizes();
    load(&program(), Effort::Full).unwrap();
    // It is other code of the same component.
    let both = sizes();
    assert!(both.len() == 2 && both[0] != both[1], "{both:?}");
    assert!(both.contains(&quick[0]));
    fs::remove_dir_all(cache.path()).unwrap();
    fs::create_dir(cache.path()).unwrap();
    load(&program(), Effort::Full).unwrap();
    assert!(load(nowhere, Effort::Quick).is_ok());
}

#[test]
fn what_is_tried_is_compiled_quickly_and_what_is_repeated_in_full() {
    let home = TempDir::new().unwrap();
    let kept = |effort: Effort| {
        let cache = home.path().join("dqhost");
        let runtime = Runtime::new(1, Limits::default(), Permissions::default(), Some(&cache));
        let runtime = runtime
            .unwrap()
            .compile_with("/nonexistent")
            .with_effort(effort);
        runtime.load(&runtime.read(&guest("echo")).unwrap()).is_ok()
    };
    let file = guest("echo");
    let run = |more: &[&str]| {
        let mut command = dqhost(None, &[&["run", file.to_str().unwrap()], more].concat());
        expect(
            command.env("XDG_CACHE_HOME", home.path()).output().unwrap(),
            0,
        );
    };
    run(&[]);
    assert!(kept(Effort::Quick) && !kept(Effort::Full));
    run(&["--repeat", "2"]);
    assert!(kept(Effort::Full));
}

#[test]
fn compiled_code_that_was_changed_or_that_others_can_write_is_not_run() {
    let cache = TempDir::new().unwrap();
    let limits = Limits::default();
    let loaded = |program: &Path| load(program, limits, Some(cache.path())).is_ok();
    let nobody = Path::new("/nonexistent");
    assert!(loaded(&program()));
    let file = fs::read_dir(cache.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let whole = fs::read(&file).unwrap();
    let mut changes: Vec<Box<dyn Fn()>> = Vec::new();
    for at in [0, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let file = file.clone();
        changes.push(Box::new(move || fs::write(&file, &bytes).unwrap()));
    }
    let (short, empty, linked, open) = (file.clone(), file.clone(), file.clone(), file.clone());
    let half = whole[..whole.len() / 2].to_vec();
    changes.push(Box::new(move || fs::write(&short, &half).unwrap()));
    changes.push(Box::new(move || fs::write(&empty, b"").unwrap()));
    changes.push(Box::new(move || {
        let elsewhere = linked.with_extension("elsewhere");
        fs::rename(&linked, &elsewhere).unwrap();
        symlink(&elsewhere, &linked).unwrap();
    }));
    changes.push(Box::new(move || {
        fs::set_permissions(&open, Mode::from_mode(0o620)).unwrap();
    }));
    for change in changes {
        change();
        assert!(!loaded(nobody));
        // It is compiled again, and what was wrong is replaced.
        assert!(loaded(&program()));
        assert!(loaded(nobody));
        assert_eq!(fs::read(&file).unwrap(), whole);
    }
    // Code of another component under this one's name.
    let other = Runtime::new(1, limits, Permissions::default(), Some(cache.path())).unwrap();
    other.load(&other.read(&guest("echo")).unwrap()).unwrap();
    let files = fs::read_dir(cache.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let of_other = files
        .into_iter()
        .find(|path| path.extension().is_some_and(|ending| ending == "compiled") && *path != file);
    fs::copy(of_other.unwrap(), &file).unwrap();
    assert!(!loaded(nobody));
    // Another user's.
    if rustix::process::geteuid().is_root() {
        fs::write(&file, &whole).unwrap();
        assert!(loaded(nobody));
        std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
        assert!(!loaded(nobody));
    }
}

#[test]
fn what_a_refused_component_has_is_told_by_the_process_that_compiled_it() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("handler");
    let text = r#"(component (import "a:b/c@1.0.0" (instance)) (instance) (export "d:e/f@1.0.0" (instance 1)))"#;
    fs::write(&file, wat::parse_str(text).unwrap()).unwrap();
    let shown = stdout(&run(None, &["check", file.to_str().unwrap()], 4));
    assert!(shown.contains("exports  d:e/f@1.0.0"), "{shown}");
    assert!(
        shown.contains("imports  a:b/c@1.0.0: there is no such thing here"),
        "{shown}"
    );
}
