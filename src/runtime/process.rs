//! What a program finds when it starts: the payload on its standard input, the rest in its environment.

use bytes::Bytes;

use super::call::Call;

/// What a program is started with, beside the variables of the host's flags.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub stdin: Bytes,
    pub env: Vec<(String, String)>,
}

impl Process {
    pub(super) fn of(call: Call) -> Self {
        let number = |n: Option<u64>| n.map(|n| n.to_string());
        let known = [
            ("ID", Some(call.id)),
            ("QUEUE", Some(call.queue)),
            ("ATTEMPT", Some(call.attempt.to_string())),
            ("MAX_ATTEMPTS", Some(call.attempts_max.to_string())),
            ("SENT_AT_MS", number(call.sent_at_ms)),
            ("DUE_AT_MS", number(call.due_at_ms)),
        ];
        let known = known
            .into_iter()
            .filter_map(|(name, value)| Some((format!("DQHOST_{name}"), value?)));
        let mut env: Vec<(String, String)> = known.collect();
        for (name, value) in call.headers {
            let name = variable(&name);
            // Of two headers that make one name the first counts, as the first of two equal headers.
            if env.iter().all(|(other, _)| *other != name) {
                env.push((name, value));
            }
        }
        Self {
            stdin: call.payload.into(),
            env,
        }
    }
}

/// The variable of a header: `content-type` is in `DQHOST_HEADER_CONTENT_TYPE`.
fn variable(header: &str) -> String {
    let fit = |c: char| match c {
        'a'..='z' => c.to_ascii_uppercase(),
        'A'..='Z' | '0'..='9' => c,
        _ => '_',
    };
    let name: String = header.chars().map(fit).collect();
    format!("DQHOST_HEADER_{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_variables_and_hide_nothing_that_is_known() {
        let call = Call {
            id: "an-id".to_owned(),
            queue: "q".to_owned(),
            payload: b"p".to_vec(),
            headers: [("Content-Type", "a"), ("content.type", "b"), ("Ä=", "c")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            attempt: 2,
            attempts_max: 4,
            sent_at_ms: Some(1),
            due_at_ms: None,
        };
        let process = Process::of(call);
        let names = process.env.iter().map(|(name, _)| &**name);
        let wanted = [
            "DQHOST_ID",
            "DQHOST_QUEUE",
            "DQHOST_ATTEMPT",
            "DQHOST_MAX_ATTEMPTS",
            "DQHOST_SENT_AT_MS",
            "DQHOST_HEADER_CONTENT_TYPE",
            "DQHOST_HEADER___",
        ];
        assert_eq!(names.collect::<Vec<_>>(), wanted);
        assert_eq!((&*process.stdin, &*process.env[5].1), (&b"p"[..], "a"));
    }
}
