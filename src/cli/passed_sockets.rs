//! Sockets that a service manager such as systemd has opened for this process (`sd_listen_fds`).

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::io::FdFlags;

use super::Usage;
use crate::http_api::OpenSocket;

/// The first descriptor that is passed.
const FIRST: RawFd = 3;

/// What to do if there is no socket.
const START: &str = "start dqhost by a unit that has a socket unit, such as docs/dqhost.socket";

/// The sockets that were passed, with their names.
#[derive(Debug, Default)]
pub(super) struct PassedSockets {
    sockets: Vec<(String, OwnedFd)>,
    /// Why there are none, or fewer than were announced.
    problem: Option<String>,
}

/// What the environment says of sockets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Announced {
    names: Vec<String>,
    problem: Option<String>,
}

impl Announced {
    fn none(problem: String) -> Self {
        Self {
            names: Vec::new(),
            problem: Some(problem),
        }
    }

    fn read(variable: &dyn Fn(&str) -> Option<String>, own: u32) -> Self {
        let Some(count) = variable("LISTEN_FDS") else {
            return Self::none("LISTEN_FDS is not set".to_owned());
        };
        let process = variable("LISTEN_PID").unwrap_or_default();
        if process.parse() != Ok(own) {
            return Self::none(format!(
                "LISTEN_PID is {process:?}, and this is process {own}"
            ));
        }
        let Ok(count) = count.parse::<u16>() else {
            return Self::none(format!("LISTEN_FDS is {count:?}, which is not a number"));
        };
        let names = variable("LISTEN_FDNAMES").unwrap_or_default();
        let names: Vec<&str> = names.split(':').collect();
        let name = |index: usize| names.get(index).copied().unwrap_or_default().to_owned();
        Self {
            names: (0..usize::from(count)).map(name).collect(),
            problem: (count == 0).then(|| "LISTEN_FDS is 0".to_owned()),
        }
    }
}

impl PassedSockets {
    /// Takes over those of the environment. Call it once, before any thread and before anything opens a
    /// file that stays open. Children do not get them.
    pub(super) fn of_environment() -> Self {
        let variable = |name: &str| {
            let value = std::env::var_os(name)?;
            Some(value.to_string_lossy().into_owned())
        };
        let announced = Announced::read(&variable, std::process::id());
        let mut passed = Self {
            sockets: Vec::new(),
            problem: announced.problem,
        };
        for (name, descriptor) in announced.names.into_iter().zip(FIRST..) {
            #[expect(
                unsafe_code,
                reason = "the variables say that it was opened for this process, which uses no other yet"
            )]
            let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
            if let Err(error) = rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC) {
                // It was not open, so it must not be closed.
                let _ = socket.into_raw_fd();
                passed.problem = Some(format!("descriptor {descriptor} is not open: {error}"));
                break;
            }
            passed.sockets.push((name, socket));
        }
        passed
    }

    /// The only one, or the one of this name. The others are closed.
    pub(super) fn take(self, name: Option<&str>) -> Result<OpenSocket, Usage> {
        let count = self.sockets.len();
        let names: Vec<&str> = self.sockets.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(", ");
        let mut fitting = self
            .sockets
            .into_iter()
            .filter(|(other, _)| name.is_none_or(|name| name == other));
        let taken = match (fitting.next(), fitting.next(), name) {
            (Some((_, socket)), None, _) => socket,
            (None, ..) if count == 0 => {
                let problem = self.problem.unwrap_or_default();
                return Err(Usage(format!(
                    "--listen systemd: no socket was passed: {problem}; {START}"
                )));
            }
            (None, _, name) => {
                let name = name.unwrap_or_default();
                return Err(Usage(format!(
                    "--listen systemd:{name}: no socket of that name was passed; there is: {names}"
                )));
            }
            (Some(_), Some(_), Some(name)) => {
                return Err(Usage(format!(
                    "--listen systemd:{name}: several sockets of that name were passed, and one is \
                     used: give each a FileDescriptorName= of its own"
                )));
            }
            (Some(_), Some(_), None) => {
                return Err(Usage(format!(
                    "--listen systemd: {count} sockets were passed ({names}), and one is used: name it \
                     by systemd:NAME"
                )));
            }
        };
        OpenSocket::new(taken).map_err(|error| {
            Usage(format!(
                "--listen systemd: the socket that was passed cannot be used: {error}"
            ))
        })
    }

    /// Refuses sockets that nobody would serve: clients would wait for ever.
    pub(super) fn refuse(&self) -> Result<(), Usage> {
        match self.sockets.len() {
            0 => Ok(()),
            count => Err(Usage(format!(
                "the service manager has passed {count} sockets, and nothing would serve them: give \
                 --listen systemd, or disable the socket unit"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(of: [Option<&str>; 3]) -> Announced {
        let variable = |name: &str| {
            let index = ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"]
                .iter()
                .position(|other| *other == name);
            of[index.unwrap()].map(str::to_owned)
        };
        Announced::read(&variable, 7)
    }

    #[test]
    fn sockets_are_for_the_process_that_is_named_and_missing_names_are_empty() {
        assert_eq!(read([Some("1"), Some("7"), Some("api")]).names, ["api"]);
        assert_eq!(read([Some("2"), Some("7"), Some("a")]).names, ["a", ""]);
        assert_eq!(read([Some("2"), Some("7"), None]).names, ["", ""]);
        for (of, says) in [
            ([None, None, None], "LISTEN_FDS is not set"),
            ([Some("1"), None, None], "LISTEN_PID is \"\""),
            ([Some("1"), Some("8"), None], "LISTEN_PID is \"8\""),
            ([Some("x"), Some("7"), None], "not a number"),
            ([Some("-1"), Some("7"), None], "not a number"),
            ([Some("0"), Some("7"), None], "LISTEN_FDS is 0"),
        ] {
            let announced = read(of);
            assert_eq!(announced.names, Vec::<String>::new(), "{of:?}");
            let problem = announced.problem.unwrap();
            assert!(problem.contains(says), "{of:?}: {problem}");
        }
    }
}
