//! What is typed at the dashboard's prompt, read by the parser of the command line: the same
//! commands, words and flags, without the store.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use super::dead::How;
use super::payload;
use super::send::{MessageArgs, Timing};
use super::which::{Meant, Named, WhichDead};
use crate::control::{Bulk, Command, Filter, Line};
use crate::dashboard::{self, CommandParser};
use crate::format::time;
use crate::message::{MessageId, PAYLOAD_MAX_DEFAULT, QueueName};

mod line;

use line::{with_delay, words};

#[derive(Debug, Parser)]
#[command(name = "", no_binary_name = true, disable_help_flag = true)]
#[command(disable_help_subcommand = true, infer_subcommands = true)]
struct Typed {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Send {
        #[command(flatten)]
        message: MessageArgs,
        #[command(flatten)]
        queue: OtherQueue,
    },
    Get {
        id: String,
    },
    Cancel {
        #[command(flatten)]
        named: Named,
        /// Those that are in flight, too
        #[arg(long)]
        kill: bool,
        #[command(flatten)]
        queue: OtherQueue,
    },
    Reschedule {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        timing: Timing,
        #[command(flatten)]
        queue: OtherQueue,
    },
    Redrive(RedriveArgs),
    Delete(DeleteArgs),
    Try(TryArgs),
    #[command(subcommand)]
    Dead(Dead),
    Pause {
        #[command(flatten)]
        queue: OtherQueue,
        /// Make the queue if it is not there
        #[arg(long)]
        create: bool,
    },
    Resume(OtherQueue),
    /// Ends the long task that is under way; with an id the handler of that message
    Stop {
        id: Option<String>,
    },
    Filter {
        words: Vec<String>,
    },
    Queue {
        name: QueueName,
    },
    Help,
    #[command(aliases = ["exit", "q"])]
    Quit,
}

#[derive(Debug, Subcommand)]
enum Dead {
    Redrive(RedriveArgs),
    Delete(DeleteArgs),
    Try(TryArgs),
}

#[derive(Debug, clap::Args)]
struct RedriveArgs {
    #[command(flatten)]
    which: WhichDead,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    queue: OtherQueue,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    which: WhichDead,
    #[command(flatten)]
    queue: OtherQueue,
}

#[derive(Debug, clap::Args)]
struct TryArgs {
    #[command(flatten)]
    which: WhichDead,
    /// The handler that is asked
    #[arg(long, value_name = "FILE")]
    handler: PathBuf,
    #[command(flatten)]
    queue: OtherQueue,
}

#[derive(Debug, clap::Args)]
struct OtherQueue {
    /// Another queue than the one on the screen
    #[arg(long, short, value_name = "NAME")]
    queue: Option<QueueName>,
}

impl OtherQueue {
    fn or(self, queue: &QueueName) -> QueueName {
        self.queue.unwrap_or_else(|| queue.clone())
    }
}

/// The parser of the prompt.
pub(super) struct Prompt;

impl CommandParser for Prompt {
    fn parse(&self, line: &str, queue: &QueueName, chosen: &[MessageId]) -> Result<Line, String> {
        let line = line.trim_start();
        let mut words = with_delay(words(line.strip_prefix(':').unwrap_or(line))?);
        let typed = Typed::try_parse_from(&words).or_else(|error| {
            if !takes_chosen(&words, &error) || chosen.is_empty() {
                return Err(error);
            }
            words.push("--".to_owned());
            words.extend(chosen.iter().map(|id| id.as_str().to_owned()));
            Typed::try_parse_from(&words)
        });
        meant(typed.map_err(|error| said_by(&error))?.what, queue)
    }

    fn complete(&self, before: &str) -> Vec<String> {
        let word = before
            .rsplit(char::is_whitespace)
            .next()
            .unwrap_or_default();
        let mut known: Vec<&str> = before[..before.len() - word.len()]
            .split_whitespace()
            .collect();
        if let Some(path) = word.strip_prefix('@') {
            return files(path)
                .into_iter()
                .map(|path| format!("@{path}"))
                .collect();
        }
        if known.last() == Some(&"--handler") {
            return files(word);
        }
        let mut command = &Typed::command();
        while let (Some(name), true) = (known.first(), command.has_subcommands()) {
            match command.find_subcommand(name) {
                Some(found) => command = found,
                None => return Vec::new(),
            }
            known.remove(0);
        }
        let mut words: Vec<String> = if word.starts_with('-') {
            command
                .get_arguments()
                .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
                .collect()
        } else {
            command
                .get_subcommands()
                .map(|command| command.get_name().to_owned())
                .collect()
        };
        words.retain(|known| known.starts_with(word));
        words.sort();
        words
    }

