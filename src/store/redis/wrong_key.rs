//! Which key holds what it must not. Redis says that one does and leaves open which.

use redis::{Arg, Cmd, RedisError, RedisResult, Value};

use super::keys::Keys;
use super::transport::connection::Connection;
use crate::text::cut;

/// What Redis calls this error.
const CODE: &str = "WRONGTYPE";

impl Connection {
    /// Makes errors about a key of the wrong type say which it is, what is there and what mends it. An
    /// error stays as it is when that cannot be told: the key has been mended since, or this user may
    /// not ask.
    pub(super) async fn name_wrong_keys(
        &self,
        commands: &[&Cmd],
        answers: &mut [RedisResult<Value>],
    ) {
        for (command, answer) in commands.iter().zip(answers) {
            if !answer.as_ref().is_err_and(is_wrong_type) {
                continue;
            }
            if let Some(wrong) = self.wrong_key(command).await {
                *answer = Err(redis::make_extension_error(CODE.to_owned(), Some(wrong)));
            }
        }
    }

    async fn wrong_key(&self, command: &Cmd) -> Option<String> {
        let keys: Vec<(String, &str)> = keys(command)
            .into_iter()
            .filter_map(|key| Keys::kind(&key).map(|kind| (key, kind)))
            .collect();
        let asked: Vec<Cmd> = keys.iter().map(|(key, _)| kind_of(key)).collect();
        let found = self
            .exchange(&asked.iter().collect::<Vec<_>>(), None)
            .await
            .ok()?;
        keys.iter().zip(found).find_map(|((key, wanted), found)| {
            let Value::SimpleString(found) = found.ok()? else {
                return None;
            };
            let is_wrong = found != *wanted && found != "none";
            is_wrong.then(|| {
                let key = cut(key, 200);
                format!(
                    "the key {key} is a {found} and must be a {wanted}: another program has \
                     written it; rename it or delete it"
                )
            })
        })
    }
}

pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some(CODE)
}

fn kind_of(key: &str) -> Cmd {
    let mut command = redis::cmd("TYPE");
    command.arg(key);
    command
}

/// The keys of a command: those of a script, else the first argument.
fn keys(command: &Cmd) -> Vec<String> {
    let mut words = command.args_iter().filter_map(|arg| match arg {
        Arg::Simple(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    });
    let is_script = words.next().is_some_and(|name| name.starts_with("EVALSHA"));
    if !is_script {
        return words.next().into_iter().collect();
    }
    let number = words.nth(1).and_then(|number| number.parse().ok());
    words.take(number.unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_command_are_found() {
        let mut script = redis::cmd("EVALSHA");
        script
            .arg("abc")
            .arg(2)
            .arg("{dp:q}:ready")
            .arg("b")
            .arg("not one");
        assert_eq!(keys(&script), ["{dp:q}:ready", "b"]);
        let mut plain = redis::cmd("HGETALL");
        plain.arg("dp:q:stats");
        assert_eq!(keys(&plain), ["dp:q:stats"]);
        assert!(keys(&redis::cmd("TIME")).is_empty());
    }

    #[test]
    fn each_key_has_a_kind_whatever_the_queue_and_the_id() {
        for (key, kind) in [
            ("{dp:q}:ready", Some("list")),
            ("dp:q:ready", Some("list")),
            ("{dp:a.b}:retry:cnt", Some("hash")),
            ("{dp:q}:msg:a:ready", Some("string")),
            ("{dp:q}:msg:}:ready", Some("string")),
            ("dp:q:msg:a:ready", Some("string")),
            ("{shop:q}:retry", Some("list")),
            ("a:b:q:retry:cnt", Some("hash")),
            ("{shop:q}:hosts:info", Some("hash")),
            ("dqhost:queues", Some("set")),
            ("dqhost:queues:shop", Some("set")),
            ("{dp:q}:paused", None),
            ("{dp:q", None),
            ("something else", None),
        ] {
            assert_eq!(Keys::kind(key), kind, "{key}");
        }
    }
}
