//! `dqhost new`: what it writes, that it works as written, and what it refuses.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::first_handler::{Running, blocks, shell};
use crate::support::{dqhost, eventually, expect, guest, read_request, run, stats, stderr, stdout};

const LANGUAGES: [&str; 6] = ["c", "go", "js", "python", "rust", "ts"];

/// `dqhost new` in a folder.
fn new(folder: &Path, args: &[&str], code: i32) -> Output {
    let mut command = dqhost(None, &[&["new"], args].concat());
    command.env("PATH", path_with_go()).current_dir(folder);
    expect(command.output().unwrap(), code)
}

/// Where programs are, with this dqhost and the Go of `make languages` first.
fn path_with_go() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_dqhost")).parent().unwrap();
    let go = downloads("go").join("go/bin");
    let path = std::env::var("PATH").unwrap();
    PathBuf::from(format!("{}:{}:{path}", program.display(), go.display()))
}

/// All files below a folder, by their paths in it.
fn files_in(folder: &Path) -> Vec<String> {
    fn add(root: &Path, folder: &Path, files: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                add(root, &path, files);
            } else {
                let path = path.strip_prefix(root).unwrap();
                files.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    let mut files = Vec::new();
    add(folder, folder, &mut files);
    files.sort();
    files
}

#[test]
fn the_files_of_each_language_are_those_that_are_meant() {
    let folder = TempDir::new().unwrap();
    for language in LANGUAGES {
        let name = format!("{language}-orders");
        let told = stdout(&new(folder.path(), &[&name, "--lang", language], 0));
        let made = folder.path().join(&name);
        let mut shown = String::new();
        for file in files_in(&made) {
            assert!(told.contains(&format!("{name}/{file}\n")), "{told}");
            let text = fs::read_to_string(made.join(&file)).unwrap();
            if file.starts_with("wit/") && file != "wit/world.wit" {
                let ours = file.replace("deps/dqhost-queue/", "");
                let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join(ours);
                assert_eq!(text, fs::read_to_string(ours).unwrap(), "{file}");
                let _ = writeln!(shown, "==== {file}: as in this repository");
            } else if file.starts_with("bindings/") || file.starts_with("runtime/") {
                // `bindings.rs` sees to what is in them.
                let _ = writeln!(shown, "==== {file}");
            } else {
                let _ = writeln!(shown, "==== {file}\n{text}");
            }
        }
        let _ = writeln!(shown, "==== printed\n{told}");
        insta::assert_snapshot!(format!("new-{language}"), shown);
    }
}

/// The commands of a README, a text for each block.
fn commands(readme: &str) -> Vec<String> {
    let mut lines = readme.lines();
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        if line == "```sh" {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(block.join("\n"));
        }
    }
    blocks
}

/// Follows the README of a new handler in this folder, to where its messages were handled.
fn follow(folder: &Path, environment: &[(&str, &Path)]) {
    let mails = follow_and_count_mails(folder, environment);
    assert_eq!(mails, None);
}

/// The same for a handler that sends a mail of its own.
fn follow_with_mail(folder: &Path, environment: &[(&str, &Path)]) {
    let mails = follow_and_count_mails(folder, environment);
    assert_eq!(mails, Some(1));
}

/// How many messages wait in the queue `mails` then.
fn follow_and_count_mails(folder: &Path, environment: &[(&str, &Path)]) -> Option<u64> {
    let home = TempDir::new().unwrap();
    let store = home.path().join("dqhost/dqhost.db").display().to_string();
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    let mut host = None;
    for block in commands(&readme) {
        if block.starts_with("dqhost --handler") {
            let mut command = shell(&format!("exec {block}"), folder, home.path());
            command.envs(environment.iter().copied());
            host = Some(Running(command.stderr(Stdio::null()).spawn().unwrap()));
            continue;
        }
        // One of its messages is retried.
        let code = i32::from(block.contains("--messages"));
        let mut command = shell(&block, folder, home.path());
        command.envs(environment.iter().copied());
        let output = expect(command.output().unwrap(), code);
        if block.contains("--messages") {
            let verdicts: Vec<_> = stdout(&output)
                .lines()
                .filter_map(|line| line.strip_prefix("verdict "))
                .map(|line| line.trim().split(':').next().unwrap().to_owned())
                .collect();
            assert_eq!(verdicts, ["acked", "nacked", "rejected"]);
        }
    }
    assert!(host.is_some(), "a host is started");
    eventually("each message has ended as the README says", || {
        let stats = stats(&store, "default");
        let ends = ["acked", "nacked", "dead"].map(|end| stats["totals"][end].as_u64());
        (ends == [Some(2), Some(1), Some(1)]).then_some(())
    });
    let dead = stdout(&run(Some(&store), &["dead", "list"], 0));
    assert!(dead.contains("rejected"), "{dead}");
    let queues = stdout(&run(Some(&store), &["stats", "--json"], 0));
    let mails = queues.contains("\"mails\"").then(|| stats(&store, "mails"));
    mails.and_then(|mails| mails["ready"].as_u64())
}

