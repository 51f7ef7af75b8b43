//! `dqhost compile-child LIMITS ENGINE`, which no user gives: compiles the component on stdin for the process that
//! started it.

use std::ffi::OsStr;
use std::io;

use super::{Exit, hardening};
use crate::runtime::{Limits, compile_as_child};

pub(super) fn compile(limits: &OsStr, engine: &OsStr) -> Exit {
    match confined(limits, engine) {
        Ok(()) => Exit::Done,
        Err(error) => {
            tell!("{error}");
            Exit::Failed
        }
    }
}

fn confined(limits: &OsStr, engine: &OsStr) -> io::Result<()> {
    let limits: Limits = serde_json::from_slice(limits.as_encoded_bytes())?;
    let engine = serde_json::from_slice(engine.as_encoded_bytes())?;
    hardening::confine_compiler(&limits)?;
    compile_as_child(&limits, engine, io::stdin().lock(), io::stdout().lock())
}
