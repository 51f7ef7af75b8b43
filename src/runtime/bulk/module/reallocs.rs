//! Which functions make room for what one component inside a file hands to another.
//!
//! A text on its way between two components is copied in one go, in the engine's own code. The one
//! who takes it makes room for it with a function of its own, its `realloc`, which is the place to
//! refuse what is too long.

use std::collections::HashSet;

use wasm_encoder::{BlockType, FuncType, Function, ValType};
use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ExternalKind, Instance, Parser, Payload,
};
use wasmtime::Result;

use super::{Added, nth};
use crate::runtime::bulk::DEPTH_MAX;

/// The longest text or list from one component to another, in bytes: 2 to 30 milliseconds of work.
const LENGTH_MAX: i32 = 4 * 1024 * 1024;

/// Out of bounds, whatever the memory and the alignment: the text or list is refused for it.
const NOWHERE: i32 = -16;

/// Names of such functions in one file. Mostly it is one.
pub(in crate::runtime::bulk) const NAMES_MAX: usize = 100;

/// Core functions of one component.
const FUNCTIONS_MAX: usize = 1_000_000;

/// Those of a `realloc`. They and its result are 32-bit numbers.
const PARAMETERS: usize = 4;

/// What is known of one component while it is read: by number, the name under which a core
/// instance exports a function; none for those of the canonical ABI.
type Functions<'a> = Vec<Option<&'a str>>;

#[derive(Default)]
struct Found<'a> {
    names: HashSet<&'a str>,
    /// A name that a core instance gives to a function that another one exports, or to one of the
    /// canonical ABI.
    renamed: Vec<(&'a str, Option<&'a str>)>,
    /// One is a function of the canonical ABI, which no module exports.
    is_foreign: bool,
    /// A component in another one has functions of its own.
    is_composed: bool,
}

/// The names under which core modules export the `realloc` functions of a file. None if there are
/// not at least two components: what passes between a guest and the host has limits of its own.
pub(in crate::runtime::bulk) fn names(bytes: &[u8]) -> Result<HashSet<&str>> {
    let mut found = Found::default();
    let mut levels: Vec<Functions<'_>> = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        match &payload {
            Payload::Version { .. } => levels.push(Functions::new()),
            Payload::End(_) => drop(levels.pop()),
            _ => {}
        }
        if levels.len() > DEPTH_MAX {
            wasmtime::bail!("more than {DEPTH_MAX} levels of components in components");
        }
        let is_inner = levels.len() > 1;
        if let Some(functions) = levels.last_mut() {
            found.add(payload, functions, is_inner)?;
            if functions.len() > FUNCTIONS_MAX || found.names.len() > NAMES_MAX {
                wasmtime::bail!("too many core functions in one component");
            }
        }
    }
    if !found.is_composed {
        return Ok(HashSet::new());
    }
    let mut before = 0;
    while before < found.names.len() {
        before = found.names.len();
        for (name, original) in &found.renamed {
            if found.names.contains(name) {
                found.is_foreign |= original.is_none();
                found.names.extend(original);
            }
        }
        if found.names.len() > NAMES_MAX {
            wasmtime::bail!("more than {NAMES_MAX} names of realloc functions");
        }
    }
    if found.is_foreign {
        wasmtime::bail!("a realloc function that no core module of it exports");
    }
    Ok(found.names)
}

impl<'a> Found<'a> {
    fn add(
        &mut self,
        payload: Payload<'a>,
        functions: &mut Functions<'a>,
        is_inner: bool,
    ) -> Result<()> {
        match payload {
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    if let ComponentAlias::CoreInstanceExport {
                        kind: ExternalKind::Func | ExternalKind::FuncExact,
                        name,
                        ..
                    } = alias?
                    {
                        functions.push(Some(name));
                    }
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    let function = function?;
                    let options = match &function {
                        CanonicalFunction::Lift { options, .. } => {
                            self.is_composed |= is_inner;
                            &**options
                        }
                        CanonicalFunction::Lower { options, .. } => &**options,
                        _ => &[],
                    };
                    for option in options {
                        if let CanonicalOption::Realloc(index) = option {
                            let name = nth(functions, *index, "core function")?;
                            self.is_foreign |= name.is_none();
                            self.names.extend(name);
                        }
                    }
                    if !matches!(function, CanonicalFunction::Lift { .. }) {
                        functions.push(None);
                    }
                }
            }
            Payload::InstanceSection(section) => {
                for instance in section {
                    let Instance::FromExports(exports) = instance? else {
                        continue;
                    };
                    for export in exports.iter().filter(|e| e.kind == ExternalKind::Func) {
                        let original = *nth(functions, export.index, "core function")?;
                        self.renamed.push((export.name, original));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether a function can be a `realloc`.
pub(in crate::runtime::bulk) fn is_type_of_one(function: &wasmparser::FuncType) -> bool {
    use wasmparser::ValType::I32;
    function.params() == [I32; PARAMETERS] && function.results() == [I32]
}

/// A `realloc` that makes no room for what is too long, and otherwise calls this one.
pub(in crate::runtime::bulk) fn guard(function: u32) -> Added {
    let mut body = Function::new([]);
    let mut code = body.instructions();
    code.local_get(3).i32_const(LENGTH_MAX).i32_gt_u();
    code.if_(BlockType::Empty);
    code.i32_const(NOWHERE).return_().end();
    code.local_get(0).local_get(1).local_get(2).local_get(3);
    code.call(function).end();
    Added {
        signature: FuncType::new([ValType::I32; PARAMETERS], [ValType::I32]),
        body,
    }
}