#[test]
fn a_new_handler_in_rust_works_by_its_readme_alone() {
    // Its crates come with those of the examples.
    guest("echo");
    // What it builds stays from one run to the next. The rest is made again.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-rust");
    let made = folder.join("new-orders");
    fs::create_dir_all(folder.join("target")).unwrap();
    if made.exists() {
        fs::remove_dir_all(&made).unwrap();
    }
    new(&folder, &["new-orders"], 0);
    symlink("../target", made.join("target")).unwrap();
    // The build of the test finds what it is to run beside itself.
    let target = made.join("target");
    follow(&made, &[("CARGO_BUILD_BUILD_DIR", target.as_path())]);
    let formatted = Command::new("cargo")
        .args(["fmt", "--check"])
        .current_dir(&made)
        .output();
    expect(formatted.unwrap(), 0);
}

/// Where `make languages` keeps what this tool has downloaded.
pub(crate) fn downloads(tool: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_dqhost"));
    let target = program.parent().and_then(Path::parent).unwrap();
    let downloads = target.join("tools").join(tool);
    assert!(downloads.is_dir(), "run `make languages` first");
    downloads
}

#[test]
fn a_new_handler_in_js_works_by_its_readme_alone() {
    let folder = TempDir::new().unwrap();
    new(folder.path(), &["new-orders", "--lang", "js"], 0);
    let environment = [
        ("npm_config_cache", &*downloads("npm")),
        ("npm_config_offline", Path::new("true")),
    ];
    let made = folder.path().join("new-orders");
    follow(&made, &environment);
    let handler = made.join("handler.js");
    let text = fs::read_to_string(&handler).unwrap();
    let text = text.replace(
        "console.log(`order ${order} is paid`)",
        "throw new Error(`no ${order}`)",
    );
    fs::write(&handler, text).unwrap();
    let told = first_message(&made, "npm run build", "handler.wasm", &environment);
    assert!(
        told.contains("it printed: no A-1 at handle (/handler.js:16:"),
        "{told}"
    );
    js_asks_as_the_readme_says(&made, &environment);
}

/// The example of the README for requests, as a handler.
fn js_asks_as_the_readme_says(made: &Path, environment: &[(&str, &Path)]) {
    let readme = fs::read_to_string(made.join("README.md")).unwrap();
    let (_, example) = readme.split_once("```js\n").unwrap();
    let (import, request) = example.split_once("\n\n").unwrap();
    let (request, _) = request.split_once("```").unwrap();
    let text = format!(
        "import \"./prelude.js\";\n{import}\nexport const handler = {{ handle() {{\n{request}\
         return {{ tag: \"ack\" }}; }} }};\n"
    );
    fs::write(made.join("handler.js"), text).unwrap();
    asks(made, "handler.js", "npm run build", environment);
}

/// The handler that the page on handlers shows for requests in this language.
fn asks_as_the_page_says(
    made: &Path,
    (language, file): (&str, &str),
    build: &str,
    environment: &[(&str, &Path)],
) {
    let page = blocks(include_str!("../../docs/handlers.md"));
    let mut shown = page.into_iter().filter(|one| one.language == language);
    let example = shown.next().unwrap();
    assert_eq!(example.file.as_deref(), Some(file));
    fs::write(made.join(file), example.text).unwrap();
    asks(made, file, build, environment);
}

