//! Changed handler files, taken over while a host works.
//!
//! A thread of its own reads, compiles and checks them, so whatever blocks it holds up no lease and no
//! signal. It keeps no state that a crash could damage: a host that starts again loads the files.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use anyhow::Context;

use super::handlers::{Loader, Plan};
use super::service::ServiceManager;
use super::watched::Watched;
use crate::host::CurrentHandler;
use crate::runtime::{ComponentFile, Handler, HandlerError};

/// How often watched files are looked at. A file that has changed is taken at the next look at which it
/// has not changed again, so that no half of it is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Asks for changed files to be taken over.
pub(super) struct Reload(SyncSender<()>);

impl Reload {
    /// Starts the thread. It also looks at the files by itself if it `is_watching`.
    pub(super) fn start(reloader: Reloader, is_watching: bool) -> anyhow::Result<Self> {
        let (asks, asked) = sync_channel(1);
        std::thread::Builder::new()
            .name("reload".to_owned())
            .spawn(move || reloader.serve(&asked, is_watching))
            .context("no thread for changed handlers")?;
        Ok(Self(asks))
    }

    /// Takes over what has changed, soon. Of several that wait, one is enough.
    pub(super) fn ask(&self) {
        if let Err(TrySendError::Disconnected(())) = self.0.try_send(()) {
            tracing::error!("changed handlers cannot be loaded any more: restart the host");
        }
    }
}

/// What the thread works with.
pub(super) struct Reloader {
    pub loader: Arc<Loader>,
    pub handlers: Vec<Arc<CurrentHandler>>,
    /// It is told when handlers are loaded because somebody has asked.
    pub manager: ServiceManager,
}

impl Reloader {
    fn serve(&self, asked: &Receiver<()>, is_watching: bool) {
        let plans = self.loader.plans.iter();
        let paths: BTreeSet<&Path> = plans.map(|plan| plan.file.as_path()).collect();
        let mut watched: BTreeMap<&Path, Watched> = BTreeMap::new();
        let every = if is_watching {
            LOOK_EVERY
        } else {
            Duration::MAX
        };
        loop {
            let is_asked = match asked.recv_timeout(every) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if is_asked {
                self.manager.reloading();
            }
            for path in &paths {
                if is_asked || watched.entry(path).or_default().have_changed(&[path]) {
                    // A bug costs this file, and not the thread.
                    let _ = catch_unwind(AssertUnwindSafe(|| self.reload(path)));
                }
            }
            if is_asked {
                self.manager.reloaded();
            }
        }
    }

    /// The queues that are served with this file.
    fn queues_of(&self, path: &Path) -> impl Iterator<Item = (&Plan, &Arc<CurrentHandler>)> {
        let plans = self
            .loader
            .plans
            .iter()
            .filter(move |plan| plan.file == path);
        plans.filter_map(|plan| {
            let mut handlers = self.handlers.iter();
            let current = handlers.find(|current| *current.queue() == plan.queue)?;
            Some((plan, current))
        })
    }

    fn reload(&self, path: &Path) {
        let read = self.loader.read(path);
        let mut loaded = None;
        for (plan, current) in self.queues_of(path) {
            let file = read.as_ref().map_err(Clone::clone);
            let replaced = file.and_then(|file| self.replace(plan, current, file, &mut loaded));
            let Err(error) = replaced else {
                continue;
            };
            let reason: Arc<str> = error.to_string().into();
            let (queue, handler) = (current.queue(), current.get());
            tracing::error!(%queue, handler = handler.digest(), "the old handler goes on: {reason}");
            current.note_refusal(Some(reason));
        }
    }

    /// Replaces the handler of one queue. The file is loaded once for all of them.
    fn replace(
        &self,
        plan: &Plan,
        current: &CurrentHandler,
        file: &ComponentFile,
        loaded: &mut Option<Result<Arc<Handler>, HandlerError>>,
    ) -> Result<(), HandlerError> {
        let (queue, digest) = (current.queue(), &*file.digest);
        plan.sandbox.check(&file.name, &file.digest)?;
        if current.get().digest() == digest {
            tracing::info!(%queue, handler = digest, "the handler has not changed");
            current.note_refusal(None);
            return Ok(());
        }
        let handler = loaded
            .get_or_insert_with(|| self.loader.load(file))
            .clone()?;
        current.replace(plan.handler(&handler));
        tracing::info!(%queue, handler = digest, "the handler was replaced");
        Ok(())
    }
}
