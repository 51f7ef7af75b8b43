//! `dqhost component`: makes a handler of what a compiler built that knows no components.

use std::borrow::Cow;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as ADAPTER_NAME,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as ADAPTER,
};
use wasmparser::{ExternalKind, Parser, Payload, Validator};
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

use super::{Exit, Usage, print, wit};
use crate::files;
use crate::text::printable;

/// The largest module that is read, in bytes.
const MODULE_MAX: u64 = 256 * 1024 * 1024;

/// The world of a module that names none.
const WORLD: &str = "consumer-with-logging";

/// How compilers name the function of the interface.
const HANDLE_START: &str = "dqhost:queue/handler@0.1.";
const HANDLE_END: &str = "#handle";

/// Bindings write sections of this name, which say what the module imports and exports.
const WORLD_SECTION: &str = "component-type";

/// Names of exports that a refusal tells.
const EXPORTS_TOLD_MAX: usize = 5;

const AS_REACTOR: &str =
    "build it as a library: clang -mexec-model=reactor, or go build -buildmode=c-shared";

#[derive(Debug, Args)]
pub(super) struct ComponentArgs {
    /// Core module, as clang or Go builds it
    module: PathBuf,
    /// File to write; what is there is replaced
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Folder with another interface than that of `dqhost wit`
    #[arg(long, value_name = "FOLDER")]
    wit: Option<PathBuf>,
    /// World of this folder, if it has several
    #[arg(long, requires = "wit")]
    world: Option<String>,
}

pub(super) fn component(args: &ComponentArgs) -> anyhow::Result<Exit> {
    let shown = args.module.display();
    let module = files::read_named(&args.module, MODULE_MAX)
        .map_err(|error| Usage(format!("cannot read {shown}: {error}")))?;
    if is_same(&args.module, &args.output) {
        let refusal = format!("{shown} would be written over: name another file with --output");
        return Err(Usage(refusal).into());
    }
    let world = match &args.wit {
        Some(folder) => Some(world_of(folder, args.world.as_deref())?),
        None => None,
    };
    // What panics is told in our words.
    std::panic::set_hook(Box::new(|_| ()));
    let made = component_of(&module, world);
    drop(std::panic::take_hook());
    let made = match made {
        Ok(made) => made,
        Err(reason) => {
            let refusal = format!("error: cannot make a component of {shown}: {reason}");
            tell!("{}", printable(&refusal));
            return Ok(Exit::Handler);
        }
    };
    let output = args.output.display().to_string();
    let output = printable(&output);
    files::write_whole(&args.output, &made).with_context(|| format!("cannot write {output}"))?;
    writeln!(print::stdout(), "{output}: {} bytes", made.len())?;
    Ok(Exit::Done)
}

/// The component of a core module, or what is wrong with the module and what to do.
fn component_of(module: &[u8], world: Option<World>) -> Result<Vec<u8>, String> {
    let found = Module::read(module)?;
    if world.is_none() && !found.has_world {
        found.check_handler()?;
    }
    // A section that only looks like one of bindings may be anything, and wit-component trusts it.
    let made = catch_unwind(AssertUnwindSafe(|| encode(module, &found, world)));
    let bug = "its sections contradict each other: build it again";
    made.map_err(|_| bug.to_owned())?
        .map_err(|error| format!("{error:#}"))
}

/// True if both paths name one file.
fn is_same(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// What a core module says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Module {
    /// The functions that it exports.
    exports: Vec<String>,
    /// True if its bindings say which world it is made for.
    has_world: bool,
}

