//! `dqhost push`: a handler to a registry, from where hosts take it by its digest; and the interface of handlers,
//! from where tools for components take it by its version.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use wit_parser::PackageName;

use super::sandbox::SandboxArgs;
use super::signers::SIGNATURE_MAX;
use super::source::registry::{self, Artifact, Reference};
use super::{Exit, Usage, log, print, source, wit};
use crate::files;
use crate::runtime::Effort;
use crate::store::address::Endpoints;
use crate::text::printable;

#[derive(Debug, Args)]
pub(super) struct PushArgs {
    /// Handler: a WebAssembly component
    ///
    /// If there is a FILE.sig, it is pushed with it.
    #[arg(required_unless_present = "wit")]
    file: Option<PathBuf>,
    /// Registry: oci://HOST/NAME[:TAG]
    #[arg(required_unless_present = "wit", value_parser = place)]
    to: Option<Reference>,
    /// Push the interface of handlers instead
    ///
    /// As the package dqhost:queue, for tools such as wkg: at oci://HOST[/PREFIX]/dqhost/queue, with its version
    /// as the tag.
    #[arg(long, value_name = "PLACE", value_parser = place, conflicts_with_all = ["file", "to"],
        hide_short_help = true)]
    wit: Option<Reference>,
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

/// What is pushed, by its name, and where it goes.
struct Parcel {
    name: String,
    artifact: Artifact,
    to: Reference,
}

pub(super) fn push(args: &PushArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let Parcel { name, artifact, to } = match (&args.wit, &args.file, &args.to) {
        (Some(to), ..) => interface(to)?,
        (None, Some(file), Some(to)) => handler(&args.sandbox, file, to)?,
        (None, ..) => return Err(Usage("name a handler and a registry".to_owned()).into()),
    };
    let digest = registry::push(&to, &artifact)
        .map_err(|reason| anyhow::anyhow!("{name} is not pushed: {}", printable(&reason)))?;
    let Reference { host, name, .. } = to;
    writeln!(print::stdout(), "oci://{host}/{name}@sha256:{digest}")?;
    Ok(Exit::Done)
}

fn handler(sandbox: &SandboxArgs, path: &Path, to: &Reference) -> anyhow::Result<Parcel> {
    if source::is_remote(path) {
        let refusal = "name a file: what is in a registry is there already";
        return Err(Usage(refusal.to_owned()).into());
    }
    let permissions = sandbox.permissions(Endpoints::default(), 0)?;
    let runtime = sandbox.runtime(1, permissions)?.with_effort(Effort::Quick);
    let file = sandbox.read(&runtime, path)?;
    let found = runtime.inspect(&file);
    if let Some(problem) = found.problem {
        return Err(problem.into());
    }
    let signature = source::signature_of(path);
    let signature = match files::read_named(&signature, SIGNATURE_MAX) {
        Ok(signature) => Some(signature),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            let shown = signature.display();
            return Err(anyhow::anyhow!("cannot read {shown}: {error}"));
        }
    };
    let imports = found.imports.into_iter().map(|import| import.name);
    let artifact = Artifact {
        component: file.bytes().to_vec(),
        signature,
        exports: found.exports,
        imports: imports.collect(),
    };
    Ok(Parcel {
        name: file.name,
        artifact,
        to: to.clone(),
    })
}

/// The interface, encoded as a component. Tools look for a package by its names and its version alone.
fn interface(to: &Reference) -> anyhow::Result<Parcel> {
    let (resolve, package) = wit::resolved()?;
    let of_package = &resolve.packages[package];
    let PackageName {
        namespace,
        name,
        version,
    } = &of_package.name;
    let path = format!("{namespace}/{name}");
    if to.name != path && !to.name.ends_with(&format!("/{path}")) {
        let Reference { host, name, .. } = to;
        return Err(Usage(format!(
            "the interface is the package {namespace}:{}, so its place ends with {path}: oci://{host}/{name}/{path}",
            of_package.name.name
        ))
        .into());
    }
    let version = version.as_ref().map(ToString::to_string);
    if to.tag.is_some() && to.tag != version {
        let version = version.unwrap_or_default();
        let refusal =
            format!("the tag is the version of the interface: leave it out, or say :{version}");
        return Err(Usage(refusal).into());
    }
    let interfaces = of_package.interfaces.values();
    let artifact = Artifact {
        component: wit_component::encode(&resolve, package)?,
        signature: None,
        exports: interfaces.filter_map(|&id| resolve.id_of(id)).collect(),
        imports: Vec::new(),
    };
    Ok(Parcel {
        name: of_package.name.to_string(),
        artifact,
        to: Reference {
            tag: version,
            ..to.clone()
        },
    })
}
