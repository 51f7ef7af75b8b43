//! `dqhost new`: a folder with a handler that builds and runs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::{Args, ValueEnum};

use self::language::Language;
use self::tools::Missing;
use super::{Exit, Usage, print};

mod language;
mod tools;

/// Characters of a name, as package registries have it.
const NAME_MAX: usize = 64;

/// Names that Cargo refuses, and those of the crates that a handler uses.
const TAKEN: &str = "abstract alloc as async await become box break build const continue core \
    crate deps do dyn else enum examples extern false final fn for gen if impl in incremental let loop \
    macro match mod move mut override priv proc_macro pub ref return self serde serde_json \
    static std struct super test trait true try type typeof unsafe unsized use virtual where \
    while wit_bindgen yield con nul aux";

#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// Name of the handler, and of the folder to make
    #[arg(value_parser = name, required_unless_present = "list")]
    name: Option<String>,
    /// Write the handler in this language
    #[arg(long, value_name = "LANG", value_enum, default_value_t = Language::Rust)]
    lang: Language,
    /// List the languages, and what each still needs here
    #[arg(long, conflicts_with_all = ["name", "lang"])]
    list: bool,
}

/// A name that is one of a package in every language.
fn name(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    let starts_well = text.starts_with(|c: char| c.is_ascii_lowercase());
    let ends_well = text.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !starts_well || !ends_well || !text.chars().all(is_part) {
        return Err(
            "use lower-case letters, digits, - and _, begin with a letter, and end with a letter or \
             a digit"
                .to_owned(),
        );
    }
    if text.len() > NAME_MAX {
        return Err(format!("use at most {NAME_MAX} characters"));
    }
    let in_rust = text.replace('-', "_");
    if TAKEN.split(' ').any(|taken| taken == in_rust) {
        return Err("this name has another meaning in Rust: choose another one".to_owned());
    }
    Ok(text.to_owned())
}

pub(super) fn new(args: &NewArgs) -> anyhow::Result<Exit> {
    match &args.name {
        Some(name) => make(name, args.lang)?,
        None => list()?,
    }
    Ok(Exit::Done)
}

/// A line for each language, with the first of its tools that is not there.
fn list() -> io::Result<()> {
    let mut out = print::stdout();
    for language in Language::value_variants() {
        let name = language.name();
        match language.missing() {
            None => writeln!(out, "{name:<8} ready")?,
            Some(Missing { tool, remedy }) => {
                writeln!(out, "{name:<8} {tool} is missing: {remedy}")?;
            }
        }
    }
    Ok(())
}

fn make(name: &str, language: Language) -> anyhow::Result<()> {
    let folder = Path::new(name);
    // A link to nothing is in the way as well.
    if fs::symlink_metadata(folder).is_ok() {
        return Err(exists(name).into());
    }
    if let Some(Missing { tool, remedy }) = language.missing() {
        let language = language.name();
        let refusal = format!("{tool} is missing, which a handler in {language} needs: {remedy}");
        return Err(Usage(refusal).into());
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(exists(name).into());
        }
        made => made.with_context(|| format!("cannot make the folder {name}"))?,
    }
    let files = language.files(name);
    let written = files.iter().try_for_each(|(path, text)| {
        let path = folder.join(path);
        write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    });
    if written.is_err() {
        // Half of a handler would stand in the way of the next try.
        let _ = fs::remove_dir_all(folder);
    }
    written?;
    let mut out = print::stdout();
    for (path, _) in &files {
        writeln!(out, "{name}/{path}")?;
    }
    writeln!(out, "\nNext, as {name}/README.md says:\n\n  cd {name}")?;
    for command in language.commands(name) {
        writeln!(out, "  {command}")?;
    }
    Ok(())
}

fn exists(name: &str) -> Usage {
    Usage(format!(
        "{name} exists, and nothing is written over: choose another name, or remove it"
    ))
}

/// Writes a new file, with the folders that it is in.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create_new(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_of_a_package_and_of_a_plain_folder() {
        for good in [
            "a",
            "order-handler",
            "orders2",
            "a_b",
            &"x".repeat(NAME_MAX),
        ] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        let long = "x".repeat(NAME_MAX + 1);
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "/x",
            "a/b",
            "a\\b",
            "-x",
            "_x",
            "x-",
            "2x",
            "X",
            "a b",
            "a.b",
            "é",
            "a\n",
            "\u{1b}[2J",
            "a\u{202e}b",
            "a\0",
            "serde-json",
            "wit-bindgen",
            "fn",
            "test",
            &long,
        ] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_next_commands_of_each_language_stand_in_its_readme() {
        for language in Language::value_variants() {
            let files = language.files("first");
            let (_, readme) = files.iter().find(|(path, _)| path == "README.md").unwrap();
            let commands = language.commands("first");
            let at = |command: &String| readme.find(&format!("```sh\n{command}\n```"));
            let places: Vec<usize> = commands.iter().filter_map(at).collect();
            assert_eq!(places.len(), commands.len(), "{commands:?}");
            assert!(places.is_sorted(), "{commands:?}");
        }
    }

    #[test]
    fn no_placeholder_is_left_in_any_file() {
        for language in Language::value_variants() {
            for (path, text) in language.files("first") {
                assert!(
                    !text.contains("@NAME@") && !text.contains("@CRATE@"),
                    "{path}"
                );
            }
        }
    }
}
