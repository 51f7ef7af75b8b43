//! The engines. Most components run in the first. One that uses the asynchronous component model, as WASI 0.3
//! does, needs a second, which keeps books on tasks and streams and so costs each message more.

use serde::{Deserialize, Serialize};
use wasmparser::{
    CanonicalFunction, ComponentAlias, ExternalKind, Instance, Parser, Payload, Validator,
    WasmFeatures,
};
use wasmtime::{
    Config, Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig,
    RegallocAlgorithm,
};

use super::HandlerError;
use super::limits::{Limits, MEMORIES_MAX};

/// Native stack beside that of guest code, for the host's own calls.
const NATIVE_STACK: usize = 3 * 512 * 1024;

/// Stacks of a run beside those of its instances: one to start it, and one between two tasks.
const SPARE_STACKS: u32 = 2;

/// Which engine runs a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineKind {
    /// For WASI 0.2.
    Sync,
    /// For WASI 0.3 and `async` interfaces, and for all that the other runs.
    Async,
}

/// How much work a compiler makes of a component. Either code runs in the same engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effort {
    /// Quick code, for a handler that runs often.
    Full,
    /// Soon, for a handler that is tried.
    Quick,
}

impl EngineKind {
    /// What an operator is told of it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Sync => "WASI 0.2",
            Self::Async => {
                "WASI 0.3 (async); each message costs up to 0.1 ms more than in WASI 0.2"
            }
        }
    }

    /// The engine that a component needs. It is parsed for that, so this belongs where it is compiled.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let all = WasmFeatures::all();
        // If it is valid in neither way, the first engine says why.
        let is_async = names_new_wasi(bytes)
            || !is_valid(bytes, all.difference(WasmFeatures::CM_ASYNC)) && is_valid(bytes, all);
        if is_async { Self::Async } else { Self::Sync }
    }
}

/// Whether a component is valid with these features, up to the bodies of its functions.
fn is_valid(bytes: &[u8], features: WasmFeatures) -> bool {
    let mut validator = Validator::new_with_features(features);
    Parser::new(0)
        .parse_all(bytes)
        .all(|payload| payload.is_ok_and(|payload| validator.payload(&payload).is_ok()))
}

