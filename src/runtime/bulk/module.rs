//! What a core module is made of, and what is changed and added.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{
    CodeSection, Encode, ExportSection, FuncType, Function, FunctionSection, TypeSection,
};
use wasmparser::{
    CodeSectionReader, CompositeInnerType, ElementItems, Export, ExportSectionReader, ExternalKind,
    FunctionBody, FunctionSectionReader, MemoryType, Operator, Payload, TableType, TypeRef,
    TypeSectionReader,
};
use wasmtime::Result;

use self::helper::{Bulk, Place};
use super::{Output, Piece, Splitter};

mod helper;
pub(super) mod reallocs;

/// Helper functions of one file. A module has one for each operation and memory or table.
const HELPERS_MAX: usize = 10_000;

/// Memories, and tables, of one module. A valid one has at most 100.
const PLACES_MAX: usize = 1000;

const CALL: u8 = 0x10;

/// Every bulk operation starts with it.
const PREFIX: u8 = 0xFC;

/// What has to be known of a core module, with the places of the sections that change.
#[derive(Default)]
pub(super) struct Module<'a> {
    types: Option<(Range<usize>, TypeSectionReader<'a>)>,
    functions: Option<(Range<usize>, FunctionSectionReader<'a>)>,
    pub code: Option<(Range<usize>, CodeSectionReader<'a>)>,
    /// The type of each.
    imported_functions: Vec<u32>,
    exports: Option<(Range<usize>, ExportSectionReader<'a>)>,
    pub memories: Vec<MemoryType>,
    pub tables: Vec<TableType>,
    /// How many there are in each element segment.
    pub elements: Vec<u32>,
    /// The bytes of each data segment.
    pub data: Vec<u32>,
}

impl<'a> Module<'a> {
    pub(super) fn add(&mut self, payload: Payload<'a>, place: Range<usize>) -> Result<()> {
        match payload {
            Payload::TypeSection(section) => self.types = Some((place, section)),
            Payload::ExportSection(section) => self.exports = Some((place, section)),
            Payload::FunctionSection(section) => self.functions = Some((place, section)),
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    match import?.ty {
                        TypeRef::Func(index) | TypeRef::FuncExact(index) => {
                            self.imported_functions.push(index);
                        }
                        TypeRef::Memory(memory) => add(&mut self.memories, memory)?,
                        TypeRef::Table(table) => add(&mut self.tables, table)?,
                        TypeRef::Global(_) | TypeRef::Tag(_) => {}
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    add(&mut self.memories, memory?)?;
                }
            }
            Payload::TableSection(section) => {
                for table in section {
                    add(&mut self.tables, table?.ty)?;
                }
            }
            Payload::ElementSection(section) => {
                for segment in section {
                    self.elements.push(match segment?.items {
                        ElementItems::Functions(items) => items.count(),
                        ElementItems::Expressions(_, items) => items.count(),
                    });
                }
            }
            Payload::DataSection(section) => {
                for segment in section {
                    self.data.push(u32::try_from(segment?.data.len())?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn split(self, splitter: &mut Splitter<'a>, output: &mut Output<'a>) -> Result<()> {
        let (Some(types), Some(functions), Some(code)) = (&self.types, &self.functions, &self.code)
        else {
            // No function of its own, or a module that is not valid.
            if self.exports_any(&splitter.reallocs)? {
                wasmtime::bail!("a realloc function that is exported twice");
            }
            return Ok(());
        };
        let first = u32::try_from(self.imported_functions.len())?;
        let mut helpers = Helpers {
            module: &self,
            piece: splitter.piece,
            first: checked_sum(first, functions.1.count())?,
            known: HashMap::new(),
            list: Vec::new(),
            room: HELPERS_MAX - splitter.helpers,
        };
        let new_code = helpers.call_in_all(&code.1)?;
        let mut added: Vec<Added> = Vec::new();
        added.extend(
            helpers
                .list
                .iter()
                .map(|place| place.helper(splitter.piece)),
        );
        splitter.helpers += added.len();
        let next = checked_sum(helpers.first, u32::try_from(added.len())?)?;
        let new_exports = self.guarded_exports(&splitter.reallocs, next, &mut added)?;
        if added.is_empty() {
            return Ok(());
        }
        let mut new_code = match new_code {
            Some(new_code) => new_code,
            None => first_bodies(&code.1, usize::MAX)?,
        };
        let mut new_types = TypeSection::new();
        RoundtripReencoder.parse_type_section(&mut new_types, types.1.clone())?;
        let mut new_functions = FunctionSection::new();
        RoundtripReencoder.parse_function_section(&mut new_functions, functions.1.clone())?;
        let mut next_type = 0_u32;
        for group in types.1.clone() {
            next_type = checked_sum(next_type, u32::try_from(group?.types().len())?)?;
        }
        for Added { signature, body } in added {
            new_types.ty().func_type(&signature);
            new_functions.function(next_type);
            new_code.function(&body);
            next_type += 1;
        }
        output.replace(types.0.clone(), &new_types);
        output.replace(functions.0.clone(), &new_functions);
        if let Some((place, section)) = new_exports {
            output.replace(place, &section);
        }
        output.replace(code.0.clone(), &new_code);
        Ok(())
    }

    fn exports_any(&self, names: &HashSet<&str>) -> Result<bool> {
        if let Some((_, exports)) = &self.exports {
            for export in exports.clone() {
                let export = export?;
                if export.kind == ExternalKind::Func && names.contains(export.name) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The exports with guards, which get the numbers from `next` on, in the place of `realloc`
    /// functions. None if there is none.
    fn guarded_exports(
        &self,
        names: &HashSet<&str>,
        next: u32,
        added: &mut Vec<Added>,
    ) -> Result<Option<(Range<usize>, ExportSection)>> {
        let Some((place, exports)) = &self.exports else {
            return Ok(None);
        };
        if !self.exports_any(names)? {
            return Ok(None);
        }
        let mut section = ExportSection::new();
        let (mut found, mut number) = (0, next);
        for export in exports.clone() {
            let Export {
                name,
                kind,
                mut index,
            } = export?;
            if kind == ExternalKind::Func && names.contains(name) {
                found += 1;
                if found > reallocs::NAMES_MAX {
                    wasmtime::bail!("too many realloc functions in one module");
                }
                if self.is_realloc(index)? {
                    added.push(reallocs::guard(index));
                    index = number;
                    number = checked_sum(number, 1)?;
                }
            }
            section.export(name, kind.into(), index);
        }
        Ok((number > next).then_some((place.clone(), section)))
    }

    /// Whether the function of this number has the type of a `realloc`.
    fn is_realloc(&self, function: u32) -> Result<bool> {
        let (Some((_, types)), Some((_, functions))) = (&self.types, &self.functions) else {
            return Ok(false);
        };
        let index = if let Some(index) = self.imported_functions.get(function as usize) {
            *index
        } else {
            let own = function as usize - self.imported_functions.len();
            let index = functions.clone().into_iter().nth(own);
            index.ok_or_else(|| wasmtime::format_err!("unknown function {function}"))??
        };
        let mut before = 0;
        for group in types.clone() {
            let group = group?;
            let mut inside = group.types();
            if let Some(found) = inside.nth(index as usize - before) {
                return Ok(matches!(&found.composite_type.inner,
                    CompositeInnerType::Func(found) if reallocs::is_type_of_one(found)));
            }
            before += group.types().len();
        }
        wasmtime::bail!("unknown type {index}")
    }
}

fn checked_sum(a: u32, b: u32) -> Result<u32> {
    let sum = a.checked_add(b);
    sum.ok_or_else(|| wasmtime::format_err!("too many functions"))
}

/// A function that is appended to a module.
pub(super) struct Added {
    pub signature: FuncType,
    pub body: Function,
}

fn first_bodies(code: &CodeSectionReader<'_>, count: usize) -> Result<CodeSection> {
    let mut section = CodeSection::new();
    for body in code.clone().into_iter().take(count) {
        section.raw(body?.as_bytes());
    }
    Ok(section)
}

/// The functions that are called instead of bulk operations, in the order of their numbers.
struct Helpers<'a> {
    module: &'a Module<'a>,
    piece: Piece,
    /// The number of the first.
    first: u32,
    known: HashMap<Bulk, u32>,
    list: Vec<Place>,
    room: usize,
}

impl Helpers<'_> {
    /// The code with its bulk operations replaced; none if it stays as it is.
    fn call_in_all(&mut self, code: &CodeSectionReader<'_>) -> Result<Option<CodeSection>> {
        let mut new_code: Option<CodeSection> = None;
        for (index, body) in code.clone().into_iter().enumerate() {
            let body = body?;
            let changed = self.call_in(&body)?;
            if changed.is_some() && new_code.is_none() {
                new_code = Some(first_bodies(code, index)?);
            }
            if let Some(new_code) = &mut new_code {
                new_code.raw(changed.as_deref().unwrap_or(body.as_bytes()));
            }
        }
        Ok(new_code)
    }

    /// The body with its bulk operations replaced; none if it stays as it is.
    fn call_in(&mut self, body: &FunctionBody<'_>) -> Result<Option<Vec<u8>>> {
        let bytes = body.as_bytes();
        if !bytes.contains(&PREFIX) {
            return Ok(None);
        }
        let offset = body.range().start;
        let (mut new, mut copied) = (Vec::new(), 0);
        let mut constant = None;
        let mut reader = body.get_operators_reader()?;
        while !reader.eof() {
            let (operator, at) = reader.read_with_offset()?;
            if let Some(bulk) = Bulk::of(&operator)
                // Compilers know how to do these without a call of any kind.
                && constant.is_none_or(|length| length > bulk.most(self.piece))
                && let Some(helper) = self.number_of(bulk)?
            {
                new.extend_from_slice(&bytes[copied..at - offset]);
                new.push(CALL);
                helper.encode(&mut new);
                copied = reader.original_position() - offset;
            }
            constant = match operator {
                Operator::I32Const { value } => Some(u64::from(value.cast_unsigned())),
                Operator::I64Const { value } => Some(value.cast_unsigned()),
                _ => None,
            };
        }
        if copied == 0 {
            return Ok(None);
        }
        new.extend_from_slice(&bytes[copied..]);
        Ok(Some(new))
    }

    /// The number of the function for this operation; none if it never does much.
    fn number_of(&mut self, bulk: Bulk) -> Result<Option<u32>> {
        if let Some(known) = self.known.get(&bulk) {
            return Ok(Some(*known));
        }
        let place = bulk.place(self.module)?;
        if place.is_small(self.piece) {
            return Ok(None);
        }
        if self.list.len() >= self.room {
            wasmtime::bail!("more than {HELPERS_MAX} kinds of bulk operations");
        }
        let number = checked_sum(self.first, u32::try_from(self.list.len())?)?;
        self.list.push(place);
        self.known.insert(bulk, number);
        Ok(Some(number))
    }
}

/// The thing of this number, which a module that is not valid may not have.
pub(super) fn nth<'a, T>(things: &'a [T], index: u32, kind: &str) -> Result<&'a T> {
    let thing = things.get(index as usize);
    thing.ok_or_else(|| wasmtime::format_err!("unknown {kind} {index}"))
}

fn add<T>(places: &mut Vec<T>, place: T) -> Result<()> {
    if places.len() == PLACES_MAX {
        wasmtime::bail!("more than {PLACES_MAX} memories or tables in one module");
    }
    places.push(place);
    Ok(())
}
