//! The handlers of a host: loaded before it serves, and again when their files change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::sandbox::SandboxArgs;
use crate::host::{QueueSettings, Served};
use crate::message::QueueName;
use crate::runtime::{ComponentFile, Handler, HandlerError, Permissions, Runtime};
use crate::text::printable;

/// A queue that is to be served.
pub(super) struct Plan {
    pub queue: QueueName,
    /// The file of its handler.
    pub file: PathBuf,
    /// Which files may be loaded, and the limits of a run.
    pub sandbox: SandboxArgs,
    /// What the handler may do.
    pub permissions: Permissions,
    pub settings: QueueSettings,
}

impl Plan {
    /// What was loaded, with the limits and permissions of this queue.
    pub(super) fn handler(&self, loaded: &Handler) -> Arc<Handler> {
        Arc::new(loaded.with(self.sandbox.limits(), self.permissions.clone()))
    }
}

/// What loads the handlers of a host.
pub(super) struct Loader {
    pub plans: Vec<Plan>,
    pub runtime: Runtime,
}

impl Loader {
    /// Reads a handler's file. Blocks.
    pub(super) fn read(&self, path: &Path) -> Result<ComponentFile, HandlerError> {
        self.runtime.read(path)
    }

    /// Compiles and checks what was read. Blocks.
    pub(super) fn load(&self, file: &ComponentFile) -> Result<Arc<Handler>, HandlerError> {
        self.runtime.load(file).map(Arc::new)
    }

    /// Loads each file once, however many queues it serves. A queue whose file cannot be loaded is left
    /// out, unless that leaves none, `is_strict` is true, or a queue names the digest of its file.
    pub(super) fn load_all(&self, is_strict: bool) -> Result<Vec<Served>, HandlerError> {
        let is_strict = is_strict || self.plans.iter().any(|plan| plan.sandbox.has_digests());
        let mut files = Files::default();
        let (mut served, mut left_out, mut first) = (Vec::new(), Vec::new(), None);
        for plan in &self.plans {
            match files.handler(self, plan) {
                Ok(handler) => served.push(Served {
                    handler: plan.handler(&handler),
                    queue: plan.queue.clone(),
                    settings: plan.settings.clone(),
                }),
                Err(error) => {
                    left_out.push((&plan.queue, error.to_string()));
                    first.get_or_insert(error);
                }
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
}

/// What was read by path, and what was loaded by digest.
#[derive(Default)]
struct Files {
    read: HashMap<PathBuf, Result<ComponentFile, HandlerError>>,
    loaded: HashMap<Arc<str>, Result<Arc<Handler>, HandlerError>>,
}

impl Files {
    /// The handler of a queue. A file with another digest than the queue's is not loaded for it.
    fn handler(&mut self, loader: &Loader, plan: &Plan) -> Result<Arc<Handler>, HandlerError> {
        let path = plan.file.clone();
        let read = self.read.entry(path);
        let read = read.or_insert_with_key(|path| loader.read(path));
        let file = read.as_ref().map_err(Clone::clone)?;
        plan.sandbox.check(file)?;
        let load = || {
            let began = Instant::now();
            let handler = loader.load(file);
            let (took, is_loaded) = (began.elapsed().as_secs_f64(), handler.is_ok());
            tracing::debug!(file = %printable(&plan.file.display().to_string()), took, is_loaded, "read a handler");
            handler
        };
        let digest = Arc::clone(&file.digest);
        self.loaded.entry(digest).or_insert_with(load).clone()
    }
}
