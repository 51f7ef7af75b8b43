//! Makes bulk operations interruptible: `memory.fill`, `memory.copy`, `memory.init` and the same of
//! tables.
//!
//! Compiled code looks at the epoch once for each of these, however much memory they touch. So each
//! is replaced, before compilation, by a call of a function that does the same in pieces: wasmtime
//! looks at the epoch at every turn of its loop.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use wasm_encoder::{RawSection, Section};
use wasmparser::{BinaryReader, Chunk, CodeSectionReader, Parser, Payload};
use wasmtime::Result;

use self::module::{Module, reallocs};

mod module;

/// Components within components: real ones have two or three levels.
const DEPTH_MAX: usize = 100;

/// The most that is done between two looks at the epoch.
#[derive(Debug, Clone, Copy)]
struct Piece {
    bytes: u32,
    elements: u32,
}

/// Some microseconds of work, and tens of microseconds if each page is touched for the first time.
const PIECE: Piece = Piece {
    bytes: 128 * 1024,
    elements: 4096,
};

/// The component, or core module, with its bulk operations in pieces; as it is if it has none.
pub(super) fn split_bulk_operations(bytes: &[u8]) -> Result<Cow<'_, [u8]>> {
    split_with(bytes, PIECE)
}

/// Compiles what [`split_bulk_operations`] makes of a file. A file that is refused is refused in the
/// words that fit the file as it is, since they name places in it.
pub(super) fn compile<T>(bytes: &[u8], compile: impl Fn(&[u8]) -> Result<T>) -> Result<T> {
    let refusal = match split_bulk_operations(bytes) {
        Ok(split) => match compile(&split) {
            Err(refusal) if matches!(split, Cow::Owned(_)) => refusal,
            result => return result,
        },
        Err(refusal) => refusal,
    };
    match compile(bytes) {
        Err(error) => Err(error),
        Ok(_) => Err(refusal.context("its bulk memory operations cannot be made interruptible")),
    }
}

fn split_with(bytes: &[u8], piece: Piece) -> Result<Cow<'_, [u8]>> {
    let mut splitter = Splitter {
        input: bytes,
        piece,
        helpers: 0,
        reallocs: reallocs::names(bytes)?,
    };
    let split = splitter.split(Parser::new(0), 0..bytes.len(), 0)?;
    Ok(split.map_or(Cow::Borrowed(bytes), Cow::Owned))
}

struct Splitter<'a> {
    input: &'a [u8],
    piece: Piece,
    /// Those of the whole file so far.
    helpers: usize,
    /// See [`reallocs::names`].
    reallocs: HashSet<&'a str>,
}

impl Splitter<'_> {
    /// The component or module in this range of the file; none if it stays as it is.
    fn split(
        &mut self,
        mut parser: Parser,
        range: Range<usize>,
        depth: usize,
    ) -> Result<Option<Vec<u8>>> {
        if depth > DEPTH_MAX {
            wasmtime::bail!("more than {DEPTH_MAX} levels of components in components");
        }
        let mut output = Output::new(self.input, range.clone());
        let mut module = Module::default();
        let mut at = range.start;
        while at < range.end {
            let start = at;
            let Chunk::Parsed { consumed, payload } =
                parser.parse(&self.input[at..range.end], true)?
            else {
                wasmtime::bail!("it ends too early");
            };
            at += consumed;
            match payload {
                Payload::ModuleSection {
                    parser: inner,
                    unchecked_range,
                }
                | Payload::ComponentSection {
                    parser: inner,
                    unchecked_range,
                } => {
                    at = within(&range, unchecked_range.end)?;
                    let id = self.input[start];
                    if let Some(data) = self.split(inner, unchecked_range, depth + 1)? {
                        let data = &data;
                        output.replace(start..at, &RawSection { id, data });
                    }
                }
                Payload::CodeSectionStart { range: code, .. } => {
                    at = within(&range, code.end)?;
                    parser.skip_section();
                    let code = BinaryReader::new(&self.input[code.clone()], code.start);
                    module.code = Some((start..at, CodeSectionReader::new(code)?));
                }
                payload => module.add(payload, start..at)?,
            }
        }
        module.split(self, &mut output)?;
        Ok(output.finish())
    }
}

