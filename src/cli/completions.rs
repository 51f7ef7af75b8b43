//! Completion in a shell: the script that asks this program for candidates, and the answers.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::engine::{self, ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{self, EnvCompleter};

use super::host_args::QueueSpec;
use super::which::{LISTED, WAITING};
use super::{Exit, config, help, open, print};
use crate::message::{QueueName, State};
use crate::store::{Page, Store, StoreResult};

/// The script sets it to the name of its shell when it asks.
const VARIABLE: &str = "DQHOST_COMPLETE";

/// So the script names the number of the word, and what it wants between candidates.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";
const SEPARATOR: &str = "_CLAP_IFS";

/// A shell waits so long for candidates. It gets none if the store takes longer.
const LIMIT: Duration = Duration::from_secs(1);

/// Ids that are read of each state.
const IDS_MAX: usize = 100;

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// Shell to complete in
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

impl Shell {
    fn completer(self) -> &'static dyn EnvCompleter {
        match self {
            Self::Bash => &env::Bash,
            Self::Elvish => &env::Elvish,
            Self::Fish => &env::Fish,
            Self::Powershell => &env::Powershell,
            Self::Zsh => &env::Zsh,
        }
    }
}

/// What the store is asked for.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Queues,
    /// Ids of messages in these states.
    Ids(&'static [State]),
}

/// Prints the script for a shell.
pub(super) fn completions(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    let (name, program) = ("dqhost", "dqhost");
    args.shell
        .completer()
        .write_registration(VARIABLE, name, program, program, &mut script)?;
    print::stdout().write_all(&script)?;
    Ok(Exit::Done)
}

/// Answers the script of a shell, if it asks. A shell takes whatever is printed for candidates, so
/// mistakes are not told.
pub(super) fn asked_for(args: &[OsString]) -> Option<Exit> {
    let shell = std::env::var(VARIABLE).ok()?;
    let shell = Shell::from_str(&shell, false).ok()?;
    let [_, escape, words @ ..] = args else {
        return None;
    };
    if escape != "--" {
        return None;
    }
    let words = words.to_vec();
    let answer = within(LIMIT, move || answer(shell, words).unwrap_or_default());
    // The shell may have gone.
    let _ = io::stdout().lock().write_all(&answer.unwrap_or_default());
    Some(Exit::Done)
}

/// What the work gives if it ends in time. The thread goes on, and ends with the process.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let name = "completion".to_owned();
    let thread = thread::Builder::new().name(name).spawn(move || {
        let _ = sender.send(work());
    });
    thread.ok()?;
    receiver.recv_timeout(limit).ok()
}

/// The candidates, as the script of the shell reads them.
fn answer(shell: Shell, words: Vec<OsString>) -> io::Result<Vec<u8>> {
    // Scripts that do not tell its number leave out what follows the word.
    let last = words.len().saturating_sub(1);
    let index = std::env::var(INDEX)
        .ok()
        .and_then(|index| index.parse().ok());
    let (words, index) = match shell {
        Shell::Bash => without_equals(&words, index.unwrap_or(last)),
        _ => (words, index.unwrap_or(last)),
    };
    let current = words.get(index).map(|word| word.as_encoded_bytes());
    let is_flag = current.is_some_and(|word| word.starts_with(b"-"));
    let asked: Arc<[OsString]> = words.clone().into();
    let mut command = help::command();
    // It adds --help, which is a flag like others.
    command.build();
    let mut command = with_candidates(command, WAITING, &asked, is_flag);
    let folder = std::env::current_dir().ok();
    if matches!(shell, Shell::Bash) {
        // The completer of the library takes the number of the word from the environment.
        let found = engine::complete(&mut command, words, index, folder.as_deref())?;
        let found = found.iter().map(|one| one.get_value().to_string_lossy());
        let separator = std::env::var(SEPARATOR).unwrap_or_else(|_| "\n".to_owned());
        return Ok(found.collect::<Vec<_>>().join(&separator).into_bytes());
    }
    let mut printed = Vec::new();
    shell
        .completer()
        .write_complete(&mut command, words, folder.as_deref(), &mut printed)?;
    Ok(printed)
}

/// The words and the number of the current one, as if the user had typed a space for each `=` after a flag:
/// bash makes three words of `--queue=NAME`, and completes the last.
fn without_equals(words: &[OsString], index: usize) -> (Vec<OsString>, usize) {
    let is_flag = |word: &OsString| word.len() > 1 && word.as_encoded_bytes().starts_with(b"-");
    let is_left_out =
        |at: usize| at > 0 && at != index && words[at] == "=" && is_flag(&words[at - 1]);
    let before = (0..index.min(words.len())).filter(|at| is_left_out(*at));
    let index = index - before.count();
    let kept = (0..words.len()).filter(|at| !is_left_out(*at));
    (kept.map(|at| words[at].clone()).collect(), index)
}

/// The parser, which asks the store for names of queues and for ids. Flags are candidates if the word is
/// one or nothing else fits.
fn with_candidates(
    command: Command,
    states: &'static [State],
    words: &Arc<[OsString]>,
    is_flag: bool,
) -> Command {
    let states = match command.get_name() {
        "get" => LISTED,
        "dead" => &[State::Dead],
        _ => states,
    };
    command
        .mut_args(|arg| {
            let arg = match wanted(&arg, states) {
                Some(wanted) => arg.add(completer(wanted, Arc::clone(words))),
                None => arg,
            };
            let hides = !is_flag && !arg.is_positional();
            if hides { arg.hide(true) } else { arg }
        })
        .mut_subcommands(|below| with_candidates(below, states, words, is_flag))
}

