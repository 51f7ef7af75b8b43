//! The folder of a handler: what builds it (`handler.toml`), and when something in it was saved.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use notify::event::EventKind;
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use serde::Deserialize;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::cli::Usage;
use crate::text::{line_and_column, printable};

/// The file that says how the handler is built.
const MANIFEST: &str = "handler.toml";

/// An editor saves a file in several steps.
const QUIET: Duration = Duration::from_millis(30);

/// Folders of what builders and tools write.
const NOT_SOURCE: [&str; 6] = [
    "target",
    "node_modules",
    "dist",
    "bindings",
    "__pycache__",
    "build",
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    handler: Table,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The command that builds it, for `sh -c`.
    build: String,
    /// What it builds.
    file: PathBuf,
    /// Messages to try it with.
    #[serde(default = "messages")]
    messages: PathBuf,
}

fn messages() -> PathBuf {
    "messages.ndjson".into()
}

/// A handler's folder. Its paths are those of `handler.toml` below it.
#[derive(Debug)]
pub(super) struct Project {
    folder: PathBuf,
    build: String,
    pub file: PathBuf,
    pub messages: PathBuf,
}

impl Project {
    pub(super) fn read(folder: &Path) -> Result<Self, Usage> {
        let path = folder.join(MANIFEST);
        let name = printable(&path.display().to_string()).into_owned();
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Usage(format!(
                "{name} is missing: it says how the handler is built. `dqhost new` makes a folder \
                 with one"
            )),
            _ => Usage(format!("cannot read {name}: {error}")),
        })?;
        let manifest: Manifest = toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let (line, column) = line_and_column(&text, at);
            Usage(format!(
                "{name}:{line}:{column}: this is not understood: {}",
                printable(error.message())
            ))
        })?;
        let Table {
            build,
            file,
            messages,
        } = manifest.handler;
        Ok(Self {
            build,
            file: folder.join(file),
            messages: folder.join(messages),
            folder: folder.to_owned(),
        })
    }

    /// Runs the build command in the folder. What it prints goes to the terminal.
    pub(super) fn build(&self) -> io::Result<ExitStatus> {
        let mut command = Command::new("sh");
        command.args(["-c", &self.build]).current_dir(&self.folder);
        // Its output comes before ours, on one stream.
        command.stdin(Stdio::null()).stdout(io::stderr());
        command.status()
    }

    /// Something in the folder that is a source was written or removed.
    pub(super) fn watch(&self) -> notify::Result<Saves> {
        let (sender, saves) = unbounded_channel();
        let folder = fs::canonicalize(&self.folder)?;
        // What is built is no source, and may not be there yet.
        let built = self.file.strip_prefix(&self.folder).unwrap_or(&self.file);
        let (root, built) = (folder.clone(), folder.join(built));
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let is_save = event.is_ok_and(|event| {
                let is_source = |path: &PathBuf| *path != built && is_source(&root, path);
                !matches!(event.kind, EventKind::Access(_)) && event.paths.iter().any(is_source)
            });
            if is_save {
                // The command may be about to end.
                let _ = sender.send(());
            }
        })?;
        watcher.watch(&folder, RecursiveMode::Recursive)?;
        Ok(Saves {
            saves,
            _watcher: watcher,
        })
    }
}

/// True for a file that a person writes: not in a folder of tools, and not hidden.
fn is_source(root: &Path, path: &Path) -> bool {
    let Ok(path) = path.strip_prefix(root) else {
        return false;
    };
    let is_hidden = |name: &str| name.starts_with('.') || name.ends_with('~');
    path.components().all(|part| match part {
        Component::Normal(name) => {
            let name = name.to_string_lossy();
            !is_hidden(&name) && !NOT_SOURCE.contains(&&*name)
        }
        _ => false,
    }) && path.components().next().is_some()
}

/// What was saved.
pub(super) struct Saves {
    saves: UnboundedReceiver<()>,
    _watcher: RecommendedWatcher,
}

impl Saves {
    /// Waits for the next save, and until it is quiet.
    pub(super) async fn next(&mut self) {
        if self.saves.recv().await.is_none() {
            // Nothing watches any more.
            return std::future::pending().await;
        }
        while let Ok(Some(())) = tokio::time::timeout(QUIET, self.saves.recv()).await {}
    }

    /// True when something was saved since; that is forgotten.
    pub(super) fn take(&mut self) -> bool {
        let mut any = false;
        while self.saves.try_recv().is_ok() {
            any = true;
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tools_write_is_no_source() {
        let root = Path::new("/project");
        for source in ["src/lib.rs", "handler.js", "wit/world.wit", "a/b/c.py"] {
            assert!(is_source(root, &root.join(source)), "{source}");
        }
        for other in [
            "",
            "target/debug/x",
            "a/node_modules/x.js",
            ".git/index",
            "src/.lib.rs.swp",
            "src/lib.rs~",
            "a/__pycache__/x",
        ] {
            assert!(!is_source(root, &root.join(other)), "{other}");
        }
        assert!(!is_source(root, Path::new("/elsewhere/src/lib.rs")));
    }
}
