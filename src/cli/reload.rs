//! Changed handler files and settings, taken over while a host works.
//!
//! A thread of its own reads, compiles and checks them, so whatever blocks it holds up no lease and no
//! signal. It keeps no state that a crash could damage: a host that starts again reads all of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::watch;

use super::config::Config;
use super::handlers::{Loader, Plan};
use super::plans::{check_sends, limits, plans};
use super::sandbox::SandboxArgs;
use super::service::ServiceManager;
use super::watched::Watched;
use super::{Command, Usage, source};
use crate::host::{CurrentHandler, QueueChanger};
use crate::message::QueueName;
use crate::runtime::{ComponentFile, Handler, HandlerError, Limits};
use crate::store::Store;
use crate::store::address::Endpoints;
use crate::text::printable;

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

/// The settings of a host.
pub(super) struct Configs {
    /// With which it began: what waits for a restart differs from these.
    first: Config,
    /// That were read last.
    now: Config,
}

impl From<&Config> for Configs {
    fn from(config: &Config) -> Self {
        Self {
            first: config.clone(),
            now: config.clone(),
        }
    }
}

/// What the thread works with.
pub(super) struct Reloader {
    pub loader: Arc<Loader>,
    pub plans: Vec<Plan>,
    pub config: Configs,
    /// Where no request of a handler goes.
    pub endpoints: Endpoints,
    /// Tells to which queues a handler may send.
    pub store: Arc<dyn Store>,
    pub changer: QueueChanger,
    /// It is told of queues whose handlers cannot be loaded.
    pub not_served: watch::Sender<Vec<QueueName>>,
    /// It is told when files are read because somebody has asked.
    pub manager: ServiceManager,
}

/// What was loaded, once for all queues, by its digest.
type Loaded = HashMap<Arc<str>, Result<Arc<Handler>, HandlerError>>;