impl Module {
    /// Reads a valid core module. Anything else is refused with what it is.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() as u64 > MODULE_MAX {
            return Err(format!("it has more than {MODULE_MAX} bytes"));
        }
        if !bytes.starts_with(b"\0asm") {
            return Err("it is not WebAssembly: build it for wasm32-wasi or wasip1".to_owned());
        }
        if Parser::is_component(bytes) {
            return Err("it is a component already: use it as it is".to_owned());
        }
        if let Err(error) = Validator::new().validate_all(bytes) {
            return Err(format!("it is not a valid module: {error}"));
        }
        Self::parsed(bytes).map_err(|error| format!("it is not a valid module: {error}"))
    }

    fn parsed(bytes: &[u8]) -> wasmparser::Result<Self> {
        let mut found = Self::default();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let export = export?;
                        if export.kind == ExternalKind::Func {
                            found.exports.push(export.name.to_owned());
                        }
                    }
                }
                Payload::CustomSection(section) => {
                    found.has_world |= section.name().starts_with(WORLD_SECTION);
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Refuses a module that does not export the function of our interface.
    fn check_handler(&self) -> Result<(), String> {
        let is_handle =
            |name: &String| name.starts_with(HANDLE_START) && name.ends_with(HANDLE_END);
        if self.exports.iter().any(is_handle) {
            return Ok(());
        }
        let missing = format!("it does not export {HANDLE_START}0{HANDLE_END}");
        if self.exports.iter().any(|name| name == "_start") {
            return Err(format!("{missing}, since it is a program: {AS_REACTOR}"));
        }
        let told = self.exports.iter().take(EXPORTS_TOLD_MAX);
        let mut told: Vec<Cow<'_, str>> = told.map(Into::into).collect();
        match self.exports.len() {
            0 => told.push("no function".into()),
            all if all > told.len() => told.push("...".into()),
            _ => {}
        }
        let told = told.join(", ");
        Err(format!(
            "{missing}; it exports {told}. Build it with bindings of the interface (`dqhost new`), or name \
             another one with --wit"
        ))
    }
}

/// An interface and its world.
type World = (Resolve, wit_parser::WorldId);

/// Our own interface.
fn our_world() -> anyhow::Result<World> {
    let (resolve, package) = wit::resolved()?;
    let world = resolve.select_world(&[package], Some(WORLD))?;
    Ok((resolve, world))
}

/// The interface in a folder.
fn world_of(folder: &Path, name: Option<&str>) -> Result<World, Usage> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_dir(folder)
        .map_err(|error| Usage(format!("--wit {}: {error:#}", folder.display())))?;
    let world = resolve.select_world(&[package], name).map_err(|error| {
        let folder = folder.display();
        Usage(format!(
            "--wit {folder}: {error:#}; name one of its worlds with --world"
        ))
    })?;
    Ok((resolve, world))
}

/// The component: the module, what it is made for, and what gives WASI 0.1 by means of WASI 0.2.
fn encode(module: &[u8], found: &Module, world: Option<World>) -> anyhow::Result<Vec<u8>> {
    let mut module = module.to_vec();
    let world = match world {
        None if found.has_world => None,
        None => Some(our_world()?),
        given => given,
    };
    if let Some((resolve, world)) = world {
        let encoding = StringEncoding::UTF8;
        wit_component::embed_component_metadata(&mut module, &resolve, world, encoding)?;
    }
    ComponentEncoder::default()
        .validate(true)
        .module(&module)?
        .adapter(ADAPTER_NAME, ADAPTER)?
        .encode()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const MODULE: &str = r#"(module
        (memory (export "memory") 1)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
        (func (export "dqhost:queue/handler@0.1.0#handle")
            (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i64) (result i32) i32.const 0))"#;

    fn module() -> Vec<u8> {
        wat::parse_str(MODULE).unwrap()
    }

    /// The same with the section that bindings write.
    fn with_world() -> Vec<u8> {
        let mut module = module();
        let (resolve, world) = our_world().unwrap();
        let encoding = StringEncoding::UTF8;
        wit_component::embed_component_metadata(&mut module, &resolve, world, encoding).unwrap();
        module
    }

    #[test]
    fn a_module_has_our_world_if_it_names_none() {
        let (plain, with_world) = (module(), with_world());
        assert!(!Module::read(&plain).unwrap().has_world);
        assert!(Module::read(&with_world).unwrap().has_world);
        let made = component_of(&plain, None).unwrap();
        assert!(Parser::is_component(&made));
        assert_eq!(component_of(&with_world, None).unwrap(), made);
        let again = component_of(&made, None).unwrap_err();
        assert_eq!(again, "it is a component already: use it as it is");
    }

    proptest! {
        #[test]
        fn a_damaged_module_is_refused_or_made(
            damages in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            is_plain in any::<bool>(),
        ) {
            let mut bytes = if is_plain { module() } else { with_world() };
            for (at, byte) in damages {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Err(reason) = component_of(&bytes, None) {
                prop_assert!(!reason.is_empty());
            }
        }
    }
}
