//! `dqhost topic`, and where `dqhost send` sends to.

use std::io::{self, Write};

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::json;

use super::open::{self, Missing};
use super::{Exit, StoreArgs, log, print};
use crate::message::{NewMessage, OnRepeat, QueueName, Sent, TopicName};
use crate::store::Store;

#[derive(Debug, Subcommand)]
pub(super) enum TopicCommand {
    /// Let a queue get a copy of what is sent to a topic
    Subscribe(Box<SubscriptionArgs>),
    /// Let a queue get no more copies
    Unsubscribe(Box<SubscriptionArgs>),
    /// List topics with their queues
    List(Box<ListArgs>),
}

#[derive(Debug, Args)]
pub(super) struct SubscriptionArgs {
    /// Name of the topic
    topic: TopicName,
    /// Name of the queue
    queue: QueueName,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Show this topic only
    topic: Option<TopicName>,
    /// Print a JSON object for each subscription
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn run(command: TopicCommand) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    match command {
        TopicCommand::Subscribe(args) => subscribe(&args).await,
        TopicCommand::Unsubscribe(args) => unsubscribe(&args).await,
        TopicCommand::List(args) => list(&args).await,
    }
}

async fn subscribe(args: &SubscriptionArgs) -> anyhow::Result<Exit> {
    let (topic, queue) = (&args.topic, &args.queue);
    let store = open::store(&args.store, Missing::Make).await?;
    if store.subscribe_queue(topic, queue).await? {
        writeln!(print::stdout(), "{queue} gets what is sent to {topic}")?;
    } else {
        tell!("{queue} has subscribed to {topic} before");
    }
    Ok(Exit::Done)
}

async fn unsubscribe(args: &SubscriptionArgs) -> anyhow::Result<Exit> {
    let (topic, queue) = (&args.topic, &args.queue);
    let store = open::store(&args.store, Missing::Refuse).await?;
    if !store.unsubscribe_queue(topic, queue).await? {
        tell!("{queue} has not subscribed to {topic}");
        return Ok(Exit::Failed);
    }
    writeln!(
        print::stdout(),
        "{queue} gets nothing more that is sent to {topic}"
    )?;
    Ok(Exit::Done)
}

async fn list(args: &ListArgs) -> anyhow::Result<Exit> {
    let store = open::store(&args.store, Missing::Refuse).await?;
    let mut out = print::stdout();
    for (topic, queue) in store.subscriptions().await? {
        if args.topic.as_ref().is_some_and(|wanted| *wanted != topic) {
            continue;
        }
        if args.json {
            let line = json!({"topic": topic, "queue": queue});
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{topic}  {queue}")?;
        }
    }
    Ok(Exit::Done)
}

/// Where messages go.
pub(super) enum Target {
    Queue(QueueName),
    Topic(TopicName),
}

/// What became of a message, or of one copy of it.
pub(super) struct Answer {
    pub sent: Sent,
    /// That of a copy.
    pub queue: Option<QueueName>,
    /// It is no further copy.
    pub is_first: bool,
}

impl Target {
    /// The message, unless this takes none like it.
    pub(super) fn check(&self, message: NewMessage) -> Result<NewMessage, String> {
        match self {
            Self::Topic(_) if message.on_repeat != OnRepeat::Ignore => {
                Err("a message to a topic cannot replace or extend others".to_owned())
            }
            _ => Ok(message),
        }
    }

    /// Sends messages, in order. What became of all copies of one stands together.
    pub(super) async fn send(
        &self,
        store: &dyn Store,
        messages: &[NewMessage],
    ) -> anyhow::Result<Vec<Answer>> {
        let topic = match self {
            Self::Queue(queue) => {
                let sent = store.send(queue, messages).await?.into_iter();
                let answer = |sent| Answer {
                    sent,
                    queue: None,
                    is_first: true,
                };
                return Ok(sent.map(answer).collect());
            }
            Self::Topic(topic) => topic,
        };
        let copies = store.send_to_topic(topic, messages).await?;
        if copies.is_empty() {
            bail!(
                "nothing is sent, since no queue has subscribed to topic {topic}: see dqhost topic subscribe"
            );
        }
        let mut answers = Vec::with_capacity(messages.len() * copies.len());
        for number in 0..messages.len() {
            for (at, (queue, sent)) in copies.iter().enumerate() {
                answers.extend(sent.get(number).map(|sent| Answer {
                    sent: sent.clone(),
                    queue: Some(queue.clone()),
                    is_first: at == 0,
                }));
            }
        }
        Ok(answers)
    }
}

/// Prints what became of messages.
pub(super) fn print_answers(answers: &[Answer], as_json: bool) -> io::Result<()> {
    answers.iter().try_for_each(|answer| {
        print::sent(
            &answer.sent,
            answer.queue.as_ref(),
            answer.is_first,
            as_json,
        )
    })
}
