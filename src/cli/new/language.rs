//! The languages of new handlers: what is written, and what builds it.

use clap::ValueEnum;

use super::tools::{self, Missing};
use crate::cli::wit;

/// A language that handlers are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    /// Rust, built by Cargo
    Rust,
    /// JavaScript, built by npm with QuickJS
    Js,
    /// TypeScript, built by npm with QuickJS
    Ts,
    /// Python, built by componentize-py
    Python,
    /// Go, built by its own compiler
    Go,
    /// C, built by clang with wasi-libc
    C,
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
    missing: tools::missing_for_rust,
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
    missing: tools::missing_for_js,
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
    missing: tools::missing_for_python,
};

const TS: Kit = Kit {
    name: "ts",
    files: &[
        ("README.md", template!("ts/README.md.in")),
        ("handler.toml", template!("ts/handler.toml.in")),
        ("package.json", template!("ts/package.json.in")),
        ("tsconfig.json", template!("ts/tsconfig.json")),
        ("handler.ts", template!("ts/handler.ts")),
        ("interface.d.ts", template!("ts/interface.d.ts")),
        ("prelude.js", template!("js/prelude.js")),
        ("test/handler.test.js", template!("ts/test/handler.test.js")),
        ("messages.ndjson", template!("messages.ndjson")),
        (".gitignore", template!("ts/gitignore.in")),
        ("wit/world.wit", template!("world.wit")),
    ],
    interface: as_dependency,
    commands: &[
        "npm install",
        "npm run build",
        "dqhost run build/handler.wasm --messages messages.ndjson",
        "npm test",
    ],
    missing: tools::missing_for_js,
};

const GO: Kit = Kit {
    name: "go",
    files: &[
        ("README.md", template!("go/README.md.in")),
        ("handler.toml", template!("go/handler.toml.in")),
        ("go.mod", template!("go/go.mod.in")),
        ("build.sh", template!("go/build.sh")),
        ("main.go", template!("go/main.go")),
        (
            "export_dqhost_queue_handler/handler.go",
            template!("go/export_dqhost_queue_handler/handler.go"),
        ),
        ("test/handler_test.go", template!("go/test/handler_test.go")),
        (
            "bindings/dqhost_queue_delivery/empty.s",
            template!("go/bindings/dqhost_queue_delivery/empty.s"),
        ),
        (
            "bindings/dqhost_queue_delivery/wit_bindings.go",
            template!("go/bindings/dqhost_queue_delivery/wit_bindings.go"),
        ),
        (
            "bindings/dqhost_queue_handler/empty.s",
            template!("go/bindings/dqhost_queue_handler/empty.s"),
        ),
        (
            "bindings/dqhost_queue_handler/wit_bindings.go",
            template!("go/bindings/dqhost_queue_handler/wit_bindings.go"),
        ),
        (
            "bindings/dqhost_queue_http/empty.s",
            template!("go/bindings/dqhost_queue_http/empty.s"),
        ),
        (
            "bindings/dqhost_queue_http/wit_bindings.go",
            template!("go/bindings/dqhost_queue_http/wit_bindings.go"),
        ),
        (
            "bindings/dqhost_queue_outbox/empty.s",
            template!("go/bindings/dqhost_queue_outbox/empty.s"),
        ),
        (
            "bindings/dqhost_queue_outbox/wit_bindings.go",
            template!("go/bindings/dqhost_queue_outbox/wit_bindings.go"),
        ),
        (
            "bindings/dqhost_queue_types/empty.s",
            template!("go/bindings/dqhost_queue_types/empty.s"),
        ),
        (
            "bindings/dqhost_queue_types/wit_bindings.go",
            template!("go/bindings/dqhost_queue_types/wit_bindings.go"),
        ),
        (
            "bindings/wasi_logging_logging/empty.s",
            template!("go/bindings/wasi_logging_logging/empty.s"),
        ),
        (
            "bindings/wasi_logging_logging/wit_bindings.go",
            template!("go/bindings/wasi_logging_logging/wit_bindings.go"),
        ),
        (
            "bindings/wit_exports/wit_exports.go",
            template!("go/bindings/wit_exports/wit_exports.go"),
        ),
        ("runtime/LICENSE", template!("go/runtime/LICENSE")),
        ("runtime/go.mod", template!("go/runtime/go.mod.in")),
        (
            "runtime/wit/runtime/empty.s",
            template!("go/runtime/wit/runtime/empty.s"),
        ),
        (
            "runtime/wit/runtime/runtime.go",
            template!("go/runtime/wit/runtime/runtime.go"),
        ),
        (
            "runtime/wit/types/option.go",
            template!("go/runtime/wit/types/option.go"),
        ),
        (
            "runtime/wit/types/result.go",
            template!("go/runtime/wit/types/result.go"),
        ),
        (
            "runtime/wit/types/tuple.go",
            template!("go/runtime/wit/types/tuple.go"),
        ),
        (
            "runtime/wit/types/unit.go",
            template!("go/runtime/wit/types/unit.go"),
        ),
        ("messages.ndjson", template!("messages.ndjson")),
        (".gitignore", template!("go/gitignore.in")),
        ("wit/world.wit", template!("world.wit")),
    ],
    interface: as_dependency,
    commands: &[
        "sh build.sh",
        "dqhost run build/handler.wasm --messages messages.ndjson",
        "go test ./test",
    ],
    missing: tools::missing_for_go,
};

const C: Kit = Kit {
    name: "c",
    files: &[
        ("README.md", template!("c/README.md.in")),
        ("handler.toml", template!("c/handler.toml.in")),
        ("build.sh", template!("c/build.sh")),
        ("handler.c", template!("c/handler.c")),
        ("json.c", template!("c/json.c")),
        ("json.h", template!("c/json.h")),
        ("bindings/handler.c", template!("c/bindings/handler.c")),
        ("bindings/handler.h", template!("c/bindings/handler.h")),
        ("bindings/world.c", template!("c/bindings/world.c")),
        ("test.sh", template!("c/test.sh")),
        ("messages.ndjson", template!("messages.ndjson")),
        (".gitignore", template!("c/gitignore.in")),
        ("wit/world.wit", template!("world.wit")),
    ],
    interface: as_dependency,
    commands: &[
        "sh build.sh",
        "dqhost run build/handler.wasm --messages messages.ndjson",
        "sh test.sh",
    ],
    missing: tools::missing_for_c,
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
            Self::Ts => &TS,
            Self::Python => &PYTHON,
            Self::Go => &GO,
            Self::C => &C,
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