    fn paths(&self, begin: &str) -> Vec<String> {
        files(begin)
    }

    fn names(&self, before: &str) -> Option<dashboard::Named> {
        let mut words: Vec<&str> = before.split(char::is_whitespace).collect();
        let word = words.pop()?;
        words.retain(|word| !word.is_empty());
        let (command, others) = words.split_first()?;
        match (*command, others.last().copied()) {
            (_, Some("--queue" | "-q")) | ("queue", None) => Some(dashboard::Named::Queue),
            _ if word.starts_with('-') => None,
            ("get" | "cancel" | "reschedule" | "redrive" | "delete" | "try" | "stop", _)
            | ("dead", Some(_)) => Some(dashboard::Named::Message),
            _ => None,
        }
    }
}

/// True when a command is about messages and only lacks their ids.
fn takes_chosen(words: &[String], error: &clap::Error) -> bool {
    let commands = ["reschedule", "cancel", "redrive", "delete", "try", "get"];
    let is_of_messages = words
        .first()
        .is_some_and(|name| commands.contains(&name.as_str()));
    is_of_messages && error.kind() == ErrorKind::MissingRequiredArgument
}

fn meant(what: What, queue: &QueueName) -> Result<Line, String> {
    Ok(Line::Do(match what {
        What::Send {
            message,
            queue: other,
        } => {
            message.check_words()?;
            let text = message
                .payload
                .as_deref()
                .ok_or("give the payload: text, or @FILE for the bytes of a file")?;
            let bytes = payload::read_at_prompt(text, message.max_payload)?;
            Command::Send(other.or(queue), Box::new(message.message(bytes)?))
        }
        What::Get { id } => return Ok(Line::Open(id.into())),
        What::Cancel {
            named,
            kill,
            queue: other,
        } => cancel(other.or(queue), named.ids(), kill),
        What::Reschedule {
            named,
            timing,
            queue: other,
        } => {
            let ids = named.ids();
            // Taken for an id, it would make the others due at once.
            let is_delay = |id: &MessageId| {
                id.as_str()
                    .strip_prefix('+')
                    .is_some_and(|rest| time::duration(rest).is_ok())
            };
            if let Some(delay) = ids.iter().find(|id| is_delay(id)) {
                return Err(format!(
                    "{} stands at the end, or give --in",
                    delay.as_str()
                ));
            }
            Command::Reschedule(other.or(queue), ids, timing.due())
        }
        What::Redrive(args) | What::Dead(Dead::Redrive(args)) => redrive(args, queue)?,
        What::Delete(args) | What::Dead(Dead::Delete(args)) => {
            bulk(args.queue.or(queue), &args.which, Bulk::Delete)
        }
        What::Try(args) | What::Dead(Dead::Try(args)) => {
            let (queue, letters) = (args.queue.or(queue), args.which.meant().into());
            return Ok(Line::Try(queue, letters, args.handler));
        }
        What::Pause {
            queue: other,
            create,
        } => Command::Pause {
            queue: other.or(queue),
            paused: true,
            create,
        },
        What::Resume(other) => Command::Pause {
            queue: other.or(queue),
            paused: false,
            create: false,
        },
        What::Stop { id: None } => Command::StopTask,
        What::Stop { id: Some(id) } => Command::StopHandler(queue.clone(), id.into()),
        What::Filter { words } => {
            let filter = Filter::parse(&words.join(" ")).map_err(|error| error.to_string())?;
            return Ok(Line::Filter(filter));
        }
        What::Queue { name } => return Ok(Line::Queue(name)),
        What::Help => return Ok(Line::Help),
        What::Quit => return Ok(Line::Quit),
    }))
}

fn cancel(queue: QueueName, ids: Vec<MessageId>, kill: bool) -> Command {
    if kill {
        Command::Kill(queue, ids)
    } else {
        Command::Cancel(queue, ids)
    }
}