/// Whether it imports or exports an interface of WASI 0.3. Some of them have nothing asynchronous.
fn names_new_wasi(bytes: &[u8]) -> bool {
    let is_new = |name: &str| {
        let version = name.split_once('@').map_or("", |(_, version)| version);
        name.starts_with("wasi:") && (version == "0.3" || version.starts_with("0.3."))
    };
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload {
            Ok(Payload::Version { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            Ok(Payload::ComponentImportSection(section)) if depth == 1 => {
                if section
                    .into_iter()
                    .flatten()
                    .any(|one| is_new(one.name.name))
                {
                    return true;
                }
            }
            Ok(Payload::ComponentExportSection(section)) if depth == 1 => {
                if section
                    .into_iter()
                    .flatten()
                    .any(|one| is_new(one.name.name))
                {
                    return true;
                }
            }
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    false
}

/// Why a component could hold more stacks in the second engine than its part of the pool. An instance that gives
/// on a function of others as its own may wait on a stack. It needs no code, which is what `--limit instances`
/// counts.
pub(super) fn uncounted_stacks(bytes: &[u8]) -> Option<&'static str> {
    const REASON: &str = "a component in it exports a function of others as its own (canon lift of canon lower), which \
        no limit counts: call it from code instead";
    // The core instances with code, and the functions of such, of each component that is being read.
    let mut levels: Vec<(Vec<bool>, Vec<bool>)> = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        // What is not valid is refused by the engine, in better words.
        let payload = payload.ok()?;
        if let Payload::Version { .. } = payload {
            levels.push(Default::default());
        } else if let Payload::End(_) = payload {
            levels.pop();
        }
        let Some((instances, functions)) = levels.last_mut() else {
            continue;
        };
        match payload {
            Payload::InstanceSection(section) => {
                for one in section {
                    instances.push(matches!(one.ok()?, Instance::Instantiate { .. }));
                }
            }
            Payload::ComponentAliasSection(section) => {
                for one in section {
                    let ComponentAlias::CoreInstanceExport {
                        kind,
                        instance_index,
                        ..
                    } = one.ok()?
                    else {
                        continue;
                    };
                    let has_code = instances.get(instance_index as usize).copied()?;
                    if matches!(kind, ExternalKind::Func | ExternalKind::FuncExact) {
                        functions.push(has_code);
                    }
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for one in section {
                    match one.ok()? {
                        CanonicalFunction::Lift {
                            core_func_index, ..
                        } if !functions.get(core_func_index as usize).copied()? => {
                            return Some(REASON);
                        }
                        CanonicalFunction::Lift { .. } => {}
                        _ => functions.push(false),
                    }
                }
            }
            _ => {}
        }
    }
    None
}

/// Mappings of memory that one stack of the pool is: itself, and the guard before it.
const MAPPINGS_OF_A_STACK: usize = 2;

/// Refuses a pool of more stacks than the system maps for a process: at the limit, threads could not start.
pub(super) fn check_mappings(
    kind: EngineKind,
    slots: usize,
    limits: &Limits,
) -> Result<(), HandlerError> {
    match mappings_of_system() {
        Some(most) if kind == EngineKind::Async => mappings_fit(slots, limits, most),
        _ => Ok(()),
    }
}

/// Mappings that a process may have, where there is such a limit.
fn mappings_of_system() -> Option<usize> {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?;
    most.trim().parse().ok()
}

/// As many of these slots as the second engine has stacks for, at least one.
pub(super) fn slots_that_fit(slots: usize, limits: &Limits) -> usize {
    let fit = mappings_of_system().map_or(slots, |most| fitting(limits, most).1);
    slots.min(fit).max(1)
}

/// Mappings of each slot of the second engine, and how many slots fit. Half of the mappings are for all else.
fn fitting(limits: &Limits, most: usize) -> (usize, usize) {
    let stacks = usize::try_from(stacks(EngineKind::Async, limits)).unwrap_or(usize::MAX);
    let each = stacks.saturating_mul(MAPPINGS_OF_A_STACK);
    (each, (most / 2 / each).saturating_sub(1))
}

fn mappings_fit(slots: usize, limits: &Limits, most: usize) -> Result<(), HandlerError> {
    let (each, fit) = fitting(limits, most);
    if slots <= fit {
        return Ok(());
    }
    Err(HandlerError::Engine(format!(
        "a handler for WASI 0.3 takes {each} mappings of memory for each of {slots} slots, and this system allows a \
         process {most} (sysctl vm.max_map_count): run at most {fit} with --slots, or raise that"
    )))
}

/// Stacks of one run.
fn stacks(kind: EngineKind, limits: &Limits) -> u32 {
    match kind {
        EngineKind::Sync => 1,
        // Each instance inside a component may have a task that waits on a stack of its own.
        EngineKind::Async => u32::try_from(limits.instances)
            .unwrap_or(u32::MAX)
            .saturating_add(SPARE_STACKS),
    }
}

/// The settings of an engine for up to `slots` runs at a time.
pub(super) fn config(kind: EngineKind, slots: usize, limits: &Limits) -> Config {
    let is_async = kind == EngineKind::Async;
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .concurrency_support(is_async)
        .wasm_component_model_async(is_async)
        // A guest that may cancel without waiting leaves what it cancelled in queues that nothing bounds.
        .wasm_component_model_more_async_builtins(false)
        // A task without a callback keeps a stack while it waits, and so does a thread.
        .wasm_component_model_async_stackful(false)
        .wasm_component_model_threading(false)
        .max_wasm_stack(limits.stack)
        .async_stack_size(limits.stack.saturating_add(NATIVE_STACK))
        .wasm_backtrace_max_frames(None);
    let pool = pool(kind, slots, limits);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// Makes the compiler do so much. What it makes is the same for guests, apart from its speed and its stack.
pub(super) fn set_effort(config: &mut Config, effort: Effort) {
    if effort == Effort::Quick {
        config
            .cranelift_opt_level(OptLevel::None)
            .cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
    }
}

/// Why there is no pool, which reserves address space for each slot, and what to do.
pub(super) fn no_pool(slots: usize, error: &wasmtime::Error) -> HandlerError {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    let limited = limit.map_or_else(String::new, |bytes| {
        format!(
            "; this process may have {} MiB (`ulimit -v`)",
            bytes / 1024 / 1024
        )
    });
    HandlerError::Engine(format!(
        "no address space for the limits of {slots} handlers at a time{limited}. Each takes about 8 GiB \
         of addresses, not of memory. Remove the limit with `ulimit -v unlimited`, and limit memory \
         by a cgroup instead, or run fewer with --slots ({error:#})"
    ))
}

/// A pool with room for `slots` components of the usual kinds. Pages that a message touched are
/// found by `PAGEMAP_SCAN` where the kernel has it, which is what makes reuse cheap.
fn pool(kind: EngineKind, slots: usize, limits: &Limits) -> PoolingAllocationConfig {
    let number = |n| u32::try_from(n).unwrap_or(u32::MAX);
    let n = number(slots).saturating_add(1);
    let (instances, tables) = (number(limits.instances), number(limits.tables));
    let stacks = stacks(kind, limits);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(n)
        .total_core_instances(n.saturating_mul(instances))
        .total_memories(n.saturating_mul(number(MEMORIES_MAX)))
        .total_tables(n.saturating_mul(tables))
        .total_stacks(n.saturating_mul(stacks))
        // A component that wants more is refused when it is loaded, instead of taking what others
        // need.
        .max_core_instances_per_component(instances)
        .max_memories_per_component(number(MEMORIES_MAX))
        .max_tables_per_component(tables)
        // One module may have all of them.
        .max_memories_per_module(number(MEMORIES_MAX))
        .max_tables_per_module(tables)
        .table_elements(limits.table_elements)
        .max_memory_size(limits.memory)
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20)
        .linear_memory_keep_resident(1 << 20)
        .table_keep_resident(64 << 10)
        .max_unused_warm_slots(n)
        .pagemap_scan(Enabled::Auto);
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> EngineKind {
        EngineKind::of(&wat::parse_str(text).unwrap())
    }

    #[test]
    fn what_is_asynchronous_needs_the_second_engine_and_nothing_else_does() {
        for text in [
            "(component)",
            "(component (import \"f\" (func (param \"x\" string))))",
            "(component (import \"wasi:random/random@0.2.3\" (instance)))",
        ] {
            assert_eq!(kind(text), EngineKind::Sync, "{text}");
        }
        for text in [
            "(component (import \"f\" (func async)))",
            "(component (core func (canon task.cancel)))",
            "(component (component (type (stream u8))))",
            "(component (import \"wasi:random/random@0.3.0\" (instance)))",
        ] {
            assert_eq!(kind(text), EngineKind::Async, "{text}");
        }
        for bytes in [&b""[..], b"\0asm", b"\0asm\x0d\0\x01\0\xff"] {
            assert_eq!(EngineKind::of(bytes), EngineKind::Sync);
        }
    }

    #[test]
    fn an_instance_without_code_that_may_wait_is_found() {
        let lifted = |function: &str| {
            let text = format!(
                r#"(component (import "f" (func $f async))
                    (component $inner (import "f" (func $f async))
                        (core func $lowered (canon lower (func $f)))
                        (core instance $named (export "f" (func $lowered)))
                        (core module $code (import "" "f" (func)) (func (export "own")))
                        (core instance $run (instantiate $code (with "" (instance $named))))
                        (alias core export $named "f" (core func $renamed))
                        (alias core export $run "own" (core func $own))
                        (type $t (func async))
                        (func (type $t) (canon lift (core func {function}))))
                    (instance (instantiate $inner (with "f" (func $f)))))"#
            );
            uncounted_stacks(&wat::parse_str(text).unwrap()).is_some()
        };
        assert!(lifted("$lowered") && lifted("$renamed"));
        assert!(!lifted("$own"));
        assert!(
            uncounted_stacks(b"").is_none() && uncounted_stacks(b"\0asm\x0d\0\x01\0\xff").is_none()
        );
    }

    #[test]
    fn more_stacks_than_the_system_maps_are_refused_with_what_fits() {
        let limits = Limits {
            instances: 40,
            ..Limits::default()
        };
        assert!(mappings_fit(16, &limits, 65_530).is_ok());
        assert!(mappings_fit(389, &limits, 65_530).is_ok());
        let error = mappings_fit(390, &limits, 65_530).unwrap_err().to_string();
        assert!(
            error.contains("84 mappings") && error.contains("at most 389"),
            "{error}"
        );
    }
}
