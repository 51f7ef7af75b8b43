//! The handlers of a host: loaded before it serves, and again when their files change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::sandbox::{self, SandboxArgs};
use super::source;
use crate::control::{LoadHandler, LoadedHandler};
use crate::host::{QueueSettings, Served};
use crate::message::QueueName;
use crate::runtime::{ComponentFile, Handler, HandlerError, Limits, Permissions, Runtime};

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
    /// The queue with what was loaded.
    pub(super) fn served(&self, loaded: &Handler) -> Served {
        Served {
            handler: self.handler(loaded),
            queue: self.queue.clone(),
            settings: self.settings.clone(),
        }
    }

    /// What was loaded, with the limits and permissions of this queue.
    pub(super) fn handler(&self, loaded: &Handler) -> Arc<Handler> {
        Arc::new(loaded.with(self.sandbox.limits(), self.permissions.clone()))
    }
}

/// What loads the handlers of a host.
pub(super) struct Loader {
    pub runtime: Runtime,
    /// Those of the runtime.
    pub limits: Limits,
    tried_as: Mutex<TriedAs>,
}

/// What a handler may do that is tried on dead letters.
struct TriedAs {
    /// On those of these queues: what the queue's own handler may do.
    queues: Vec<(QueueName, SandboxArgs, Permissions)>,
    /// On those of a queue that the host does not serve, nothing. The host's own flags say which files may be
    /// loaded.
    others: SandboxArgs,
}

impl TriedAs {
    fn of(plans: &[Plan], others: &SandboxArgs) -> Self {
        let of = |plan: &Plan| {
            let Plan { queue, sandbox, .. } = plan;
            (queue.clone(), sandbox.clone(), plan.permissions.clone())
        };
        Self {
            queues: plans.iter().map(of).collect(),
            others: others.clone(),
        }
    }
}

impl Loader {
    /// `of_host` holds for queues without settings of their own.
    pub(super) fn new(
        runtime: Runtime,
        limits: Limits,
        plans: &[Plan],
        of_host: &SandboxArgs,
    ) -> Self {
        Self {
            runtime,
            limits,
            tried_as: Mutex::new(TriedAs::of(plans, of_host)),
        }
    }

    /// Notes what the handlers of the queues may do from now on.
    pub(super) fn try_as(&self, plans: &[Plan], of_host: &SandboxArgs) {
        *self.tried_as.lock().unwrap_or_else(PoisonError::into_inner) = TriedAs::of(plans, of_host);
    }

    /// Compiles and checks what was read. Blocks.
    pub(super) fn load(&self, file: &ComponentFile) -> Result<Arc<Handler>, HandlerError> {
        self.runtime.load(file).map(Arc::new)
    }

    /// Loads each file once, however many queues it serves. A queue whose file cannot be loaded is left
    /// out, unless that leaves none, `is_strict` is true, or a queue names the digest of its file.
    pub(super) fn load_all(
        &self,
        plans: &[Plan],
        is_strict: bool,
    ) -> Result<Vec<Served>, HandlerError> {
        let is_strict = is_strict || plans.iter().any(|plan| plan.sandbox.has_digests());
        let mut files = Files::default();
        let (mut served, mut left_out, mut first) = (Vec::new(), Vec::new(), None);
        for plan in plans {
            match files.handler(self, plan) {
                Ok(handler) => served.push(plan.served(&handler)),
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

/// A handler is tried with the limits and variables of its queue's handler. It may send to the same queues,
/// and reaches no host.
impl LoadHandler for Loader {
    fn load(&self, file: &Path, queue: &QueueName) -> Result<LoadedHandler, HandlerError> {
        let all = self.tried_as.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.queues.iter().find(|(name, ..)| name == queue).cloned();
        let others = all.others.clone();
        drop(all);
        let Some((_, sandbox, permissions)) = known else {
            return without_permissions(|engine| others.read(engine, file));
        };
        let permissions = Permissions {
            http: Vec::new(),
            ..permissions
        };
        let engine = sandbox::runtime(1, sandbox.limits(), permissions)?;
        let file = sandbox.read(&engine, file)?;
        LoadedHandler::load(engine, &file)
    }
}

/// Loads handlers to be tried where no host is: with the default limits, and without permissions.
pub(super) struct NoHost;

impl LoadHandler for NoHost {
    fn load(&self, file: &Path, _: &QueueName) -> Result<LoadedHandler, HandlerError> {
        without_permissions(|engine| source::read(engine, file, None))
    }
}

fn without_permissions(
    read: impl FnOnce(&Runtime) -> Result<ComponentFile, HandlerError>,
) -> Result<LoadedHandler, HandlerError> {
    let engine = sandbox::runtime(1, Limits::default(), Permissions::default())?;
    let file = read(&engine)?;
    LoadedHandler::load(engine, &file)
}

/// What is known of the files. Their bytes are not kept: those of all files together may be large.
#[derive(Default)]
struct Files {
    digests: HashMap<PathBuf, Result<Arc<str>, HandlerError>>,
    loaded: HashMap<Arc<str>, Result<Arc<Handler>, HandlerError>>,
}

impl Files {
    /// The handler of a queue. A file with another digest than the queue's is not loaded for it.
    fn handler(&mut self, loader: &Loader, plan: &Plan) -> Result<Arc<Handler>, HandlerError> {
        if let Some(known) = self.known(plan) {
            return known;
        }
        let read = plan.sandbox.fetch(&loader.runtime, &plan.file);
        let digest = read.as_ref().map(|file| Arc::clone(&file.digest));
        if !plan.sandbox.has_signers() {
            self.digests
                .insert(plan.file.clone(), digest.map_err(Clone::clone));
        }
        let file = read?;
        plan.sandbox.check(&file.name, &file.digest)?;
        let load = || {
            let began = Instant::now();
            let handler = loader.load(&file);
            let (took, is_loaded) = (began.elapsed().as_secs_f64(), handler.is_ok());
            tracing::debug!(file = file.name, took, is_loaded, "read a handler");
            handler
        };
        let digest = Arc::clone(&file.digest);
        self.loaded.entry(digest).or_insert_with(load).clone()
    }

    /// What came of the file of a queue, if it was read before. One that was read and not loaded, since the
    /// queues before wanted another, is read again.
    fn known(&self, plan: &Plan) -> Option<Result<Arc<Handler>, HandlerError>> {
        if plan.sandbox.has_signers() {
            // Each queue has its own.
            return None;
        }
        let digest = match self.digests.get(&plan.file)? {
            Ok(digest) => digest,
            Err(error) => return Some(Err(error.clone())),
        };
        let loaded = self.loaded.get(digest)?;
        let name = source::name_of(&plan.file.display().to_string());
        let checked = plan.sandbox.check(&name, digest);
        Some(checked.and_then(|()| loaded.clone()))
    }
}
