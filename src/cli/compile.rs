//! `dqhost compile-child LIMITS ORDER`, which no user gives: compiles the component on stdin for the process that
//! started it.

use std::ffi::OsStr;
use std::io;

use super::{Exit, hardening};
use crate::runtime::{CompileOrder, Limits, compile_as_child};

pub(super) fn compile(limits: &OsStr, order: &OsStr) -> Exit {
    match confined(limits, order) {
        Ok(()) => Exit::Done,
        Err(error) => {
            tell!("{error}");
            Exit::Failed
        }
    }
}

fn confined(limits: &OsStr, order: &OsStr) -> io::Result<()> {
    let limits: Limits = serde_json::from_slice(limits.as_encoded_bytes())?;
    let order: CompileOrder = serde_json::from_slice(order.as_encoded_bytes())?;
    hardening::confine_compiler(&limits)?;
    compile_as_child(&limits, order, io::stdin().lock(), io::stdout().lock())
}
