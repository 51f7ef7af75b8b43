//! What handlers are given, on the command line: limits, permissions, and which files may be loaded
//! at all.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::limits::{self, LimitArg};
use super::{Usage, folder, number, source, time};
use crate::files;
use crate::message::QueueName;
use crate::runtime::{ComponentFile, HandlerError, HttpRule, Limits, Permissions, Runtime};
use crate::store::address::Endpoints;

/// The longest secret, in bytes.
const SECRET_MAX: u64 = 64 * 1024;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Handler limits and permissions")]
pub(super) struct SandboxArgs {
    /// Stop a handler after so long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time::some_duration,
        env = "DQHOST_TIMEOUT")]
    timeout: Duration,
    /// Let a handler move its own time limit up to this
    ///
    /// By default no further than --timeout.
    #[arg(long, value_name = "DURATION", value_parser = time::some_duration,
        env = "DQHOST_TIMEOUT_MAX")]
    timeout_max: Option<Duration>,
    /// Give a handler at most so much memory, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, env = "DQHOST_MEMORY",
        value_parser = number::from::<u32>(1..=4096))]
    memory: u32,
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = limits::parse,
        env = "DQHOST_LIMIT", value_delimiter = ',',
        help = "Set another limit; --help lists them",
        long_help = limits::help())]
    limits: Vec<LimitArg>,
    /// Allow HTTP requests to this host; may be repeated
    ///
    /// In full: [http://|https://]HOST[:PORT]. HOST is a name, *.NAME, * for any public one, an address
    /// or a network. Addresses that are not public have to be named.
    #[arg(
        long,
        value_name = "HOST",
        env = "DQHOST_ALLOW_HTTP",
        value_delimiter = ','
    )]
    allow_http: Vec<HttpRule>,
    /// Allow messages to this queue; may be repeated
    #[arg(
        long,
        value_name = "QUEUE",
        env = "DQHOST_ALLOW_SEND",
        value_delimiter = ','
    )]
    allow_send: Vec<QueueName>,
    /// Set an environment variable of handlers; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Pass on a variable of this process; may be repeated
    #[arg(
        long,
        value_name = "NAME",
        env = "DQHOST_ENV_FROM",
        value_delimiter = ','
    )]
    env_from: Vec<String>,
    /// Set a variable from a file; may be repeated
    ///
    /// Where its value appears in a log or a reason, its name is shown instead.
    #[arg(long, value_name = "NAME=PATH", value_parser = variable, env = "DQHOST_SECRET_FILE",
        value_delimiter = ',')]
    secret_file: Vec<(String, String)>,
    /// Load only a file with this SHA-256; may be repeated
    #[arg(long, value_name = "sha256:HEX", value_parser = digest, env = "DQHOST_HANDLER_DIGEST",
        value_delimiter = ',')]
    handler_digest: Vec<String>,
    /// Load only handlers that someone of this file has signed
    ///
    /// A line is a name and a key, as in a file of allowed signers of OpenSSH. `ssh-keygen -Y sign -n dqhost
    /// -f KEY FILE` makes the signature FILE.sig.
    #[arg(long, value_name = "FILE", env = "DQHOST_ALLOWED_SIGNERS")]
    allowed_signers: Option<PathBuf>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if is_name(name) && !value.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        Some((name, _)) if !is_name(name) => Err(format!("{name:?} cannot be a name")),
        _ => Err("give it as NAME=VALUE".to_owned()),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn digest(text: &str) -> Result<String, String> {
    let hex = text.strip_prefix("sha256:").unwrap_or(text);
    if hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(hex.to_ascii_lowercase())
    } else {
        Err(
            "give it as sha256: and 64 hexadecimal digits; `dqhost check FILE` prints it"
                .to_owned(),
        )
    }
}

impl SandboxArgs {
    pub(super) fn limits(&self) -> Limits {
        let mut limits = Limits {
            time: self.timeout,
            time_max: self.timeout_max.unwrap_or(self.timeout).max(self.timeout),
            memory: self.memory as usize * 1024 * 1024,
            ..Limits::default()
        };
        limits::apply(&mut limits, &self.limits);
        limits
    }

