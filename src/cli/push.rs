//! `dqhost push`: a handler to a registry, from where hosts take it by its digest.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use super::sandbox::SandboxArgs;
use super::signers::SIGNATURE_MAX;
use super::source::registry::{self, Artifact, Reference};
use super::{Exit, Usage, log, source};
use crate::files;
use crate::runtime::Effort;
use crate::store::address::Endpoints;
use crate::text::printable;

#[derive(Debug, Args)]
pub(super) struct PushArgs {
    /// Handler: a WebAssembly component
    ///
    /// If there is a FILE.sig, it is pushed with it.
    file: PathBuf,
    /// Registry: oci://HOST/NAME[:TAG]
    #[arg(value_parser = place)]
    to: Reference,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

fn place(text: &str) -> Result<Reference, String> {
    let text = text
        .strip_prefix("oci://")
        .ok_or("it begins with oci://, as in oci://ghcr.io/team/handler:v1")?;
    let reference = Reference::of(text)?;
    match reference.digest {
        None => Ok(reference),
        Some(_) => Err("what is pushed gets its digest then: leave out @sha256:...".to_owned()),
    }
}

pub(super) fn push(args: &PushArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    if source::is_remote(&args.file) {
        let refusal = "name a file: what is in a registry is there already";
        return Err(Usage(refusal.to_owned()).into());
    }
    let permissions = args.sandbox.permissions(Endpoints::default(), 0)?;
    let runtime = args
        .sandbox
        .runtime(1, permissions)?
        .with_effort(Effort::Quick);
    let file = args.sandbox.read(&runtime, &args.file)?;
    let found = runtime.inspect(&file);
    if let Some(problem) = found.problem {
        return Err(problem.into());
    }
    let signature = source::signature_of(&args.file);
    let signature = match files::read_named(&signature, SIGNATURE_MAX) {
        Ok(signature) => Some(signature),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            let shown = signature.display();
            return Err(anyhow::anyhow!("cannot read {shown}: {error}"));
        }
    };
    let artifact = Artifact {
        component: file.bytes().to_vec(),
        signature,
        exports: found.exports,
        imports: found
            .imports
            .into_iter()
            .map(|import| import.name)
            .collect(),
    };
    let Reference { host, name, .. } = &args.to;
    let digest = registry::push(&args.to, &artifact)
        .map_err(|reason| anyhow::anyhow!("{} is not pushed: {}", file.name, printable(&reason)))?;
    writeln!(io::stdout().lock(), "oci://{host}/{name}@sha256:{digest}")?;
    Ok(Exit::Done)
}
