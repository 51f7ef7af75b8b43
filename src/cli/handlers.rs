//! The handlers of a host, loaded before it serves.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::sandbox::SandboxArgs;
use crate::host::Served;
use crate::message::QueueName;
use crate::runtime::{Handler, HandlerError, Runtime};

/// Loads each file once, however many queues it serves. A queue whose file cannot be loaded is left out,
/// unless that leaves none or `is_strict` is true.
pub(super) fn load(
    sandbox: &SandboxArgs,
    runtime: &Runtime,
    files: Vec<(QueueName, PathBuf)>,
    is_strict: bool,
) -> Result<Vec<Served>, HandlerError> {
    let mut loaded: HashMap<PathBuf, Result<Arc<Handler>, Arc<str>>> = HashMap::new();
    let (mut served, mut left_out, mut first) = (Vec::new(), Vec::new(), None);
    for (queue, file) in files {
        let handler = loaded.entry(file).or_insert_with_key(|file| {
            let read = sandbox.read(runtime, file);
            let handler = read.and_then(|file| runtime.load(&file));
            handler.map(Arc::new).map_err(|error| {
                let reason = error.to_string().into();
                first.get_or_insert(error);
                reason
            })
        });
        match handler {
            Ok(handler) => served.push(Served {
                queue,
                handler: Arc::clone(handler),
            }),
            Err(reason) => left_out.push((queue, Arc::clone(reason))),
        }
    }
    if let Some(error) = first.filter(|_| is_strict || served.is_empty()) {
        return Err(error);
    }
    for (queue, reason) in left_out {
        tracing::error!(%queue, "this queue is not served: {reason}");
    }
    Ok(served)
}