impl Reloader {
    fn serve(mut self, asked: &Receiver<()>, is_watching: bool) {
        let mut watched: BTreeMap<PathBuf, Watched> = BTreeMap::new();
        let mut retries = self.first_retries();
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
            let mut have_changed = |paths: Vec<PathBuf>| {
                let watched = watched.entry(paths[0].clone()).or_default();
                watched.have_changed(&paths)
            };
            if is_asked {
                self.manager.reloading();
            }
            // A bug costs this file, and not the thread.
            let has_settings = (have_changed(vec![self.config.now.path().to_owned()]) || is_asked)
                && catch_unwind(AssertUnwindSafe(|| self.read_settings(is_asked))).unwrap_or(false);
            let paths: BTreeSet<PathBuf> =
                self.plans.iter().map(|plan| plan.file.clone()).collect();
            for path in paths {
                let signature = self.is_signed(&path).then(|| source::signature_of(&path));
                let paths = iter::once(path.clone()).chain(signature).collect();
                let is_due = retries.is_due(&path);
                if have_changed(paths) || is_asked || has_settings || is_due {
                    let taken = catch_unwind(AssertUnwindSafe(|| self.reload(&path)));
                    retries.note(&path, taken.unwrap_or(true));
                }
            }
            if is_asked {
                self.manager.reloaded();
            }
        }
    }

    /// Of handlers whose servers were away when the host began.
    fn first_retries(&self) -> Retries {
        let mut retries = Retries::default();
        let not_served = self.not_served.borrow();
        let plans = self.plans.iter();
        for plan in plans.filter(|plan| not_served.contains(&plan.queue)) {
            retries.note(&plan.file, false);
        }
        retries
    }

    /// Whether a queue takes this file only with its signature.
    fn is_signed(&self, path: &Path) -> bool {
        let mut plans = self.plans.iter();
        plans.any(|plan| plan.file == path && plan.sandbox.has_signers())
    }

    /// Takes over what stands in the file of settings. What is wrong with it changes nothing. True when it
    /// was taken. A file that has not changed is taken if `is_asked`, since other files may have
    /// changed to which it leads.
    fn read_settings(&mut self, is_asked: bool) -> bool {
        match self.new_settings() {
            Ok((config, ..)) if !is_asked && config.is_same_file(&self.config.now) => false,
            Ok((config, plans, of_host)) => {
                if let Some(file) = config.file_name() {
                    tracing::info!(file, "the settings were read again");
                }
                config.log_warnings();
                let is_kept = |old: &&Plan| plans.iter().any(|new| new.queue == old.queue);
                for old in self.plans.iter().filter(|old| !is_kept(old)) {
                    let queue = &old.queue;
                    tracing::info!(%queue, "the queue is served no longer");
                    self.changer.retire(queue.clone());
                    self.note(queue, true);
                }
                self.loader.try_as(&plans, &of_host);
                (self.config.now, self.plans) = (config, plans);
                true
            }
            Err(error) => {
                let reason = format!("{error:#}");
                tracing::error!("the settings stay as they were: {}", printable(&reason));
                false
            }
        }
    }

    /// What stands in the file now: for each queue, and for those that are not served.
    fn new_settings(&self) -> anyhow::Result<(Config, Vec<Plan>, SandboxArgs)> {
        let again = self.config.now.again();
        let (cli, config) = again.map_err(|failure| Usage(failure.to_string()))?;
        let args = match cli.command {
            Some(Command::Up(args)) => *args,
            _ => cli.up,
        };
        let plans = plans(&args, &config, &self.endpoints)?;
        check_sends(&*self.store, &plans)?;
        let (now, wanted) = (self.loader.limits, limits(&args, &plans));
        if wanted.memory > now.memory || wanted.table_elements > now.table_elements {
            let reason = "a handler is to have more memory or larger tables than this host has reserved \
                          for one at its start; restart the host";
            return Err(Usage(reason.to_owned()).into());
        }
        let mut differing = self.config.first.differing_for_host(&config)?;
        if are_of_runtime(&now) != are_of_runtime(&wanted) {
            differing.push("limit".to_owned());
        }
        if !differing.is_empty() {
            let keys = differing.join(", ");
            tracing::warn!("these settings of the file wait for a restart of the host: {keys}");
        }
        Ok((config, plans, args.sandbox))
    }

    /// Serves the queues of this file with it, as they are planned. False if one of them is not.
    fn reload(&self, path: &Path) -> bool {
        let mut loaded = Loaded::default();
        let mut is_taken = true;
        for plan in self.plans.iter().filter(|plan| plan.file == path) {
            let current = self.changer.handler(&plan.queue);
            let read = plan.sandbox.read(&self.loader.runtime, path);
            let taken =
                read.and_then(|file| self.take(plan, current.as_deref(), &file, &mut loaded));
            self.note(&plan.queue, current.is_some() || taken.is_ok());
            let Err(error) = taken else {
                continue;
            };
            is_taken = false;
            let (queue, reason): (_, Arc<str>) = (&plan.queue, error.to_string().into());
            if let Some(current) = current {
                let handler = current.get();
                tracing::error!(%queue, handler = handler.digest(), "the old handler goes on: {reason}");
                current.note_refusal(Some(reason));
            } else {
                tracing::error!(%queue, "this queue is not served: {reason}");
            }
        }
        is_taken
    }

    /// Notes whether a queue is served as far as this host is asked for it.
    fn note(&self, queue: &QueueName, is_served: bool) {
        self.not_served.send_modify(|queues| {
            queues.retain(|name| name != queue);
            if !is_served {
                queues.push(queue.clone());
            }
        });
    }

    /// Serves one queue as it is planned. The file is loaded once for all of them.
    fn take(
        &self,
        plan: &Plan,
        current: Option<&CurrentHandler>,
        file: &ComponentFile,
        loaded: &mut Loaded,
    ) -> Result<(), HandlerError> {
        let (queue, digest) = (&plan.queue, &*file.digest);
        let same = current.map(CurrentHandler::get);
        let same = same.filter(|handler| handler.digest() == digest);
        let is_same = same.is_some();
        let handler = match same {
            Some(handler) => handler,
            None => loaded
                .entry(Arc::clone(&file.digest))
                .or_insert_with(|| self.loader.load(file))
                .clone()?,
        };
        let Some(current) = current else {
            self.changer.serve(plan.served(&handler));
            tracing::info!(%queue, handler = digest, "serving");
            return Ok(());
        };
        if self.changer.settings(queue).as_ref() == Some(&plan.settings) {
            current.replace(plan.handler(&handler));
        } else {
            self.changer.serve(plan.served(&handler));
            tracing::info!(%queue, "the queue is served with its new settings");
        }
        if is_same {
            tracing::info!(%queue, handler = digest, "the handler has not changed");
        } else {
            tracing::info!(%queue, handler = digest, "the handler was replaced");
        }
        Ok(())
    }
}

/// Until a server that was away is asked again: at first, and at most.
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_mins(5);

/// When handlers are fetched again whose servers did not have them. Nothing tells that such a file has changed.
#[derive(Debug, Default)]
struct Retries(BTreeMap<PathBuf, (Instant, Duration)>);

impl Retries {
    /// Whether it is time to ask for this one again.
    fn is_due(&self, path: &Path) -> bool {
        let known = self.0.get(path);
        known.is_some_and(|(at, _)| *at <= Instant::now())
    }

    /// Notes how it went.
    fn note(&mut self, path: &Path, is_taken: bool) {
        let before = self.0.remove(path);
        if is_taken || !source::is_remote(path) {
            return;
        }
        let pause = before.map_or(RETRY_FIRST, |(_, pause)| (pause * 2).min(RETRY_MAX));
        let next = (Instant::now() + pause, pause);
        self.0.insert(path.to_owned(), next);
    }
}

/// The limits that stay those of the runtime.
fn are_of_runtime(limits: &Limits) -> impl PartialEq + use<> {
    (
        [limits.tables, limits.instances, limits.stack],
        [
            limits.http_connections,
            limits.component_bytes,
            limits.compile_memory,
        ],
        limits.compile_time,
    )
}
