//! Sockets that a service manager has opened: `--listen systemd`.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::http_api::{Answer, request};
use crate::support::{Host, PATIENCE, dqhost, expect, guest, stderr};

fn database(folder: &TempDir) -> String {
    folder.path().join("dqhost.db").display().to_string()
}

/// The program as systemd starts it: stdin is descriptor 3, and `script` may set more.
fn passed(program: &Command, socket: impl Into<OwnedFd>, script: &str) -> Command {
    let script = format!(
        "exec 3<&0 </dev/null\nexport LISTEN_PID=$$ LISTEN_FDS=1\n{script}\nexec \"$0\" \"$@\""
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(program.get_program());
    command.args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::from(socket.into()));
    command
}

/// Asks for `path` on a connection.
fn ask(mut stream: impl std::io::Read + Write, path: &str) -> Answer {
    stream.write_all(&request("GET", path, &[], b"")).unwrap();
    Answer::read(&mut stream).unwrap()
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// True if a program that this process starts does not get the descriptor.
fn closes_on_exec(host: &Host, descriptor: u32) -> bool {
    let pid = host.pid().as_raw_nonzero();
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = u32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
    flags & 0o2_000_000 != 0
}

fn listening(host: &mut Host) -> String {
    let line = host.wait_for("listening", |_| true);
    line["address"].as_str().unwrap().to_owned()
}

#[test]
fn a_tcp_socket_that_was_passed_is_served_and_a_client_may_be_earlier() {
    let folder = TempDir::new().unwrap();
    let handler = guest("echo").display().to_string();
    for args in [&["serve"] as &[&str], &["--handler", &handler]] {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap().to_string();
        // It waits until there is a program.
        let early = connect(&at);
        let program = dqhost(
            Some(&database(&folder)),
            &[args, &["--listen", "systemd"]].concat(),
        );
        let copy = socket.try_clone().unwrap();
        let mut host = Host::start_command(passed(&program, copy, ""));
        assert_eq!(listening(&mut host), format!("http://{at}"));
        assert_eq!(ask(early, "/livez").status, 200);
        assert_eq!(ask(connect(&at), "/livez").status, 200);
        assert!(closes_on_exec(&host, 3));
        host.signal(Signal::TERM);
        assert!(host.end().0.success());
        // The manager still has it: the next program serves who comes now.
        connect(&at);
    }
}

#[test]
fn a_unix_socket_that_was_passed_stays_when_the_program_ends() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("api.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let program = dqhost(
        Some(&database(&folder)),
        &["serve", "--listen", "systemd:api"],
    );
    let names = "export LISTEN_FDNAMES=api";
    let mut host = Host::start_command(passed(&program, socket, names));
    assert_eq!(listening(&mut host), format!("unix:{}", path.display()));
    assert_eq!(
        ask(UnixStream::connect(&path).unwrap(), "/livez").status,
        200
    );
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
    assert!(path.exists());
}

#[test]
fn of_several_sockets_the_one_with_the_name_is_served() {
    let folder = TempDir::new().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap().to_string();
    let args = ["serve", "--listen", "systemd:api"];
    let program = dqhost(Some(&database(&folder)), &args);
    let script = "exec 4<&3 3</dev/null\nexport LISTEN_FDS=2 LISTEN_FDNAMES=other:api";
    let mut host = Host::start_command(passed(&program, socket, script));
    assert_eq!(listening(&mut host), format!("http://{at}"));
    assert_eq!(ask(connect(&at), "/livez").status, 200);
}

const SYSTEMD: &[&str] = &["--listen", "systemd"];

fn local() -> OwnedFd {
    TcpListener::bind("127.0.0.1:0").unwrap().into()
}

/// `dqhost serve` with this socket as descriptor 3 is refused, and says so.
fn is_refused(socket: OwnedFd, script: &str, listen: &[&str], says: &str) {
    let folder = TempDir::new().unwrap();
    let program = dqhost(Some(&database(&folder)), &[&["serve"], listen].concat());
    let output = passed(&program, socket, script).output().unwrap();
    let printed = stderr(&expect(output, 2));
    assert!(printed.contains(says), "{script} {listen:?}: {printed}");
}

#[test]
fn what_is_wrong_with_the_variables_is_told() {
    let named = ["--listen", "systemd:api"];
    let both = "exec 4<&3; export LISTEN_FDS=2 LISTEN_FDNAMES";
    for (script, listen, says) in [
        ("unset LISTEN_FDS", SYSTEMD, "LISTEN_FDS is not set"),
        ("unset LISTEN_PID", SYSTEMD, "LISTEN_PID is \"\""),
        ("LISTEN_PID=1", SYSTEMD, "LISTEN_PID is \"1\", and this is"),
        ("LISTEN_FDS=many", SYSTEMD, "LISTEN_FDS is \"many\""),
        ("LISTEN_FDS=0", SYSTEMD, "LISTEN_FDS is 0"),
        ("exec 3<&-", SYSTEMD, "descriptor 3 is not open"),
        ("LISTEN_FDNAMES=a", &named, "no socket of that name"),
        ("", &[], "nothing would serve them"),
        ("", &["--listen", "127.0.0.1:0"], "give --listen systemd"),
        ("", &["--listen", "systemd:"], "the name of the socket is"),
    ] {
        is_refused(local(), script, listen, says);
    }
    for (names, listen, says) in [
        ("a:b", SYSTEMD, "2 sockets were passed (a, b)"),
        ("a:b", &named, "there is: a, b"),
        ("api:api", &named, "several sockets of that name"),
    ] {
        is_refused(local(), &format!("{both}={names}"), listen, says);
    }
}

#[test]
fn what_is_wrong_with_a_socket_is_told() {
    let folder = TempDir::new().unwrap();
    let open = TcpListener::bind("0.0.0.0:0").unwrap();
    let datagrams = UnixDatagram::unbound().unwrap();
    let no_socket = fs::File::open("/dev/null").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    for (socket, says) in [
        (no_socket.into(), "it is no socket"),
        (datagrams.into(), "it is for datagrams"),
        (connected.into(), "it accepts no connections"),
        (open.into(), "other machines can connect to http://0.0.0.0:"),
    ] {
        is_refused(socket, "", SYSTEMD, says);
    }
    // Another command has no use for one, and leaves it alone.
    let program = dqhost(Some(&database(&folder)), &["send", "a"]);
    expect(passed(&program, local(), "").output().unwrap(), 0);
}

#[test]
fn the_socket_unit_belongs_to_the_service_and_has_a_local_address() {
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        fs::read_to_string(path.join(name)).unwrap()
    };
    let unit = read("dqhost.socket");
    let address = unit
        .lines()
        .find_map(|line| line.strip_prefix("ListenStream="));
    // The service itself would refuse another without tokens.
    assert!(address.unwrap().starts_with("127.0.0.1:"), "{unit}");
    for line in ["[Socket]", "Accept=no", "WantedBy=sockets.target"] {
        assert!(unit.lines().any(|other| other == line), "{line}: {unit}");
    }
    assert!(read("operations.md").contains("dqhost.socket"));
}