fn wanted(arg: &Arg, states: &'static [State]) -> Option<Wanted> {
    let value = arg.get_value_parser().type_id();
    if value == TypeId::of::<QueueName>() || value == TypeId::of::<QueueSpec>() {
        return Some(Wanted::Queues);
    }
    let is_id = ["id", "ids"].contains(&arg.get_id().as_str());
    is_id.then_some(Wanted::Ids(states))
}

fn completer(wanted: Wanted, words: Arc<[OsString]>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| {
        let Some(typed) = typed.to_str() else {
            return Vec::new();
        };
        let found = from_store(&words, wanted).unwrap_or_default();
        let fitting = found
            .into_iter()
            .filter(|text| text.starts_with(typed) && is_plain(text));
        fitting.map(CompletionCandidate::new).collect()
    })
}

/// True if no shell reads anything into it: ids of other producers are any text.
fn is_plain(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_allowed)
}

/// What the store has that these words name.
fn from_store(words: &[OsString], wanted: Wanted) -> Option<Vec<String>> {
    let (store, queue) = config::of_unfinished(words)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let found = runtime.block_on(async {
        let store = open::existing(&store).await.ok()??;
        read(&*store, queue.as_ref(), wanted).await.ok()
    });
    runtime.shutdown_background();
    found
}

async fn read(
    store: &dyn Store,
    queue: Option<&QueueName>,
    wanted: Wanted,
) -> StoreResult<Vec<String>> {
    let (states, queue) = match (wanted, queue) {
        (Wanted::Queues, _) => {
            let queues = store.queues().await?;
            return Ok(queues.iter().map(ToString::to_string).collect());
        }
        (Wanted::Ids(_), None) => return Ok(Vec::new()),
        (Wanted::Ids(states), Some(queue)) => (states, queue),
    };
    let mut ids = Vec::new();
    for &state in states {
        let page = Page {
            offset: 0,
            limit: IDS_MAX,
            payload_max: 0,
        };
        let records = store.list(queue, state, page).await?;
        ids.extend(records.iter().map(|record| record.id.as_str().to_owned()));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_after_an_equals_sign_is_a_word_as_after_a_space() {
        let of = |words: &[&str], index| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let (words, index) = without_equals(&words, index);
            let words: Vec<String> = words
                .into_iter()
                .map(|one| one.into_string().unwrap())
                .collect();
            (words.join(" "), index)
        };
        for (words, index, expected) in [
            (
                &["list", "--queue", "=", "or"][..],
                3,
                ("list --queue or", 2),
            ),
            (&["list", "-q", "=", "or", "x"], 4, ("list -q or x", 3)),
            (&["--db", "=", "a", "-q", "=", "o"], 5, ("--db a -q o", 3)),
            (&["--queue", ""], 1, ("--queue ", 1)),
            (&["--queue", "="], 1, ("--queue =", 1)),
            (&["send", "=", "x"], 2, ("send = x", 2)),
            (&["=", "x"], 1, ("= x", 1)),
            (&["list"], 7, ("list", 7)),
        ] {
            let (expected, at) = expected;
            assert_eq!(of(words, index), (expected.to_owned(), at), "{words:?}");
        }
    }

    #[test]
    fn a_shell_waits_no_longer_than_the_limit() {
        let (_sender, receiver) = mpsc::channel::<()>();
        let never = move || receiver.recv().is_ok();
        assert_eq!(within(Duration::from_millis(10), never), None);
        assert_eq!(within(Duration::from_mins(10), || 1), Some(1));
    }

    #[test]
    fn what_a_shell_would_read_something_into_is_no_candidate() {
        for text in ["orders", "a.b_c-d", "0198c0de-7000"] {
            assert!(is_plain(text), "{text}");
        }
        for text in ["", "-x", "a b", "$(date)", "a;b", "a'b", "a\nb", "é"] {
            assert!(!is_plain(text), "{text}");
        }
    }

    #[test]
    fn every_name_of_a_queue_and_every_id_is_completed_from_the_store() {
        fn all(command: &Command, path: &str, found: &mut Vec<String>) {
            for arg in command.get_arguments() {
                let id = arg.get_id().as_str();
                if wanted(arg, WAITING).is_some() {
                    found.push(format!("{path} {id}"));
                }
            }
            for below in command.get_subcommands() {
                all(below, &format!("{path} {}", below.get_name()), found);
            }
        }
        let mut found = Vec::new();
        all(&help::command(), "dqhost", &mut found);
        for expected in [
            "dqhost queue",
            "dqhost list queue",
            "dqhost stats queue",
            "dqhost get id",
            "dqhost cancel ids",
            "dqhost reschedule ids",
            "dqhost dead redrive ids",
            "dqhost dead redrive to",
            "dqhost dead try ids",
            "dqhost purge name",
        ] {
            assert!(
                found.iter().any(|one| one == expected),
                "{expected}: {found:?}"
            );
        }
    }
}
