//! Events in the format in which a delayqueue reports them, for its monitors: a code, unix seconds and how many
//! messages, with spaces between them.

use super::{Event, EventKind};
use crate::clock::Clock;
use crate::message::QueueName;

/// The codes of a delayqueue begin with 1.
const CODES: usize = 7;

/// What each code means; the first is 1.
const MEANINGS: [EventKind; CODES] = [
    EventKind::Sent,
    EventKind::Promoted,
    EventKind::Started,
    EventKind::Acked,
    EventKind::Nacked,
    EventKind::Retried,
    EventKind::DeadLettered,
];

/// The channel on which a delayqueue with this name reports. No prefix and no hash tag changes it.
#[must_use]
pub fn report_channel(queue: &QueueName) -> String {
    format!("dq:{queue}:reportEvents")
}

/// How many messages each code is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportCounts([u64; CODES]);

impl ReportCounts {
    pub(super) fn add(&mut self, event: &Event) {
        let codes: &[usize] = match event.event {
            // What is due at once is never promoted.
            EventKind::Sent if event.due_at_ms.is_none() => &[1, 2],
            EventKind::Sent => &[1],
            EventKind::Promoted => &[2],
            // A delayqueue reports no delivery of what has failed before.
            EventKind::Started if event.attempt == Some(1) => &[3],
            EventKind::Acked => &[4],
            EventKind::Retried => &[5, 6],
            EventKind::Dead => &[5],
            EventKind::Expired => &[6],
            EventKind::DeadLettered => &[7],
            _ => &[],
        };
        for code in codes {
            self.0[code - 1] += event.count.unwrap_or(1);
        }
    }

    /// What is published, by code.
    #[must_use]
    pub fn payloads(&self) -> Vec<String> {
        let seconds = Clock::System.now().ms / 1000;
        let counts = self.0.iter().enumerate();
        let some = counts.filter(|(_, count)| **count > 0);
        some.map(|(at, count)| format!("{} {seconds} {count}", at + 1))
            .collect()
    }
}

/// What a delayqueue has reported; none for anything else.
pub(in crate::store) fn read(payload: &[u8]) -> Option<Event> {
    let text = std::str::from_utf8(payload).ok()?;
    let mut words = text.split(' ');
    let [code, seconds, count] = [words.next()?, words.next()?, words.next()?];
    if words.next().is_some() {
        return None;
    }
    let code: usize = code.parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    Some(Event {
        at_ms: seconds.checked_mul(1000)?,
        count: Some(count.parse().ok().filter(|count| *count > 0)?),
        ..Event::now(*MEANINGS.get(code.checked_sub(1)?)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_publish_on_the_channel_is_survived() {
        for text in [
            "",
            "4",
            "4 1",
            "4 1 1 1",
            "0 1 1",
            "8 1 1",
            "-1 1 1",
            "4 x 1",
            "4 1 -1",
            "4 1 0",
            "4  1",
            "4 18446744073709551615 1",
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read(b"\xff 1 1"), None);
        let read = read(b"4 1795341855 2").unwrap();
        assert_eq!((read.event, read.count), (EventKind::Acked, Some(2)));
        assert_eq!(read.at_ms, 1_795_341_855_000);
    }

    #[test]
    fn what_is_reported_is_read_again() {
        let mut counts = ReportCounts::default();
        let mut first = Event::now(EventKind::Started);
        first.attempt = Some(1);
        let again = Event {
            attempt: Some(2),
            ..first.clone()
        };
        let later = Event {
            due_at_ms: Some(1),
            ..Event::now(EventKind::Sent)
        };
        let others = [EventKind::Retried, EventKind::Dead, EventKind::Paused];
        let others = others.map(Event::now);
        let expired = Event::to_many(EventKind::Expired, 3).unwrap();
        for event in [first, again, later, expired].iter().chain(&others) {
            counts.add(event);
        }
        let read: Vec<_> = counts
            .payloads()
            .iter()
            .map(|payload| read(payload.as_bytes()).unwrap())
            .map(|event| (event.event, event.count.unwrap()))
            .collect();
        assert_eq!(
            read,
            [
                (EventKind::Sent, 1),
                (EventKind::Started, 1),
                (EventKind::Nacked, 2),
                (EventKind::Retried, 4),
            ]
        );
    }
}