/// Builds a handler that requests something, with a server of this test in the place of the one that it names,
/// and runs it with and without the permission.
fn asks(made: &Path, file: &str, build: &str, environment: &[(&str, &Path)]) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let asked = read_request(stream.try_clone().unwrap()).unwrap();
        let answer = b"HTTP/1.1 418 x\r\ncontent-length: 5\r\n\r\nh\xc3\xa9y!";
        stream.write_all(answer).unwrap();
        asked
    });
    let text = fs::read_to_string(made.join(file)).unwrap();
    let here = text.replace("https://example.com", &format!("http://{address}"));
    assert_ne!(text, here);
    fs::write(made.join(file), here).unwrap();
    let home = TempDir::new().unwrap();
    let mut build = shell(build, made, home.path());
    expect(build.envs(environment.iter().copied()).output().unwrap(), 0);
    let places = ["handler.wasm", "build/handler.wasm"].map(|name| made.join(name));
    let handler = places.into_iter().find(|place| place.exists()).unwrap();
    let run = format!(
        "dqhost run {} --payload hello --timeout 1m --limit compile-time=5m",
        handler.display()
    );
    let allowed = format!("{run} --allow-http {address}");
    let told = shell(&allowed, made, home.path()).output();
    let told = stdout(&expect(told.unwrap(), 0));
    assert!(told.contains("418 h\u{e9}y!"), "{told}");
    let asked = answering.join().unwrap();
    assert!(asked.method == "GET" || asked.body == b"hello", "{asked:?}");
    // Without the permission there is no response.
    let told = shell(&run, made, home.path()).output();
    let told = stdout(&expect(told.unwrap(), 1));
    assert!(told.contains("--allow-http"), "{told}");
}

#[test]
fn a_new_handler_in_ts_works_by_its_readme_alone() {
    let folder = TempDir::new().unwrap();
    new(folder.path(), &["new-orders", "--lang", "ts"], 0);
    let made = folder.path().join("new-orders");
    let environment = [
        ("npm_config_cache", &*downloads("npm")),
        ("npm_config_offline", Path::new("true")),
    ];
    follow_with_mail(&made, &environment);
    // A verdict that the interface does not have builds nothing.
    let handler = made.join("handler.ts");
    let text = fs::read_to_string(&handler).unwrap();
    fs::write(
        &handler,
        text.replace(r#"{ tag: "ack" }"#, r#"{ tag: "done" }"#),
    )
    .unwrap();
    for script in ["check", "build"] {
        let home = TempDir::new().unwrap();
        let mut command = shell(&format!("npm run {script}"), &made, home.path());
        let output = command.envs(environment).output().unwrap();
        assert!(!output.status.success());
        assert!(stdout(&output).contains("handler.ts("), "{output:?}");
    }
}

#[test]
fn a_new_handler_in_go_works_by_its_readme_alone() {
    let folder = TempDir::new().unwrap();
    new(folder.path(), &["new-orders", "--lang", "go"], 0);
    let made = folder.path().join("new-orders");
    // Go's own library is compiled once, and nothing is asked of a network.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
    let path = path_with_go();
    let environment = [
        ("PATH", path.as_path()),
        ("GOCACHE", &cache),
        ("GOPROXY", Path::new("off")),
        ("GOTOOLCHAIN", Path::new("local")),
    ];
    follow_with_mail(&made, &environment);
    let unformatted = Command::new("gofmt")
        .arg("-l")
        .arg(&made)
        .env("PATH", &path)
        .output();
    assert_eq!(stdout(&expect(unformatted.unwrap(), 0)), "");
    // The reason of a failed attempt is what Go says, not the last line of its stacks.
    let handler = made.join("export_dqhost_queue_handler/handler.go");
    let text = fs::read_to_string(&handler).unwrap();
    let text = text.replace(
        "fmt.Printf(\"order %s is paid\\n\", ",
        "panic(\"no such order \" + ",
    );
    fs::write(&handler, text).unwrap();
    let told = first_message(&made, "sh build.sh", "build/handler.wasm", &environment);
    let wanted = "it printed: panic: no such order A-1\n";
    assert!(told.contains(wanted), "{told}");
    let file = ("go", "export_dqhost_queue_handler/handler.go");
    asks_as_the_page_says(&made, file, "sh build.sh", &environment);
    let formatted = Command::new("gofmt")
        .args(["-l", file.1])
        .env("PATH", &path)
        .current_dir(&made)
        .output();
    assert_eq!(stdout(&expect(formatted.unwrap(), 0)), "");
}

/// Builds a handler and gives it the first of its messages, which has to fail.
fn first_message(folder: &Path, build: &str, file: &str, environment: &[(&str, &Path)]) -> String {
    let home = TempDir::new().unwrap();
    let run = format!("{build} >&2 && head -n 1 messages.ndjson | dqhost run {file} --messages -");
    let mut command = shell(&run, folder, home.path());
    stdout(&expect(
        command.envs(environment.iter().copied()).output().unwrap(),
        1,
    ))
}

#[test]
fn a_new_handler_in_c_works_by_its_readme_alone() {
    let folder = TempDir::new().unwrap();
    new(folder.path(), &["new-orders", "--lang", "c"], 0);
    let made = folder.path().join("new-orders");
    follow_with_mail(&made, &[]);
    let handler = made.join("handler.c");
    let text = fs::read_to_string(&handler).unwrap();
    let abort = "fprintf(stderr, \"no such order %s\\n\", order), abort()";
    let paid = "printf(\"order %s is paid\\n\", order)";
    let text = text
        .replace(paid, abort)
        .replace("<stdio.h>", "<stdio.h>\n#include <stdlib.h>");
    fs::write(&handler, text).unwrap();
    let told = first_message(&made, "sh build.sh", "build/handler.wasm", &[]);
    assert!(told.contains("it printed: no such order A-1\n"), "{told}");
    asks_as_the_page_says(&made, ("c", "handler.c"), "sh build.sh", &[]);
}

#[test]
fn a_new_handler_in_python_works_by_its_readme_alone() {
    let folder = TempDir::new().unwrap();
    new(folder.path(), &["new-orders", "--lang", "python"], 0);
    let environment = [
        ("PIP_FIND_LINKS", &*downloads("pip")),
        ("PIP_NO_INDEX", Path::new("1")),
    ];
    let made = folder.path().join("new-orders");
    follow(&made, &environment);
    let build = ".venv/bin/componentize-py -d wit -w handler componentize app -o handler.wasm";
    asks_as_the_page_says(&made, ("python", "app.py"), build, &environment);
}

#[test]
fn nothing_is_written_over() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "mine").unwrap();
    fs::create_dir(at("empty")).unwrap();
    symlink("nothing", at("dangling")).unwrap();
    symlink("empty", at("link")).unwrap();
    for name in ["file", "empty", "dangling", "link"] {
        let refusal = stderr(&new(folder.path(), &[name], 2));
        let says = format!("error: {name} exists, and nothing is written over: choose");
        assert!(refusal.starts_with(&says), "{refusal}");
    }
    assert_eq!(files_in(folder.path()), ["dangling", "file", "link"]);
    assert_eq!(fs::read(at("file")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(at("empty")).unwrap().count(), 0);
}