/// For all of a queue, or those that match, the dashboard has to find out first which those are.
fn bulk(queue: QueueName, which: &WhichDead, bulk: Bulk) -> Command {
    match which.meant() {
        Meant::Named(ids) => Command::Bulk(queue, ids, bulk),
        Meant::Matching(filter) => Command::Choose(queue, filter, bulk),
    }
}

fn redrive(args: RedriveArgs, queue: &QueueName) -> Result<Command, String> {
    let queue = args.queue.or(queue);
    let cap = args.how.cap();
    let How {
        retries,
        rate,
        payload,
        ..
    } = args.how;
    let Some(text) = payload else {
        let how = Bulk::Redrive { retries, rate, cap };
        return Ok(bulk(queue, &args.which, how));
    };
    let bytes = payload::read_at_prompt(&text, PAYLOAD_MAX_DEFAULT)?;
    payload::check(&bytes, &Vec::new(), PAYLOAD_MAX_DEFAULT)?;
    match args.which.meant() {
        Meant::Named(ids) if ids.len() == 1 => Ok(Command::RedriveEdited {
            queue,
            id: ids[0].clone(),
            payload: bytes,
            retries,
        }),
        _ => Err("--payload is for one dead letter: name one".to_owned()),
    }
}

/// What the parser says of a mistake, without what only a shell has a use for.
fn said_by(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

/// Files whose paths begin so.
fn files(path: &str) -> Vec<String> {
    let (folder, start) = path
        .rsplit_once('/')
        .map_or(("", path), |(folder, start)| (folder, start));
    let place = match folder {
        "" if path.starts_with('/') => "/",
        "" => ".",
        folder => folder,
    };
    let Ok(entries) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let prefix = &path[..path.len() - start.len()];
    let mut found: Vec<String> = entries
        .filter_map(Result::ok)
        .take(1000)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let end = if entry.file_type().ok()?.is_dir() {
                "/"
            } else {
                ""
            };
            name.starts_with(start)
                .then(|| format!("{prefix}{name}{end}"))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::DEFAULT_QUEUE;
    use crate::control::Letters;
    use crate::control::RedriveCap;
    use crate::message::Due;
    use proptest::prelude::*;
    use std::time::Duration;

    fn parse(line: &str) -> Result<Line, String> {
        Prompt.parse(line, &DEFAULT_QUEUE.parse().unwrap(), &[])
    }

    #[test]
    fn a_command_without_ids_is_about_the_chosen_messages() {
        let queue: QueueName = DEFAULT_QUEUE.parse().unwrap();
        let chosen: Vec<MessageId> = vec!["-a".into(), "b".into()];
        let parse = |line| Prompt.parse(line, &queue, &chosen);
        let moved = |ids| {
            let due = Due::In(Duration::from_secs(5));
            Ok(Line::Do(Command::Reschedule(queue.clone(), ids, due)))
        };
        assert_eq!(parse("reschedule --in 5s"), moved(chosen.clone()));
        assert_eq!(parse("reschedule c --in 5s"), moved(vec!["c".into()]));
        let delete = Command::Bulk(queue.clone(), chosen.clone(), Bulk::Delete);
        assert_eq!(parse("delete"), Ok(Line::Do(delete)));
        assert!(parse("queue").unwrap_err().contains("required"));
        assert!(parse("reschedule --in 5").unwrap_err().contains("duration"));
    }

    #[test]
    fn words_are_quoted_as_in_a_shell_and_json_stands_for_itself() {
        for (line, expected) in [
            ("send hello --in 5s", vec!["send", "hello", "--in", "5s"]),
            (
                r#"send {"a": "b c"} --in 5s"#,
                vec!["send", r#"{"a": "b c"}"#, "--in", "5s"],
            ),
            (
                r#"send '{"a":1}' x\ y "it's \"so\" \n""#,
                vec!["send", r#"{"a":1}"#, "x y", r#"it's "so" \n"#],
            ),
            ("send [1, 2]\n", vec!["send", "[1, 2]"]),
            ("send {not json}", vec!["send", "{not", "json}"]),
            ("send {\n  \"a\": 1\n}", vec!["send", "{\n  \"a\": 1\n}"]),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
        assert!(words("send 'open").unwrap_err().contains("not closed"));
    }

    #[test]
    fn what_goes_further_than_usual_has_to_be_said() {
        let queue: QueueName = "orders".parse().unwrap();
        let ids = || vec!["a".into()];
        let redrive = |cap| Bulk::Redrive {
            retries: None,
            rate: None,
            cap,
        };
        for (line, command) in [
            ("cancel a", Command::Cancel(queue.clone(), ids())),
            ("cancel a --kill", Command::Kill(queue.clone(), ids())),
            (
                "redrive a --max-redrives 3",
                Command::Bulk(queue.clone(), ids(), redrive(RedriveCap::At(3))),
            ),
            (
                "redrive a --max-redrives 3 --force",
                Command::Bulk(queue.clone(), ids(), redrive(RedriveCap::None)),
            ),
        ] {
            assert_eq!(Prompt.parse(line, &queue, &[]), Ok(Line::Do(command)));
        }
    }

    #[test]
    fn a_line_means_what_the_command_line_means() {
        let Line::Do(Command::Send(queue, message)) =
            parse(r#"send {"a": 1} --in 1500ms --retries 5 --header k=v --queue other"#).unwrap()
        else {
            panic!("it is a send");
        };
        assert_eq!(queue.as_str(), "other");
        assert_eq!(message.payload, br#"{"a": 1}"#);
        assert_eq!(message.due, Due::In(Duration::from_millis(1500)));
        assert_eq!((message.retries, message.headers.len()), (5, 1));
        let queue: QueueName = "default".parse().unwrap();
        let pause = |paused, create| Command::Pause {
            queue: queue.clone(),
            paused,
            create,
        };
        for (line, command) in [
            (":pause", pause(true, false)),
            ("pause --create", pause(true, true)),
            ("resume -q default", pause(false, false)),
            (
                "cancel a b",
                Command::Cancel(queue.clone(), vec!["a".into(), "b".into()]),
            ),
            ("stop", Command::StopTask),
            (
                "dead delete x",
                Command::Bulk(queue.clone(), vec!["x".into()], Bulk::Delete),
            ),
            (
                "redrive all --rate 50",
                Command::Choose(
                    queue.clone(),
                    Filter::default(),
                    Bulk::Redrive {
                        retries: None,
                        rate: Some(50),
                        cap: RedriveCap::OfQueue,
                    },
                ),
            ),
            (
                "delete --match 'reason:timeout !eu'",
                Command::Choose(
                    queue.clone(),
                    Filter::parse("reason:timeout !eu").unwrap(),
                    Bulk::Delete,
                ),
            ),
            (
                "redrive x --payload y",
                Command::RedriveEdited {
                    queue: queue.clone(),
                    id: "x".into(),
                    payload: b"y".to_vec(),
                    retries: None,
                },
            ),
        ] {
            assert_eq!(parse(line), Ok(Line::Do(command)), "{line}");
        }
        assert_eq!(
            (parse("q"), parse("quit")),
            (Ok(Line::Quit), Ok(Line::Quit))
        );
        assert_eq!(parse("get abc"), Ok(Line::Open("abc".into())));
    }

    #[test]
    fn a_plus_at_the_end_is_a_delay() {
        let queue: QueueName = DEFAULT_QUEUE.parse().unwrap();
        for (line, payload, due) in [
            ("send x +5s", "x", Due::In(Duration::from_secs(5))),
            (
                r#"send {"a": 1} +1h"#,
                r#"{"a": 1}"#,
                Due::In(Duration::from_hours(1)),
            ),
            // A payload, and the value of a flag.
            ("send +5s", "+5s", Due::NOW),
            ("send x --header a=b", "x", Due::NOW),
        ] {
            let Ok(Line::Do(Command::Send(_, message))) = parse(line) else {
                panic!("{line} is a send");
            };
            assert_eq!(message.payload, payload.as_bytes(), "{line}");
            assert_eq!(message.due, due, "{line}");
        }
        let Ok(Line::Do(Command::Send(_, message))) = parse("send x --idempotency-key +7s") else {
            panic!("it is a send");
        };
        assert_eq!(message.due, Due::NOW);
        let due = Due::In(Duration::from_secs(90));
        let moved = Command::Reschedule(queue, vec!["a".into()], due);
        assert_eq!(parse("reschedule a +90s"), Ok(Line::Do(moved.clone())));
        assert_eq!(parse("resc a +90s"), Ok(Line::Do(moved)));
        for line in [
            "reschedule a +90s --queue q",
            "reschedule +90s a",
            "reschedule -- a +90s",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("send x +5").unwrap_err().contains("not a duration"));
    }

    #[test]
    fn a_handler_is_tried_on_those_that_are_named_or_match() {
        let queue: QueueName = DEFAULT_QUEUE.parse().unwrap();
        let tried = |letters| Line::Try(queue.clone(), letters, "fix.wasm".into());
        for (line, letters) in [
            ("try all", Letters::Matching(Filter::default())),
            ("dead try x", Letters::Named(vec!["x".into()])),
        ] {
            let line = format!("{line} --handler fix.wasm");
            assert_eq!(parse(&line), Ok(tried(letters)), "{line}");
        }
    }

    #[test]
    fn a_mistake_is_said_in_one_line() {
        for (line, says) in [
            ("send", "give the payload"),
            ("send -", "no stdin"),
            ("send not an order", "quote it, as in send 'not an order'"),
            ("send x --retries many", "--retries must be a whole number"),
            ("send @/nowhere/at/all", "cannot read"),
            ("send @/dev/null", "not a file"),
            ("send x --in 5", "not a duration"),
            ("send x --in 5s --at 14:00", "cannot be used with"),
            ("send x --header y", "KEY=VALUE"),
            ("frobnicate", "unrecognized"),
            ("redrive", "required"),
            ("try x", "--handler"),
            ("redrive a b --payload x", "name one"),
            ("filter reason:", "nothing to look for"),
            ("redrive --match reason:", "nothing to look for"),
            ("redrive --match ''", "it is empty"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(
                error.contains(says) && !error.contains('\n'),
                "{line}: {error}"
            );
        }
    }

    #[test]
    fn words_flags_and_files_are_completed() {
        assert_eq!(Prompt.complete("re"), ["redrive", "reschedule", "resume"]);
        assert_eq!(Prompt.complete("send x --ret"), ["--retries"]);
        assert_eq!(Prompt.complete("dead red"), ["redrive"]);
        let names = |before| Prompt.names(before);
        assert_eq!(names("queue or"), Some(dashboard::Named::Queue));
        assert_eq!(names("send x --queue "), Some(dashboard::Named::Queue));
        assert_eq!(names("cancel 019a"), Some(dashboard::Named::Message));
        assert_eq!(names("dead redrive a "), Some(dashboard::Named::Message));
        assert_eq!(
            (names("send x"), names("can"), names("cancel --q")),
            (None, None, None)
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("payload.json"), "{}").unwrap();
        let start = format!("@{}/pay", folder.path().display());
        assert_eq!(
            Prompt.complete(&format!("send {start}")),
            [format!("{start}load.json")]
        );
        let start = &start[1..];
        assert_eq!(
            Prompt.complete(&format!("try all --handler {start}")),
            [format!("{start}load.json")]
        );
        assert_eq!(Prompt.paths(start), [format!("{start}load.json")]);
    }

    #[test]
    fn the_arguments_are_consistent() {
        Typed::command().debug_assert();
    }

    proptest! {
        #[test]
        fn no_line_is_a_panic(
            line in "(:?(send|get|cancel|reschedule|redrive|delete|dead|pause|filter|queue|stop) ?)?(['\"\\\\{\\[\\]}:, a1é-]|--in|--at|--rate|@|\n){0,12}|.*",
        ) {
            let queue = DEFAULT_QUEUE.parse().unwrap();
            let _ = Prompt.parse(&line, &queue, &["x".into()]);
            // Files are not looked for: there are too many of them for a test.
            if !line.contains('@') {
                for candidate in Prompt.complete(&line) {
                    prop_assert!(candidate.is_ascii());
                }
            }
        }

        /// Each word in quotes is the word again.
        #[test]
        fn what_is_quoted_is_kept(text in "[^']{0,20}") {
            prop_assert_eq!(words(&format!("send '{text}' x")).unwrap(), ["send", &text, "x"]);
        }
    }
}
