//! The languages of new handlers: what is written, and what builds it.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;

use crate::cli::wit;

/// A language that handlers are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    /// Rust, built by Cargo
    Rust,
    /// JavaScript, built by npm with QuickJS
    Js,
    /// Python, built by componentize-py
    Python,
}

/// What makes a new handler in one language.
struct Kit {
    name: &'static str,
    /// By their paths in the folder.
    files: &'static [(&'static str, &'static str)],
    /// Where in the folder each file of the interface is, by its path in `wit`.
    interface: fn(&str) -> String,
    /// The commands that build the handler, try it and test it.
    commands: &'static [&'static str],
    /// The first tool that is not there.
    missing: fn() -> Option<Missing>,
}

/// A tool that is needed and not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing {
    pub tool: &'static str,
    /// How to install it.
    pub remedy: &'static str,
}

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!("../../../templates/", $path))
    };
}

const RUST: Kit = Kit {
    name: "rust",
    files: &[
        ("README.md", template!("rust/README.md.in")),
        ("handler.toml", template!("rust/handler.toml.in")),
        ("Cargo.toml", template!("rust/Cargo.toml.in")),
        ("src/lib.rs", template!("rust/src/lib.rs")),
        ("tests/handler.rs", template!("rust/tests/handler.rs.in")),
        ("messages.ndjson", template!("messages.ndjson")),
        (".gitignore", template!("rust/gitignore.in")),
    ],
    interface: |path| format!("wit/{path}"),
    commands: &[
        "cargo build --release --target wasm32-wasip2",
        "dqhost run target/wasm32-wasip2/release/@CRATE@.wasm --messages messages.ndjson",
        "cargo test",
    ],
    missing: missing_for_rust,
};

const JS: Kit = Kit {
    name: "js",
    files: &[
        ("README.md", template!("js/README.md.in")),
        ("handler.toml", template!("js/handler.toml.in")),
        ("package.json", template!("js/package.json.in")),
        ("handler.js", template!("js/handler.js")),
        ("prelude.js", template!("js/prelude.js")),
        ("test/handler.test.js", template!("js/test/handler.test.js")),
        ("messages.ndjson", template!("messages.ndjson")),
        (".gitignore", template!("js/gitignore.in")),
        ("wit/world.wit", template!("world.wit")),
    ],
    interface: as_dependency,
    commands: &[
        "npm install",
        "npm run build",
        "dqhost run handler.wasm --messages messages.ndjson",
        "npm test",
    ],
    missing: missing_for_js,
};

const PYTHON: Kit = Kit {
    name: "python",
    files: &[
        ("README.md", template!("python/README.md.in")),
        ("handler.toml", template!("python/handler.toml.in")),
        ("requirements.txt", template!("python/requirements.txt")),
        ("app.py", template!("python/app.py")),
        (
            "tests/test_handler.py",
            template!("python/tests/test_handler.py"),
        ),
        ("messages.ndjson", template!("messages.ndjson")),
        (".gitignore", template!("python/gitignore.in")),
        ("wit/world.wit", template!("world.wit")),
    ],
    interface: as_dependency,
    commands: &[
        "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
        ".venv/bin/componentize-py -d wit -w handler componentize app -o handler.wasm",
        "dqhost run handler.wasm --messages messages.ndjson --limit compile-time=5m",
        "python3 -m unittest discover tests",
    ],
    missing: missing_for_python,
};

/// Beside a world of the handler's own: tools for which a folder has one package with one world.
fn as_dependency(path: &str) -> String {
    match path.strip_prefix("deps/") {
        Some(path) => format!("wit/deps/{path}"),
        None => format!("wit/deps/dqhost-queue/{path}"),
    }
}

impl Language {
    fn kit(self) -> &'static Kit {
        match self {
            Self::Rust => &RUST,
            Self::Js => &JS,
            Self::Python => &PYTHON,
        }
    }

    /// As on the command line.
    pub(super) fn name(self) -> &'static str {
        self.kit().name
    }

    /// The files of a new handler by their paths, with their texts.
    pub(super) fn files(self, name: &str) -> Vec<(String, String)> {
        let kit = self.kit();
        let own = kit.files.iter();
        let own = own.map(|(path, text)| ((*path).to_owned(), filled(text, name)));
        let interface = wit::FILES.iter();
        let interface = interface.map(|(path, text)| ((kit.interface)(path), (*text).to_owned()));
        own.chain(interface).collect()
    }

    /// The commands that build the handler, try it and test it, in this order.
    pub(super) fn commands(self, name: &str) -> Vec<String> {
        let commands = self.kit().commands.iter();
        commands.map(|command| filled(command, name)).collect()
    }

    /// The first tool that is not there.
    pub(super) fn missing(self) -> Option<Missing> {
        (self.kit().missing)()
    }
}

fn filled(text: &str, name: &str) -> String {
    text.replace("@NAME@", name)
        .replace("@CRATE@", &name.replace('-', "_"))
}

fn missing_for_rust() -> Option<Missing> {
    if printed("cargo", &["--version"]).is_none() {
        return Some(Missing {
            tool: "cargo",
            remedy: "install Rust by https://rustup.rs",
        });
    }
    // The folder of a target's libraries, be it there or not.
    let libraries = printed(
        "rustc",
        &["--print", "target-libdir", "--target", "wasm32-wasip2"],
    );
    let is_there = libraries.is_some_and(|folder| Path::new(folder.trim()).is_dir());
    (!is_there).then_some(Missing {
        tool: "the target wasm32-wasip2",
        remedy: "rustup target add wasm32-wasip2",
    })
}

/// The least Node.js that the tools run on.
const NODE_MIN: u32 = 18;

fn missing_for_js() -> Option<Missing> {
    let version = printed("node", &["--version"]);
    let major = version.and_then(|text| {
        text.trim()
            .strip_prefix('v')?
            .split('.')
            .next()?
            .parse()
            .ok()
    });
    if major.is_none_or(|major: u32| major < NODE_MIN) {
        return Some(Missing {
            tool: "node",
            remedy: "install Node.js 18 or later from https://nodejs.org, or by your package manager",
        });
    }
    printed("npm", &["--version"]).is_none().then_some(Missing {
        tool: "npm",
        remedy: "install it with Node.js, or by your package manager",
    })
}

fn missing_for_python() -> Option<Missing> {
    let is_new_enough = "import sys; sys.exit(sys.version_info < (3, 10))";
    if printed("python3", &["-c", is_new_enough]).is_none() {
        return Some(Missing {
            tool: "python3",
            remedy: "install Python 3.10 or later from https://python.org, or by your package manager",
        });
    }
    // Debian has it in a package of its own.
    let has_venv = printed("python3", &["-c", "import ensurepip, venv"]).is_some();
    (!has_venv).then_some(Missing {
        tool: "the module venv of python3",
        remedy: "install it by your package manager (Debian: apt-get install python3-venv)",
    })
}

/// What a program prints; none if it cannot be started or fails.
fn printed(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}