#[test]
fn a_name_that_leads_elsewhere_or_changes_the_terminal_is_refused() {
    let folder = TempDir::new().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    for name in [
        "../x",
        "/tmp/x",
        "a/b",
        "..",
        "",
        "-x",
        "\u{1b}[2J",
        "a\nb",
        "a\u{202e}b",
        "Orders",
    ] {
        let refusal = stderr(&new(&inner, &["--", name], 2));
        let plain = |c: char| c == '\n' || (!c.is_control() && c != '\u{202e}');
        assert!(refusal.chars().all(plain), "{refusal:?}");
        assert!(
            name.is_empty() || refusal.contains("lower-case letters"),
            "{name:?}: {refusal}"
        );
    }
    let refusal = stderr(&new(&inner, &["serde-json"], 2));
    assert!(refusal.contains("choose another one"), "{refusal}");
    assert!(stderr(&new(&inner, &[], 2)).contains("<NAME"));
    assert!(files_in(folder.path()).is_empty());
}

#[test]
fn an_unknown_language_is_refused_with_those_that_are_known() {
    let folder = TempDir::new().unwrap();
    let refusal = stderr(&new(folder.path(), &["x", "--lang", "cobol\u{1b}[2J"], 2));
    for language in LANGUAGES {
        assert!(refusal.contains(language), "{refusal}");
    }
    assert!(!refusal.contains('\u{1b}'), "{refusal:?}");
    assert!(files_in(folder.path()).is_empty());
}