    /// What handlers may do. `never` is where no request goes, whatever is allowed.
    pub(super) fn permissions(
        &self,
        never: Endpoints,
        retries_default: u32,
    ) -> Result<Permissions, Usage> {
        let mut env = self.env.clone();
        for name in &self.env_from {
            let value = std::env::var(name).map_err(|error| {
                Usage(format!(
                    "--env-from {name}: {error}; set it, or leave it out"
                ))
            })?;
            env.push((name.clone(), value));
        }
        let mut secrets = Vec::new();
        for (name, path) in &self.secret_file {
            secrets.push((name.clone(), secret(name, Path::new(path))?));
        }
        let mut names: Vec<&str> = env
            .iter()
            .chain(&secrets)
            .map(|(n, _)| n.as_str())
            .collect();
        names.sort_unstable();
        if let Some([name, _]) = names.array_windows().find(|[a, b]| a == b) {
            return Err(Usage(format!(
                "the environment variable {name} is given twice"
            )));
        }
        Ok(Permissions {
            http: self.allow_http.clone(),
            never,
            env,
            secrets,
            sends: self.allow_send.clone(),
            retries_default,
        })
    }

    /// A runtime for up to `slots` runs at a time with these permissions.
    pub(super) fn runtime(
        &self,
        slots: usize,
        permissions: Permissions,
    ) -> Result<Runtime, HandlerError> {
        runtime(slots, self.limits(), permissions)
    }

    /// True if only certain files may be loaded.
    pub(super) fn has_digests(&self) -> bool {
        !self.handler_digest.is_empty()
    }

    /// True if only signed files may be loaded.
    pub(super) fn has_signers(&self) -> bool {
        self.allowed_signers.is_some()
    }

    /// Reads a handler from where it is, if its signature is right or it needs none. Blocks.
    pub(super) fn fetch(
        &self,
        runtime: &Runtime,
        path: &Path,
    ) -> Result<ComponentFile, HandlerError> {
        source::read(runtime, path, self.allowed_signers.as_deref())
    }

    /// Reads a handler from where it is, if it is one that may be loaded. Blocks.
    pub(super) fn read(
        &self,
        runtime: &Runtime,
        path: &Path,
    ) -> Result<ComponentFile, HandlerError> {
        let file = self.fetch(runtime, path)?;
        self.check(&file.name, &file.digest)?;
        Ok(file)
    }

    /// Refuses a file with another digest than those that may be loaded.
    pub(super) fn check(&self, name: &str, digest: &str) -> Result<(), HandlerError> {
        let wanted = &self.handler_digest;
        if wanted.is_empty() || wanted.iter().any(|wanted| **wanted == *digest) {
            return Ok(());
        }
        Err(HandlerError::Invalid {
            reason: format!(
                "its digest is sha256:{digest}, which is not the one of --handler-digest"
            ),
            path: name.to_owned(),
        })
    }
}

/// A runtime for up to `slots` runs at a time that compiles in child processes of this program.
pub(super) fn runtime(
    slots: usize,
    limits: Limits,
    permissions: Permissions,
) -> Result<Runtime, HandlerError> {
    runtime_with_room((slots, slots), limits, permissions)
}

/// The same for at least and at most so many runs, depending on what the system has room for.
pub(super) fn runtime_with_room(
    (least, most): (usize, usize),
    limits: Limits,
    permissions: Permissions,
) -> Result<Runtime, HandlerError> {
    let cache = folder::cache();
    let program = this_program().map_err(|error| {
        HandlerError::Engine(format!("the path of this program is not known: {error}"))
    })?;
    let cache = cache.as_deref();
    let runtime = if least < most {
        Runtime::with_room((least, most), limits, &permissions, cache)?
    } else {
        Runtime::new(most, limits, permissions, cache)?
    };
    let runtime = runtime.compile_with(program);
    Ok(if is_always_async() {
        runtime.always_async()
    } else {
        runtime
    })
}

/// When a test has said so: the second engine runs what the first one could.
fn is_always_async() -> bool {
    fail::fail_point!("always async", |_| true);
    false
}

/// What is in the file, without the line end that editors put there.
fn secret(name: &str, path: &Path) -> Result<String, Usage> {
    let fail = |reason: String| {
        Usage(format!(
            "--secret-file {name}: cannot read {}: {reason}",
            path.display()
        ))
    };
    let bytes = files::read_named(path, SECRET_MAX).map_err(|error| fail(error.to_string()))?;
    if bytes.len() as u64 > SECRET_MAX {
        return Err(fail(format!("it has more than {SECRET_MAX} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| fail("it is not text".to_owned()))?;
    files::warn_if_public("the secret", path);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.contains('\0') {
        return Err(fail("there is a zero byte in it".to_owned()));
    }
    Ok(text.to_owned())
}

/// The file that this process runs. On Linux it is this very version, even if the file was replaced.
fn this_program() -> io::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    if cfg!(target_os = "linux") && link.exists() {
        return Ok(link.to_owned());
    }
    std::env::current_exe()
}
