//! The first handler of the README, made in an empty folder from nothing but what is written there.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{eventually, expect, stats, stdout};

const HEADING: &str = "## A handler in three minutes";

/// A block of code, and the file that it is, if the line before it names one.
#[derive(Debug)]
pub(crate) struct Block {
    pub language: String,
    pub file: Option<String>,
    pub text: String,
    /// True if nothing stands between the block before and this one.
    pub follows: bool,
}

/// The section of the README.
fn section() -> &'static str {
    let readme = include_str!("../../README.md");
    let section = readme.split_once(HEADING).unwrap().1;
    section.split("\n## ").next().unwrap()
}

/// The blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut before = "";
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let is_file = !["sh", "text"].contains(&language);
            let file = before
                .strip_suffix(':')
                .filter(|_| is_file)
                .and_then(|line| line.split('`').nth_back(1));
            blocks.push(Block {
                language: language.to_owned(),
                file: file.map(str::to_owned),
                text: text.join("\n") + "\n",
                follows: before.is_empty(),
            });
            before = "";
        } else if !line.is_empty() {
            before = line;
        }
    }
    blocks
}

/// A shell in the folder, with this dqhost and a store of its own, and without the network.
pub(crate) fn shell(script: &str, folder: &Path, home: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_dqhost")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("bash");
    for (name, _) in std::env::vars() {
        if [
            "DQHOST_",
            "CARGO_TARGET",
            "CARGO_ENCODED",
            "RUSTFLAGS",
            "REDIS_URL",
        ]
        .iter()
        .any(|start| name.starts_with(start))
        {
            command.env_remove(name);
        }
    }
    command
        .args(["-euc", script])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", program.display()))
        .env("XDG_DATA_HOME", home)
        .env("XDG_CONFIG_HOME", home)
        .env("XDG_CACHE_HOME", home)
        // What the example handlers were built from is there.
        .env("CARGO_NET_OFFLINE", "true")
        // They are built once. Of packages of one name each needs a folder of its own.
        .env(
            "CARGO_BUILD_BUILD_DIR",
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("first-handler"),
        )
        .stdin(Stdio::null());
    command
}

#[test]
fn the_first_handler_of_the_readme_works_from_an_empty_folder() {
    // Its crates come with those of the examples.
    crate::support::guest("echo");
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut folder = empty.path().to_owned();
    let store = home.path().join("dqhost/dqhost.db").display().to_string();
    let mut host = None;
    for Block {
        language,
        file,
        text,
        ..
    } in blocks(section())
    {
        if let Some(file) = file {
            std::fs::write(folder.join(&file), &text).unwrap();
            continue;
        }
        assert_eq!(language, "sh", "{text}");
        if text.starts_with("dqhost --handler") {
            let mut command = shell(&format!("exec {text}"), &folder, home.path());
            let child = command.stderr(Stdio::null()).spawn().unwrap();
            host = Some(Running(child));
            continue;
        }
        let output = expect(shell(&text, &folder, home.path()).output().unwrap(), 0);
        if text.contains("dqhost run") {
            assert!(
                stdout(&output).contains("verdict   acked"),
                "{}",
                stdout(&output)
            );
        }
        // A reader stays where the commands have led.
        if let Some(line) = text.lines().find(|line| line.starts_with("cd ")) {
            folder = folder.join(line[3..].split_whitespace().next().unwrap());
        }
    }
    assert!(host.is_some(), "a host is started");
    eventually("the message is handled", || {
        (stats(&store, "default")["totals"]["acked"] == 1).then_some(())
    });
}

/// Killed on drop.
pub(crate) struct Running(pub(crate) std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
