//! Imports point down only: a module uses those to the left of it.

mod circles;

use std::fs;
use std::path::{Path, PathBuf};

/// From the vocabulary to the program.
const LAYERS: [&str; 18] = [
    "message",
    "metrics",
    "tls_roots",
    "spans",
    "clock",
    "text",
    "files",
    "store",
    "format",
    "queue",
    "schedule",
    "verdict",
    "runtime",
    "host",
    "control",
    "dashboard",
    "http_api",
    "cli",
];

/// All that the dashboard may know of the rest: what it is told through `control`.
const DASHBOARD_USES: [&str; 5] = ["message", "text", "files", "control", "dashboard"];

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn source_files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let name = |path: &Path| {
        path.strip_prefix(&root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    files
        .into_iter()
        .map(|path| (name(&path), fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
fn imports_point_down() {
    let files = source_files();
    assert!(files.len() > 20);
    for (name, text) in files {
        let module = name.split(['/', '.']).next().unwrap();
        let Some(layer) = LAYERS.iter().position(|other| *other == module) else {
            assert!(matches!(module, "main" | "lib"), "{name} is in no layer");
            continue;
        };
        for used in text.split("crate::").skip(1) {
            let used: String = used
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let used_layer = LAYERS.iter().position(|other| *other == used);
            assert!(
                used_layer.is_none_or(|used| used <= layer),
                "{name} uses crate::{used}"
            );
            assert!(
                module != "dashboard" || DASHBOARD_USES.contains(&used.as_str()),
                "{name} uses crate::{used}"
            );
        }
    }
}

#[test]
fn what_others_made_is_known_in_one_place_each() {
    for (name, text) in source_files() {
        let uses = |what: &str| text.lines().any(|line| line.trim_start().starts_with(what));
        if !name.starts_with("store/redis") {
            assert!(!uses("use redis::"), "{name}");
        }
        if !name.starts_with("store/sqlite") {
            assert!(!uses("use rusqlite"), "{name}");
        }
        if !name.starts_with("runtime") {
            assert!(!uses("use wasmtime"), "{name}");
        }
        if !name.starts_with("dashboard") {
            assert!(!uses("use ratatui") && !uses("use crossterm"), "{name}");
        }
        if !name.starts_with("http_api") {
            assert!(!uses("use axum"), "{name}");
        }
        if !name.starts_with("spans") {
            assert!(!uses("use opentelemetry"), "{name}");
        }
        if !name.starts_with("cli") && name != "main.rs" {
            assert!(!uses("use anyhow") && !uses("use clap"), "{name}");
        }
    }
}

#[test]
fn files_are_short_enough_to_read() {
    for (name, text) in source_files() {
        let lines = text
            .lines()
            .take_while(|line| *line != "#[cfg(test)]")
            .count();
        assert!(lines <= 400, "{name} has {lines} lines");
    }
}
