//! The pages of `docs/`: their commands run and print what the pages show, and all links lead somewhere.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::first_handler::{Block, blocks, shell};
use crate::support::{RedisServer, expect, guest, stats, stdout, with_hangups};

/// Stands on a page for what differs from run to run.
const ANYTHING: char = '…';

/// A page as one script, in whose output a line with its number stands before what a block prints,
/// and what the page shows of that.
struct Script {
    text: String,
    shown: Vec<(usize, String)>,
}

impl Script {
    fn of(page: &str) -> Self {
        // Hosts that a page leaves running end with it.
        let mut text = "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n".to_owned();
        let mut shown = Vec::new();
        let mut number = 0;
        for block in blocks(page) {
            match (block.language.as_str(), &block.file) {
                ("sh", _) => {
                    number += 1;
                    let _ = writeln!(text, "printf '\\n=== %s\\n' {number}");
                    text += &command(&block);
                }
                (_, Some(file)) => {
                    let _ = writeln!(
                        text,
                        "cat >{file} <<'END OF FILE'\n{}END OF FILE",
                        block.text
                    );
                }
                ("text", None) if block.follows => shown.push((number, block.text)),
                _ => {}
            }
        }
        Self { text, shown }
    }

    /// Runs it in a folder, with the home of a new user. Returns all that it printed.
    fn run(&self, folder: &Path, home: &Path) -> String {
        let mut command = shell(&self.text, folder, home);
        for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            let of_user = || std::env::home_dir().unwrap().join(folder).into();
            command.env(name, std::env::var_os(name).unwrap_or_else(of_user));
        }
        let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tutorial");
        command.env("CARGO_BUILD_BUILD_DIR", build);
        for name in ["XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"] {
            command.env_remove(name);
        }
        command.env("HOME", home);
        let printed = stdout(&expect(with_hangups(&command).output().unwrap(), 0));
        for (number, lines) in &self.shown {
            let part = printed.split(&format!("\n=== {number}\n")).nth(1).unwrap();
            let part = part.split("\n=== ").next().unwrap();
            for line in lines.lines() {
                assert!(
                    part.lines().any(|printed| matches(printed, line)),
                    "block {number} does not print {line:?}, but: {part}"
                );
            }
        }
        printed
    }
}

/// What a reader types. A host that does not stop by itself has a terminal of its own.
fn command(block: &Block) -> String {
    let text = &block.text;
    if text.starts_with("dqhost serve") {
        let ask = "curl -s -o .asked http://127.0.0.1:7420/stats";
        format!(
            "(exec {}) >/dev/null 2>&1 &\nuntil {ask}; do sleep 0.1; done\n",
            text.trim_end()
        )
    } else if text.starts_with("dqhost --handler") && !text.contains("--exit-when-empty") {
        format!("(exec {}) >/dev/null 2>&1 &\n", text.trim_end())
    } else {
        text.clone()
    }
}

fn matches(printed: &str, shown: &str) -> bool {
    let mut rest = printed;
    shown.trim_end().split(ANYTHING).all(|part| {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
        true
    })
}

#[test]
fn what_is_shown_is_found_in_what_is_printed() {
    assert!(matches("12:00 INFO serving queue=q", "… INFO serving …"));
    assert!(matches("verdict   acked", "verdict   acked"));
    assert!(!matches("verdict   nacked", "verdict   acked"));
    assert!(!matches("b then a", "a…b"));
}

#[test]
fn the_tutorial_works_from_an_empty_folder_and_prints_what_it_shows() {
    // Its crates come with those of the examples.
    guest("echo");
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let script = Script::of(include_str!("../../docs/tutorial.md"));
    assert!(script.shown.len() > 5);
    script.run(empty.path(), home.path());
    let store = home.path().join(".local/share/dqhost/dqhost.db");
    let totals = stats(&store.display().to_string(), "default")["totals"].clone();
    assert_eq!(totals["rejected"], 1, "{totals}");
}

#[test]
fn the_commands_of_the_operations_page_run_and_print_what_it_shows() {
    let redis = RedisServer::start();
    let page = include_str!("../../docs/operations.md").replace("redis://localhost", &redis.url());
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for (name, example) in [("handler.wasm", "order-timeout"), ("mended.wasm", "echo")] {
        fs::copy(guest(example), empty.path().join(name)).unwrap();
    }
    let script = Script::of(&page);
    assert!(script.shown.len() > 5);
    script.run(empty.path(), home.path());
    assert_eq!(stats(&redis.url(), "orders")["pending"], 1);
}

#[test]
fn the_commands_that_replace_a_handler_run_and_print_what_the_page_shows() {
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for (name, example) in [("handler.wasm", "echo"), ("new.wasm", "sleeper")] {
        fs::copy(guest(example), empty.path().join(name)).unwrap();
    }
    let script = Script::of(include_str!("../../docs/hot-swap.md"));
    assert_eq!(script.shown.len(), 4);
    script.run(empty.path(), home.path());
}

#[test]
fn the_requests_of_the_page_on_the_http_api_are_answered_as_it_shows() {
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap().to_string();
    drop(free);
    let page = include_str!("../../docs/http-api.md");
    let mut script = Script::of(page);
    script.text = script.text.replace("127.0.0.1:7420", &at);
    assert!(script.shown.len() > 5);
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    script.run(empty.path(), home.path());
    let store = home.path().join(".local/share/dqhost/dqhost.db");
    assert_eq!(stats(&store.display().to_string(), "orders")["pending"], 2);
    let metrics = Script::of(include_str!("../../docs/metrics.md"));
    let printed = metrics.run(empty.path(), home.path());
    assert!(printed.contains("orders "), "{printed}");
}

