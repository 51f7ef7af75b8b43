//! A program (`wasi:cli/run`), whose exit code is its answer.

use wasmtime::Store;
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::p2::bindings::CommandPre;
use wasmtime_wasi::p3::bindings::CommandPre as CommandAsyncPre;

use super::{Answer, call_in};
use crate::runtime::call::Call;
use crate::runtime::imports::State;
use crate::runtime::process::Process;

pub(super) async fn call(
    pre: &CommandPre<State>,
    store: &mut Store<State>,
    call: Call,
) -> wasmtime::Result<Answer> {
    store.data_mut().process = Some(Process::of(call));
    let command = pre.instantiate_async(&mut *store).await?;
    let run = command.wasi_cli_run().func_run();
    exit(call_in(store, run, ()).await)
}

/// A program of WASI 0.3. It has ended when its function returns.
pub(super) async fn call_async(
    pre: &CommandAsyncPre<State>,
    store: &mut Store<State>,
    call: Call,
) -> wasmtime::Result<Answer> {
    store.data_mut().process = Some(Process::of(call));
    let command = pre.instantiate_async(&mut *store).await?;
    let run = command.wasi_cli_run().func_run();
    exit(call_in(store, run, ()).await)
}

fn exit(ended: wasmtime::Result<(Result<(), ()>,)>) -> wasmtime::Result<Answer> {
    match ended {
        Ok((Ok(()),)) => Ok(Answer::Exit(0)),
        Ok((Err(()),)) => Ok(Answer::Exit(1)),
        Err(error) => match error.downcast_ref::<I32Exit>() {
            Some(exit) => Ok(Answer::Exit(exit.0)),
            None => Err(error),
        },
    }
}
