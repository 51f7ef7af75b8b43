//! Where requests come from: a TCP port, or a Unix socket, which this process opens or gets opened.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::text::printable;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddr {
    /// A port of one of this machine's addresses.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl ListenAddr {
    /// True if only processes on this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl FromStr for ListenAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str = "use IP:PORT, localhost:PORT or unix:PATH";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.as_os_str().is_empty() {
                Err(format!("the path of the socket is missing: {FORMS}"))
            } else {
                Ok(Self::Unix(path))
            };
        }
        if let Some(port) = text.strip_prefix("localhost:")
            && let Ok(port) = port.parse()
        {
            let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
            return Ok(Self::Tcp(SocketAddr::new(ip, port)));
        }
        let address = text
            .parse()
            .map_err(|_| format!("not an address to listen on: {FORMS}"))?;
        Ok(Self::Tcp(address))
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => {
                write!(f, "unix:{}", printable(&path.display().to_string()))
            }
        }
    }
}

/// Who has connected, as far as the connection tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    Tcp(IpAddr),
    Unix,
}

/// A listener in use. Its socket in the file system is removed when it is dropped.
pub struct Listener {
    socket: Socket,
    address: ListenAddr,
    _file: Option<SocketFile>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection.
pub(super) enum Accepted {
    Tcp(TcpStream, IpAddr),
    Unix(UnixStream),
}

/// The socket that this process made.
struct SocketFile {
    path: PathBuf,
    /// Its device and its number: another process may have put its own there since.
    made: Option<(u64, u64)>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.made.is_some() && identity(&self.path) == self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// A socket that listens already.
#[derive(Debug)]
pub struct OpenSocket {
    socket: OpenStd,
    address: ListenAddr,
}

#[derive(Debug)]
enum OpenStd {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl OpenSocket {
    /// Takes over a socket that another process has opened.
    ///
    /// # Errors
    ///
    /// It is no socket, accepts no connections, or is of another kind than TCP and Unix.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let kind = sockopt::socket_type(&socket).map_err(|error| match error {
            Errno::NOTSOCK => io::Error::other("it is no socket"),
            error => error.into(),
        })?;
        if kind != SocketType::STREAM {
            return Err(io::Error::other(
                "it is for datagrams, and HTTP needs ListenStream=",
            ));
        }
        let tcp = std::net::TcpListener::from(socket);
        let (socket, address) = if let Ok(address) = tcp.local_addr() {
            (OpenStd::Tcp(tcp), ListenAddr::Tcp(address))
        } else {
            let unix = std::os::unix::net::UnixListener::from(OwnedFd::from(tcp));
            let address = ListenAddr::Unix(path_of(&unix.local_addr()?));
            (OpenStd::Unix(unix), address)
        };
        let listens = match &socket {
            OpenStd::Tcp(tcp) => is_listening(tcp),
            OpenStd::Unix(unix) => is_listening(unix),
        };
        if !listens {
            return Err(io::Error::other(
                "it accepts no connections: the unit needs Accept=no",
            ));
        }
        Ok(Self { socket, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &ListenAddr {
        &self.address
    }
}

#[cfg(not(target_vendor = "apple"))]
fn is_listening(socket: impl AsFd) -> bool {
    sockopt::socket_acceptconn(socket).unwrap_or(false)
}

/// The system does not tell.
#[cfg(target_vendor = "apple")]
fn is_listening(_socket: impl AsFd) -> bool {
    true
}

/// The path, or with @ the name in the abstract namespace.
fn path_of(address: &UnixAddr) -> PathBuf {
    #[cfg(target_os = "linux")]
    {
        use std::os::linux::net::SocketAddrExt;
        if let Some(name) = address.as_abstract_name() {
            return PathBuf::from(format!("@{}", String::from_utf8_lossy(name)));
        }
    }
    address.as_pathname().unwrap_or(Path::new("")).to_owned()
}

impl Listener {
    /// Listens on a socket that is open. Call it where a tokio runtime runs.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn on(open: OpenSocket) -> io::Result<Self> {
        let socket = match open.socket {
            OpenStd::Tcp(tcp) => {
                tcp.set_nonblocking(true)?;
                Socket::Tcp(TcpListener::from_std(tcp)?)
            }
            OpenStd::Unix(unix) => {
                unix.set_nonblocking(true)?;
                Socket::Unix(UnixListener::from_std(unix)?)
            }
        };
        Ok(Self {
            socket,
            address: open.address,
            _file: None,
        })
    }

    /// Listens. Call it where a tokio runtime runs.
    ///
    /// # Errors
    ///
    /// The system's, or in words what is at the path of a socket.
    pub fn bind(address: &ListenAddr) -> io::Result<Self> {
        match address {
            ListenAddr::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let listener = TcpListener::from_std(listener)?;
                let address = ListenAddr::Tcp(listener.local_addr()?);
                Ok(Self {
                    socket: Socket::Tcp(listener),
                    address,
                    _file: None,
                })
            }
            ListenAddr::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                Ok(Self {
                    socket: Socket::Unix(listener),
                    address: address.clone(),
                    _file: Some(file),
                })
            }
        }
    }

    /// Where it listens, with the port that the system chose.
    #[must_use]
    pub fn address(&self) -> &ListenAddr {
        &self.address
    }

    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok(Accepted::Tcp(stream, peer.ip().to_canonical()))
            }
            Socket::Unix(listener) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}

/// Makes a socket that only this user can connect to, in place of one that nobody listens on any more.
fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let socket = unix_socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile {
        path: path.to_owned(),
        made: identity(path),
    };
    // Before it listens: until then nobody can connect.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    let listener = std::os::unix::net::UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok((UnixListener::from_std(listener)?, file))
}

/// Removes a socket that a process left behind.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::other(
            "something that is no socket is there: move it away, or give another path",
        ));
    }
    // One that is busy must not keep this process waiting.
    let socket = StdUnixStream::from(unix_socket()?);
    socket.set_nonblocking(true)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Ok(()) | Err(Errno::AGAIN) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process listens there",
        )),
        Err(error) => Err(error.into()),
    }
}

fn unix_socket() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_told_apart() {
        let local = |text: &str| text.parse::<ListenAddr>().map(|address| address.is_local());
        for text in [
            "127.0.0.1:80",
            "localhost:0",
            "[::1]:80",
            "unix:/a",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert_eq!(local(text), Ok(true), "{text}");
        }
        for text in [
            "0.0.0.0:80",
            "[::]:80",
            "10.0.0.1:80",
            "[::ffff:10.0.0.1]:1",
        ] {
            assert_eq!(local(text), Ok(false), "{text}");
        }
        for text in [
            "",
            "80",
            ":80",
            "localhost",
            "localhost:x",
            "host:80",
            "unix:",
            "/a",
        ] {
            assert!(local(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_socket_is_private_and_goes_with_its_listener() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("api.sock");
        let address = ListenAddr::Unix(path.clone());
        let listener = Listener::bind(&address).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = Listener::bind(&address).err().unwrap();
        assert!(
            error.to_string().contains("another process listens"),
            "{error}"
        );
        drop(listener);
        assert!(!path.exists());
        // One that a killed process left.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(Listener::bind(&address).unwrap());
        std::fs::write(&path, "text").unwrap();
        let error = Listener::bind(&address).err().unwrap();
        assert!(error.to_string().contains("no socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
    }
}
