//! The lines of the prompt from run to run: one JSON string a line, for this user alone, since
//! payloads are in them.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use super::prompt::REMEMBERED_MAX;
use crate::files::{self, Owner};

/// The latest lines, oldest first; none of a file that is missing or cannot be read.
pub(super) fn load(path: Option<&Path>) -> Vec<String> {
    let text = path.and_then(|path| read(path).ok()).unwrap_or_default();
    let lines: Vec<String> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let old = lines.len().saturating_sub(REMEMBERED_MAX);
    if let Some(path) = path.filter(|_| old > REMEMBERED_MAX) {
        rewrite(path, &lines[old..]);
    }
    lines[old..].to_vec()
}

fn read(path: &Path) -> io::Result<String> {
    let file = files::open_ours(path, OpenOptions::new().read(true), Owner::Us)?;
    io::read_to_string(file)
}

/// Adds a line.
pub(super) fn add(path: Option<&Path>, line: &str) {
    let Some(path) = path else { return };
    let mut options = OpenOptions::new();
    let file = files::open_ours(path, options.append(true).create(true), Owner::Us);
    let written = file.and_then(|mut file| writeln!(file, "{}", serde_json::json!(line)));
    if let Err(error) = written {
        tracing::warn!(
            "the prompt's line is not kept in {}: {error}",
            path.display()
        );
    }
}

/// Lets go of what is too old.
fn rewrite(path: &Path, lines: &[String]) {
    let mut text = String::new();
    for line in lines {
        text.push_str(&serde_json::json!(line).to_string());
        text.push('\n');
    }
    let new = path.with_extension("new");
    // What a crash has left there.
    let _ = std::fs::remove_file(&new);
    let mut options = OpenOptions::new();
    let file = files::open_ours(&new, options.write(true).create_new(true), Owner::Us);
    let written = file
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&new, path));
    if let Err(error) = written {
        tracing::warn!(
            "old lines of the prompt stay in {}: {error}",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_neither_read_nor_written_through_a_link_or_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("victim"), "\"send x\"\n").unwrap();
        std::os::unix::fs::symlink(at("victim"), at("lines")).unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(at("pipe"))
            .status();
        assert!(made.unwrap().success());
        for name in ["lines", "pipe"] {
            assert!(load(Some(&at(name))).is_empty(), "{name}");
            add(Some(&at(name)), "pause");
        }
        // What is left of a rewrite that a crash has ended is not written through either.
        std::os::unix::fs::symlink(at("victim"), at("own.new")).unwrap();
        rewrite(&at("own"), &["pause".to_owned()]);
        assert_eq!(load(Some(&at("own"))), ["pause"]);
        assert_eq!(std::fs::read(at("victim")).unwrap(), b"\"send x\"\n");
    }

    #[test]
    fn lines_come_back_in_the_next_run_for_this_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        assert!(load(Some(&path)).is_empty());
        add(Some(&path), "send {\n\"a\": 1}");
        add(Some(&path), "pause");
        assert_eq!(load(Some(&path)), ["send {\n\"a\": 1}", "pause"]);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for n in 0..2 * REMEMBERED_MAX {
            add(Some(&path), &format!("line {n}"));
        }
        assert_eq!(load(Some(&path)).len(), REMEMBERED_MAX);
        assert_eq!(
            std::fs::read_to_string(&path).unwrap().lines().count(),
            REMEMBERED_MAX
        );
        assert!(load(None).is_empty());
    }
}