#[test]
fn the_blocks_of_the_configuration_page_run_and_print_what_it_shows() {
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::copy(guest("echo"), empty.path().join("handler.wasm")).unwrap();
    let script = Script::of(include_str!("../../docs/configuration.md"));
    assert_eq!(script.shown.len(), 3);
    script.run(empty.path(), home.path());
    let store = empty.path().join("jobs.db");
    assert_eq!(
        stats(&store.display().to_string(), "emails")["totals"]["acked"],
        1
    );
}

#[test]
fn the_blocks_of_the_page_on_schedules_run_and_print_what_it_shows() {
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::copy(guest("echo"), empty.path().join("handler.wasm")).unwrap();
    let script = Script::of(include_str!("../../docs/schedules.md"));
    assert_eq!(script.shown.len(), 2);
    script.run(empty.path(), home.path());
}

#[test]
fn the_commands_of_the_limits_page_run_and_print_what_it_shows() {
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::copy(guest("order-timeout"), empty.path().join("handler.wasm")).unwrap();
    let script = Script::of(include_str!("../../docs/limits.md"));
    assert!(!script.shown.is_empty());
    script.run(empty.path(), home.path());
}

#[test]
fn the_commands_of_the_page_on_installing_run_and_print_what_it_shows() {
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let script = Script::of(include_str!("../../docs/install.md"));
    assert_eq!(script.shown.len(), 2);
    script.run(empty.path(), home.path());
}

#[test]
fn the_commands_of_the_page_on_fairness_run_and_print_what_it_shows() {
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::copy(guest("order-timeout"), empty.path().join("handler.wasm")).unwrap();
    let script = Script::of(include_str!("../../docs/fairness.md"));
    assert_eq!(script.shown.len(), 1);
    script.run(empty.path(), home.path());
}

#[test]
fn the_commands_of_the_page_on_slots_run_and_print_what_it_shows() {
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::copy(guest("order-timeout"), empty.path().join("handler.wasm")).unwrap();
    let script = Script::of(include_str!("../../docs/slots.md"));
    assert_eq!(script.shown.len(), 1);
    script.run(empty.path(), home.path());
}

#[test]
fn the_commands_of_the_page_on_retries_run_and_print_what_it_shows() {
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::copy(guest("order-timeout"), empty.path().join("handler.wasm")).unwrap();
    let script = Script::of(include_str!("../../docs/retries.md"));
    assert_eq!(script.shown.len(), 4);
    script.run(empty.path(), home.path());
}

#[test]
fn the_commands_of_the_page_on_debouncing_run_and_print_what_it_shows() {
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let script = Script::of(include_str!("../../docs/debounce.md"));
    assert_eq!(script.shown.len(), 4);
    script.run(empty.path(), home.path());
    let store = home.path().join(".local/share/dqhost/dqhost.db");
    assert_eq!(stats(&store.display().to_string(), "search")["pending"], 3);
}

#[test]
fn the_commands_of_the_page_on_topics_run_and_print_what_it_shows() {
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap().to_string();
    drop(free);
    let (empty, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut script = Script::of(include_str!("../../docs/topics.md"));
    script.text = script.text.replace("127.0.0.1:7420", &at);
    assert_eq!(script.shown.len(), 4);
    script.run(empty.path(), home.path());
    let store = home.path().join(".local/share/dqhost/dqhost.db");
    let ledger = stats(&store.display().to_string(), "ledger");
    assert_eq!(
        (&ledger["pending"], &ledger["ready"]),
        (&1.into(), &2.into())
    );
}

/// All Markdown files of the repository.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The text outside of blocks of code.
fn prose(page: &str) -> String {
    let parts = page.split("```").step_by(2);
    parts.collect::<Vec<_>>().join("\n")
}

/// The anchors of a page, as GitHub and mdBook make them of its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let prose = prose(page);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let text = line.trim_start_matches('#').trim().to_lowercase();
            let kept = text
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    pages(root, &mut found);
    assert!(found.len() > 15);
    let mut links = 0;
    for path in found {
        let text = prose(&fs::read_to_string(&path).unwrap());
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link}", path.display());
            if !anchor.is_empty() {
                let there = anchors(&fs::read_to_string(&target).unwrap());
                assert!(there.contains(anchor), "{}: {link}", path.display());
            }
            links += 1;
        }
    }
    assert!(links > 50);
}

/// A page that the summary leaves out is not in the book, and neither is a file outside of its folder.
#[test]
fn every_page_is_in_the_book_and_links_only_to_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let summary = fs::read_to_string(folder.join("SUMMARY.md")).unwrap();
    let mut found = Vec::new();
    pages(&folder, &mut found);
    for path in found {
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_listed = summary.contains(&format!("]({name})"));
        assert!(is_listed || name == "SUMMARY.md", "{name}");
        let text = prose(&fs::read_to_string(&path).unwrap());
        assert!(!text.contains("](../"), "{name}");
    }
}

#[test]
fn the_glossary_explains_at_most_30_words_once_each() {
    let page = include_str!("../../docs/glossary.md");
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    let terms: Vec<&str> = rows
        .map(|row| row.split('|').nth(1).unwrap().trim())
        .collect();
    assert!((20..=30).contains(&terms.len()), "{}", terms.len());
    let different: BTreeSet<&&str> = terms.iter().collect();
    assert_eq!(different.len(), terms.len());
}