/// A program of this name in the folder.
fn program(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_tool_that_is_missing_is_named_with_how_to_install_it() {
    let (folder, tools) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let with_tools = |args: &[&str], code| {
        let mut command = dqhost(None, &[&["new"], args].concat());
        command.env("PATH", tools.path()).current_dir(folder.path());
        expect(command.output().unwrap(), code)
    };
    let refused = |says: &str| {
        let refusal = stderr(&with_tools(&["x"], 2));
        assert!(refusal.contains(says), "{says}: {refusal}");
        assert!(files_in(folder.path()).is_empty());
        stdout(&with_tools(&["--list"], 0))
    };
    let listed = refused("cargo is missing, which a handler in rust needs: install Rust by https");
    let says = "rust     cargo is missing: install Rust by https://rustup.rs\n";
    assert!(listed.contains(says), "{listed}");
    program(tools.path(), "cargo", "exit 0");
    program(tools.path(), "rustc", "echo /not/there");
    let target = "the target wasm32-wasip2 is missing";
    let listed = refused(&format!(
        "{target}, which a handler in rust needs: rustup target add"
    ));
    let says = format!("{target}: rustup target add wasm32-wasip2\n");
    assert!(listed.contains(&says), "{listed}");
    program(
        tools.path(),
        "rustc",
        &format!("echo {}", tools.path().display()),
    );
    let listed = stdout(&with_tools(&["--list"], 0));
    assert!(listed.contains("rust     ready\n"), "{listed}");
    with_tools(&["x"], 0);
    for (script, says) in [
        (
            "echo v16.20.2",
            "js       node is missing: install Node.js 18 or later",
        ),
        (
            "echo nonsense",
            "js       node is missing: install Node.js 18 or later",
        ),
        (
            "echo v22.1.0",
            "js       npm is missing: install it with Node.js",
        ),
    ] {
        program(tools.path(), "node", script);
        let listed = stdout(&with_tools(&["--list"], 0));
        assert!(listed.contains(says), "{listed}");
    }
    for (script, says) in [
        (
            "exit 1",
            "python   python3 is missing: install Python 3.10 or later",
        ),
        (
            "case \"$2\" in *ensurepip*) exit 1; esac",
            "python   the module venv of python3 is missing: install it by your package manager",
        ),
        ("exit 0", "python   ready"),
    ] {
        program(tools.path(), "python3", script);
        let listed = stdout(&with_tools(&["--list"], 0));
        assert!(listed.contains(says), "{listed}");
    }
    let refusal = stderr(&with_tools(&["y", "--lang", "js"], 2));
    assert!(
        refusal.contains("npm is missing, which a handler in js needs"),
        "{refusal}"
    );
}

#[test]
fn what_go_and_c_need_is_named_with_how_to_install_it() {
    let tools = TempDir::new().unwrap();
    let listed = || {
        let mut command = dqhost(None, &["new", "--list"]);
        command.env("PATH", tools.path()).env_remove("CLANG");
        stdout(&expect(command.output().unwrap(), 0))
    };
    let none = listed();
    assert!(none.contains("go       go is missing: install"), "{none}");
    assert!(
        none.contains("c        clang is missing: install"),
        "{none}"
    );
    fs::write(tools.path().join("a-file"), "").unwrap();
    for (script, says) in [
        (
            "echo go version go1.19.8 linux/amd64",
            "go       go is missing: install Go 1.25 or later",
        ),
        (
            "echo nonsense",
            "go       go is missing: install Go 1.25 or later",
        ),
        ("echo go version go1.25 linux/amd64", "go       ready"),
        ("echo go version go2.0.1 linux/amd64", "go       ready"),
    ] {
        program(tools.path(), "go", script);
        let listed = listed();
        assert!(listed.contains(says), "{listed}");
    }
    // What clang answers is the path of a file, be it there or not.
    let answer = format!(
        "case \"$*\" in @) echo {}/a-file;; *) echo x; esac",
        tools.path().display()
    );
    for (questions, with_linker, says) in [
        ("none", false, "c        wasm-ld is missing: install lld"),
        (
            "none",
            true,
            "c        the C library of WASI is missing: install wasi-libc",
        ),
        (
            "*crt1-reactor*",
            true,
            "c        clang's library for wasm32 is missing: install it",
        ),
        ("*crt1-reactor*|*libgcc*", true, "c        ready"),
    ] {
        program(tools.path(), "clang", &answer.replace('@', questions));
        if with_linker {
            program(tools.path(), "wasm-ld", "exit 0");
        }
        let listed = listed();
        assert!(listed.contains(says), "{listed}");
    }
}

#[test]
fn a_handler_that_cannot_be_written_whole_is_not_left_in_part() {
    let folder = TempDir::new().unwrap();
    let program = dqhost::<&str>(None, &[]).get_program().to_owned();
    // The README fits into what is allowed, the interface does not.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" new x"])
        .arg(program)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let refusal = stderr(&expect(output, 1));
    assert!(
        refusal.contains("cannot write x/wit/queue.wit"),
        "{refusal}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    new(folder.path(), &["x"], 0);
}