fn within(range: &Range<usize>, end: usize) -> Result<usize> {
    if end > range.end {
        wasmtime::bail!("a part is longer than the whole");
    }
    Ok(end)
}

/// A copy of a range of the input in which some sections are replaced.
struct Output<'a> {
    input: &'a [u8],
    /// What is not copied yet.
    rest: Range<usize>,
    bytes: Vec<u8>,
}

impl<'a> Output<'a> {
    fn new(input: &'a [u8], rest: Range<usize>) -> Self {
        Self {
            input,
            rest,
            bytes: Vec::new(),
        }
    }

    /// Sections are replaced in their order.
    fn replace(&mut self, range: Range<usize>, section: &impl Section) {
        self.bytes
            .extend_from_slice(&self.input[self.rest.start..range.start]);
        self.bytes.push(section.id());
        section.encode(&mut self.bytes);
        self.rest.start = range.end;
    }

    fn finish(mut self) -> Option<Vec<u8>> {
        if self.bytes.is_empty() {
            return None;
        }
        self.bytes.extend_from_slice(&self.input[self.rest]);
        Some(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::Duration;

    use proptest::prelude::*;
    use wasm_encoder::Encode;
    use wasmtime::{Config, Engine, Func, Instance, Memory, Ref, Store, UpdateDeadline, Val};

    use super::*;

    /// Bytes of the memory that is written, of the other one, and of the data segment.
    const BYTES: [u64; 3] = [2 << 16, 1 << 16, 1000];

    /// Elements of the table that is written, of the other one, and of the element segment.
    const ELEMENTS: [u64; 3] = [40, 30, 25];

    const OPERATIONS: [&str; 8] = [
        "memory.fill $to",
        "memory.copy $to $from",
        "memory.copy $to $to",
        "memory.init $to $data",
        "table.fill $to",
        "table.copy $to $from",
        "table.copy $to $to",
        "table.init $to $elements",
    ];

    #[derive(Debug, Clone)]
    struct Case {
        operation: usize,
        to_is_64: bool,
        from_is_64: bool,
        arguments: [u64; 3],
        piece: u32,
    }

    fn index(is_64: bool) -> &'static str {
        if is_64 { "i64" } else { "i32" }
    }

    impl Case {
        fn name(&self) -> &'static str {
            OPERATIONS[self.operation]
        }

        fn is_of_a_table(&self) -> bool {
            self.name().starts_with("table")
        }

        /// The types of the three arguments.
        fn types(&self) -> [&'static str; 3] {
            let (to, from) = (index(self.to_is_64), index(self.from_is_64));
            let both = index(self.to_is_64 && self.from_is_64);
            match self.name().split(' ').collect::<Vec<_>>()[..] {
                ["memory.fill", ..] => [to, "i32", to],
                ["table.fill", ..] => [to, "funcref", to],
                ["memory.init" | "table.init", ..] => [to, "i32", "i32"],
                [_, _, "$to"] => [to, to, to],
                _ => [to, from, both],
            }
        }

        fn module(&self) -> Vec<u8> {
            let mut functions = String::new();
            let mut names = String::new();
            for n in 0..ELEMENTS[2] {
                write!(functions, "(func $f{n} (result i32) i32.const {n})").unwrap();
                write!(names, " $f{n}").unwrap();
            }
            let types = self.types();
            let (to, from) = (index(self.to_is_64), index(self.from_is_64));
            let mut data = String::new();
            for n in 0..BYTES[2] {
                write!(data, "\\{:02x}", n % 251).unwrap();
            }
            let text = format!(
                r#"(module
                    (memory $to (export "to") {to} 2) (memory $from (export "from") {from} 1)
                    (table $to (export "table-to") {to} {} funcref)
                    (table $from (export "table-from") {from} {} funcref)
                    (data $data "{data}") (elem $elements func {names})
                    {functions}
                    (func (export "set") (param i32) (result funcref)
                        (table.init $s $elements (i32.const 0) (local.get 0) (i32.const 1))
                        (table.get $s (i32.const 0)))
                    (table $s 1 funcref)
                    (func (export "run") (param {} {} {})
                        local.get 0 local.get 1 local.get 2 {}))"#,
                ELEMENTS[0],
                ELEMENTS[1],
                types[0],
                types[1],
                types[2],
                self.name()
            );
            wat::parse_str(text).unwrap()
        }
    }

    fn is_about(max: u64) -> impl Strategy<Value = u64> {
        prop_oneof![
            6 => 0..=max + 3,
            1 => max.saturating_sub(3)..=max + 3,
            1 => (u64::from(u32::MAX) - max)..=(u64::from(u32::MAX) + 3),
            1 => u64::MAX - max..=u64::MAX,
        ]
    }

    fn cases() -> impl Strategy<Value = Case> {
        let parts = (
            0..OPERATIONS.len(),
            any::<bool>(),
            any::<bool>(),
            1_u32..2000,
        );
        parts.prop_flat_map(|(operation, to_is_64, from_is_64, piece)| {
            let max = if OPERATIONS[operation].starts_with("table") {
                ELEMENTS[0]
            } else {
                2 << 16
            };
            // Of tables some steps, of memories not too many.
            let piece = if max == ELEMENTS[0] {
                1 + piece % 20
            } else {
                piece.max(100)
            };
            [is_about(max), is_about(max), is_about(max)].prop_map(move |arguments| Case {
                operation,
                to_is_64,
                from_is_64,
                arguments,
                piece,
            })
        })
    }

    fn instance(bytes: &[u8]) -> (Store<()>, Instance) {
        let engine = Engine::default();
        let module = wasmtime::Module::new(&engine, bytes).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        (store, instance)
    }

    /// Whether it trapped and why, and what is in all memories and tables afterwards.
    fn outcome(case: &Case, bytes: &[u8]) -> (Option<String>, Vec<Vec<u8>>, Vec<Option<i32>>) {
        let (mut store, instance) = instance(bytes);
        let memories: Vec<Memory> = ["to", "from"]
            .map(|name| instance.get_memory(&mut store, name).unwrap())
            .into();
        for (memory, seed) in memories.iter().zip([7, 11]) {
            for (n, byte) in memory.data_mut(&mut store).iter_mut().enumerate() {
                *byte = u8::try_from(n * seed % 253).unwrap();
            }
        }
        let function = |store: &mut Store<()>, n: i32| -> Ref {
            let mut results = [Val::null_func_ref()];
            let set = instance.get_func(&mut *store, "set").unwrap();
            set.call(store, &[Val::I32(n)], &mut results).unwrap();
            results[0].ref_().unwrap()
        };
        let tables =
            ["table-to", "table-from"].map(|name| instance.get_table(&mut store, name).unwrap());
        for table in tables {
            for n in 0..table.size(&store) {
                let value = function(&mut store, i32::try_from(n * 7 % ELEMENTS[2]).unwrap());
                table.set(&mut store, n, value).unwrap();
            }
        }
        let arguments: Vec<Val> = case
            .types()
            .iter()
            .zip(case.arguments)
            .map(|(kind, value)| match *kind {
                "i32" => Val::I32(u32::try_from(value & 0xFFFF_FFFF).unwrap().cast_signed()),
                "i64" => Val::I64(value.cast_signed()),
                _ => Val::FuncRef(function(&mut store, 24).as_func().unwrap().copied()),
            })
            .collect();
        let run = instance.get_func(&mut store, "run").unwrap();
        let trap = run.call(&mut store, &arguments, &mut []).err();
        let memories = memories.iter().map(|memory| memory.data(&store).to_vec());
        let memories = memories.collect();
        let mut elements = Vec::new();
        for table in tables {
            for n in 0..table.size(&store) {
                let element = table.get(&mut store, n).unwrap();
                let element: Option<Func> = element.as_func().unwrap().copied();
                elements.push(element.map(|function| {
                    let function = function.typed::<(), i32>(&store).unwrap();
                    function.call(&mut store, ()).unwrap()
                }));
            }
        }
        (
            trap.map(|trap| trap.root_cause().to_string()),
            memories,
            elements,
        )
    }

    fn with_pieces(bytes: &[u8], piece: u32) -> Vec<u8> {
        let piece = Piece {
            bytes: piece,
            elements: piece,
        };
        split_with(bytes, piece).unwrap().into_owned()
    }

    proptest! {
        #[test]
        fn in_pieces_the_same_is_done_and_the_same_refused(case in cases()) {
            let module = case.module();
            let split = with_pieces(&module, case.piece);
            let small = if case.is_of_a_table() { ELEMENTS[2] } else { BYTES[2] };
            let is_small = case.name().contains("init") && u64::from(case.piece) >= small;
            prop_assert_eq!(module == split, is_small);
            prop_assert_eq!(outcome(&case, &module), outcome(&case, &split));
        }

        #[test]
        fn anything_at_all_is_read_or_refused(
            noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        ) {
            let case = Case {
                operation: 1,
                to_is_64: false,
                from_is_64: true,
                arguments: [0; 3],
                piece: 1,
            };
            let mut bytes = case.module();
            for (index, byte) in noise {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = split_with(&bytes, PIECE);
            let end = bytes.len() / 2;
            let _ = split_with(&bytes[..end], PIECE);
        }
    }

    /// A module whose function does this operation to four megabytes, or 200,000 elements.
    fn large(operation: &str) -> Vec<u8> {
        let data = "x".repeat(4 << 20);
        let text = format!(
            r#"(module (memory (export "memory") 128) (table $t (export "table") 200000 funcref)
                (func $f) (elem declare func $f) (data $data "{data}")
                (func (export "run") (param i32)
                    (memory.fill (i32.const 0x800) (i32.const 120) (i32.const 0x400))
                    {operation}))"#
        );
        wat::parse_str(text).unwrap()
    }

    /// How many bytes and elements are written until the epoch was looked at ten times.
    fn done_at_the_tenth_look(bytes: &[u8]) -> usize {
        let mut config = Config::new();
        config.epoch_interruption(true);
        let engine = Engine::new(&config).unwrap();
        let module = wasmtime::Module::new(&engine, bytes).unwrap();
        let mut store = Store::new(&engine, 0);
        store.set_epoch_deadline(0);
        store.epoch_deadline_callback(|mut store| {
            *store.data_mut() += 1;
            if *store.data() >= 10 {
                wasmtime::bail!("stopped");
            }
            Ok(UpdateDeadline::Continue(0))
        });
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let run = instance.get_typed_func::<i32, ()>(&mut store, "run");
        let _ = run.unwrap().call(&mut store, 4 << 20);
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        let written = memory.data(&store).iter().filter(|&&byte| byte == 120);
        let mut done = written.count();
        let table = instance.get_table(&mut store, "table").unwrap();
        for n in 0..table.size(&store) {
            let element = table.get(&mut store, n).unwrap();
            done += usize::from(element.as_func().unwrap().is_some());
        }
        done
    }

    #[test]
    fn no_more_than_a_piece_is_done_between_two_looks_at_the_epoch() {
        let bytes = PIECE.bytes as usize;
        let elements = PIECE.elements as usize;
        for (operation, piece) in [
            (
                "(memory.fill (i32.const 0) (i32.const 120) (local.get 0))",
                bytes,
            ),
            (
                "(memory.init $data (i32.const 0) (i32.const 0) (local.get 0))",
                bytes,
            ),
            (
                "(table.fill $t (i32.const 0) (ref.func $f) (i32.const 200000))",
                elements,
            ),
        ] {
            let module = large(operation);
            let unsplit = done_at_the_tenth_look(&module);
            assert!(unsplit >= 200_000, "{operation}: {unsplit}");
            let split = done_at_the_tenth_look(&split_bulk_operations(&module).unwrap());
            // What the first fill wrote counts as well.
            assert!(
                split > 0 && split <= 10 * piece + 0x400,
                "{operation}: {split}"
            );
        }
    }

    #[test]
    fn a_copy_between_two_numbers_of_one_memory_is_right_in_both_directions() {
        let owner = wat::parse_str(r#"(module (memory (export "m") 2))"#).unwrap();
        let text = r#"(module
            (import "" "m" (memory $a 2)) (import "" "m" (memory $b 2))
            (func (export "run") (param i32 i32 i32)
                local.get 0 local.get 1 local.get 2 memory.copy $a $b))"#;
        let module = wat::parse_str(text).unwrap();
        for arguments in [(100, 0, 50_000), (0, 100, 50_000)] {
            let [original, split] = [module.clone(), with_pieces(&module, 64)].map(|bytes| {
                let (mut store, owner) = instance(&owner);
                let memory = owner.get_memory(&mut store, "m").unwrap();
                for (n, byte) in memory.data_mut(&mut store).iter_mut().enumerate() {
                    *byte = u8::try_from(n % 251).unwrap();
                }
                let module = wasmtime::Module::new(store.engine(), bytes).unwrap();
                let imports = [memory.into(), memory.into()];
                let user = Instance::new(&mut store, &module, &imports).unwrap();
                let run = user.get_typed_func::<(i32, i32, i32), ()>(&mut store, "run");
                run.unwrap().call(&mut store, arguments).unwrap();
                memory.data(&store).to_vec()
            });
            assert!(original == split, "{arguments:?}");
        }
    }

    /// Nanoseconds for each of a million copies of a few bytes, as it is and in pieces.
    #[test]
    #[ignore = "prints a figure of this machine"]
    fn what_a_small_copy_costs() {
        let text = "(module (memory 2)
            (func (export \"run\") (param $n i32) (param $length i32)
                (loop $again
                    (memory.copy (i32.const 4096) (i32.const 0) (local.get $length))
                    (br_if $again
                        (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))))";
        let module = wat::parse_str(text).unwrap();
        let split = split_bulk_operations(&module).unwrap();
        let mut config = Config::new();
        config.epoch_interruption(true);
        let engine = Engine::new(&config).unwrap();
        for length in [8, 64, 1024, 65_536] {
            let n = 1_000_000 / (1 + length / 1024);
            let took = [&module, &*split].map(|bytes| {
                let module = wasmtime::Module::new(&engine, bytes).unwrap();
                let mut store = Store::new(&engine, ());
                store.set_epoch_deadline(1);
                let instance = Instance::new(&mut store, &module, &[]).unwrap();
                let run = instance.get_typed_func::<(i32, i32), ()>(&mut store, "run");
                let run = run.unwrap();
                let times = (0..9).map(|_| {
                    let started = std::time::Instant::now();
                    run.call(&mut store, (n, length)).unwrap();
                    started.elapsed() / n.cast_unsigned()
                });
                times.min().unwrap()
            });
            println!("{length} bytes: {took:?}");
        }
    }

    #[test]
    fn what_is_small_or_absent_stays_byte_for_byte() {
        let piece = PIECE.bytes;
        for (body, is_split) in [
            ("i32.const 0 i32.const 0 i32.const 64 memory.copy", false),
            (
                &*format!("i32.const 0 i32.const 0 i32.const {piece} memory.fill"),
                false,
            ),
            (
                &*format!(
                    "i32.const 0 i32.const 0 i32.const {} memory.fill",
                    piece + 1
                ),
                true,
            ),
            ("i32.const 0 i32.const 0 i32.const -1 memory.fill", true),
            (
                "i32.const 0 i32.const 0 i32.const 9 local.tee 0 memory.fill",
                true,
            ),
            ("f32.const 1 i32.trunc_sat_f32_s drop", false),
        ] {
            let text = format!("(module (memory 1) (func (local i32) {body}))");
            let module = wat::parse_str(text).unwrap();
            let split = split_bulk_operations(&module).unwrap();
            assert_eq!(matches!(split, Cow::Owned(_)), is_split, "{body}");
            assert_eq!(*split != module, is_split, "{body}");
        }
    }

    #[test]
    fn modules_in_components_in_components_are_found() {
        let module = "(core module (memory 1) (func (param i32)
            i32.const 0 i32.const 0 local.get 0 memory.fill))";
        let text = format!("(component {module} (component {module} (component {module})))");
        let component = wat::parse_str(text).unwrap();
        let split = split_bulk_operations(&component).unwrap();
        let helpers = |bytes: &[u8]| {
            let text = wasmprinter::print_bytes(bytes).unwrap();
            (
                text.matches("call 1").count(),
                text.matches("memory.size").count(),
            )
        };
        assert_eq!(helpers(&component), (0, 0));
        assert_eq!(helpers(&split), (3, 6));
        let engine = Engine::default();
        wasmtime::component::Component::new(&engine, &*split).unwrap();
    }

    #[test]
    fn a_file_that_is_refused_is_refused_in_its_own_words() {
        let engine = Engine::default();
        let text = "(module (memory 1) (func (param i32)
            i32.const 0 i32.const 0 local.get 0 memory.fill drop))";
        let bad = wat::parse_str(text).unwrap();
        let plain = wasmtime::Module::new(&engine, &bad).err().unwrap();
        let split = compile(&bad, |bytes| wasmtime::Module::new(&engine, bytes));
        assert_eq!(format!("{:#}", split.err().unwrap()), format!("{plain:#}"));
        let empty = wat::parse_str("(component)").unwrap();
        let deep = (0..=DEPTH_MAX).fold(empty.clone(), |inner, _| {
            let mut outer = empty.clone();
            outer.push(4);
            inner.encode(&mut outer);
            outer
        });
        let refusal = split_bulk_operations(&deep).unwrap_err().to_string();
        assert_eq!(refusal, "more than 100 levels of components in components");
        let refused = compile(&deep, |_| Ok(())).unwrap_err();
        assert!(format!("{refused:#}").ends_with(&refusal));
    }

    /// Two components, one of which hands texts to the other.
    fn text_through(from: &str, to: &str, pages: usize) -> String {
        format!(
            r#"(component
        (component $inner
            (core module $m (memory (export "memory") {pages})
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 0)
                (func (export "take") (param i32 i32)))
            (core instance $i (instantiate $m))
            (func (export "take") (param "s" string) (canon lift (core func $i "take")
                (memory (core memory $i "memory")) (realloc (core func $i "realloc")) string-encoding={to})))
        (instance $inner (instantiate $inner))
        (component $outer
            (import "take" (func $take (param "s" string)))
            (core module $memory (memory (export "memory") {pages}))
            (core instance $memory (instantiate $memory))
            (core func $take (canon lower (func $take) (memory (core memory $memory "memory"))
                string-encoding={from}))
            (core module $m
                (import "" "memory" (memory 1)) (import "" "take" (func $take (param i32 i32)))
                (func (export "fill") (param i32 i32)
                    (memory.fill (i32.const 0) (local.get 1) (local.get 0)))
                (func (export "run") (param i32) (call $take (i32.const 0) (local.get 0))))
            (core instance $i (instantiate $m (with "" (instance
                (export "memory" (memory $memory "memory")) (export "take" (func $take))))))
            (func (export "fill") (param "n" u32) (param "b" u32) (canon lift (core func $i "fill")))
            (func (export "run") (param "n" u32) (canon lift (core func $i "run"))))
        (instance $outer (instantiate $outer (with "take" (func $inner "take"))))
        (export "fill" (func $outer "fill"))
        (export "run" (func $outer "run")))"#
        )
    }

    /// Hands texts of these many bytes from one component to another, one after the other. For each,
    /// how long it took, or why it failed.
    fn hand_over(
        component: &[u8],
        (fill, unit): (u32, u32),
        lengths: &[u32],
    ) -> Vec<std::result::Result<Duration, String>> {
        use wasmtime::component::{Component, Linker};
        let mut config = Config::new();
        config.epoch_interruption(true).concurrency_support(false);
        let engine = Engine::new(&config).unwrap();
        let component = Component::new(&engine, component).unwrap();
        let linker = Linker::new(&engine);
        let mut results = Vec::new();
        for length in lengths {
            let mut store = Store::new(&engine, ());
            store.set_epoch_deadline(1_000_000);
            let instance = linker.instantiate(&mut store, &component).unwrap();
            let first = instance.get_typed_func::<(u32, u32), ()>(&mut store, "fill");
            first.unwrap().call(&mut store, (*length, fill)).unwrap();
            let run = instance.get_typed_func::<(u32,), ()>(&mut store, "run");
            let started = std::time::Instant::now();
            let result = run.unwrap().call(&mut store, (length / unit,));
            let result = result.map_err(|error| error.root_cause().to_string());
            results.push(result.map(|()| started.elapsed()));
        }
        results
    }

    /// Encodings with the bytes of their units.
    const ENCODINGS: [(&str, u32); 3] = [("utf8", 1), ("utf16", 2), ("latin1+utf16", 1)];

    #[test]
    fn a_text_from_one_component_to_another_has_a_length_that_takes_milliseconds() {
        let (fits, does_not) = (2 << 20, 40 << 20);
        for (from, unit) in ENCODINGS {
            for (to, _) in ENCODINGS {
                let component = wat::parse_str(text_through(from, to, 2000)).unwrap();
                let split = split_bulk_operations(&component).unwrap();
                let plain = hand_over(&component, (0x41, unit), &[fits, does_not]);
                assert!(plain.iter().all(std::result::Result::is_ok), "{plain:?}");
                let split = hand_over(&split, (0x41, unit), &[fits, does_not]);
                assert!(split[0].is_ok(), "{from} to {to}: {split:?}");
                let refusal = split[1].as_ref().unwrap_err();
                assert!(
                    refusal.contains("out-of-bounds"),
                    "{from} to {to}: {refusal}"
                );
            }
        }
    }

    #[test]
    fn a_component_alone_makes_room_as_it_likes() {
        let component = wat::parse_str(text_through("utf8", "utf8", 1)).unwrap();
        assert_eq!(
            reallocs::names(&component).unwrap(),
            HashSet::from(["realloc"])
        );
        let alone = "(component
        (core module $m (memory (export \"memory\") 1)
            (func (export \"realloc\") (param i32 i32 i32 i32) (result i32) i32.const 0)
            (func (export \"take\") (param i32 i32)))
        (core instance $i (instantiate $m))
        (func (export \"take\") (param \"s\" string) (canon lift (core func $i \"take\")
            (memory (core memory $i \"memory\")) (realloc (core func $i \"realloc\")))))";
        let alone = wat::parse_str(alone).unwrap();
        assert_eq!(reallocs::names(&alone).unwrap(), HashSet::new());
        assert_eq!(*split_bulk_operations(&alone).unwrap(), alone);
    }

    #[test]
    fn a_realloc_under_another_name_is_found() {
        let renamed = text_through("utf8", "utf8", 1).replace(
            "(realloc (core func $i \"realloc\"))",
            "(realloc (core func $other \"b\"))",
        );
        let bag = "(core instance $i (instantiate $m))
        (alias core export $i \"realloc\" (core func $r))
        (core instance $one (export \"a\" (func $r)))
        (core instance $other (export \"b\" (func $one \"a\")))";
        let renamed = renamed.replacen("(core instance $i (instantiate $m))", bag, 1);
        let component = wat::parse_str(renamed).unwrap();
        let names = reallocs::names(&component).unwrap();
        assert_eq!(names, HashSet::from(["a", "b", "realloc"]));
    }

    #[test]
    fn a_realloc_that_is_none_of_a_module_is_refused() {
        let lowered = "(import \"f\" (func $f (param \"n\" u32) (result u32)))
            (core func $lowered (canon lower (func $f)))
            (core instance $i (instantiate $m))";
        let renamed = "(core instance $bag (export \"b\" (func $lowered)))";
        for (more, realloc) in [("", "$lowered"), (renamed, "(core func $bag \"b\")")] {
            let text = text_through("utf8", "utf8", 1)
                .replacen(
                    "(core instance $i (instantiate $m))",
                    &(lowered.to_owned() + more),
                    1,
                )
                .replace(
                    "(realloc (core func $i \"realloc\"))",
                    &format!("(realloc {realloc})"),
                );
            let component = wat::parse_str(text).unwrap();
            let refusal = reallocs::names(&component).unwrap_err().to_string();
            assert_eq!(
                refusal,
                "a realloc function that no core module of it exports"
            );
        }
    }

    #[test]
    #[ignore = "prints a figure of this machine"]
    fn how_long_a_text_takes_from_one_component_to_another() {
        for (from, unit) in ENCODINGS {
            for (to, _) in ENCODINGS {
                let component = wat::parse_str(text_through(from, to, 2000)).unwrap();
                // One letter of one byte, and one of several where there are such.
                let letters = if from == "utf8" {
                    [0x41, 0x41]
                } else {
                    [0x41, 0xE9]
                };
                for letter in letters {
                    let took = hand_over(&component, (letter, unit), &[32 << 20, 32 << 20]);
                    println!("{from} to {to}, 32 MiB of {letter:x}: {took:?}");
                }
            }
        }
    }
}
