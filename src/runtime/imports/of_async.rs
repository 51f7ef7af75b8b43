//! WASI 0.3, with the permissions and limits of WASI 0.2.
//!
//! What a guest starts and does not wait for is bounded by its handles (`Limits::handles`): each task, stream
//! and future that the host keeps has one until the host is done with it.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::p3::bindings::sockets::types::{ErrorCode, IpAddressFamily};
use wasmtime_wasi::sockets::{TcpSocket, UdpSocket};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p3::Request;
use wasmtime_wasi_http::p3::bindings::http::types::{HostRequest, Method, Scheme};

use super::State;
use super::requests::{PATH_MAX, Taken, WORD_MAX, fits};

/// The interfaces under the names that the libraries give them.
const SOCKETS: &str = "wasi:sockets/types@0.3.0";
const HTTP_TYPES: &str = "wasi:http/types@0.3.0";

type Store<'a> = StoreContextMut<'a, State>;

/// A socket that was not made.
type Refused<T> = wasmtime::Result<(Result<Resource<T>, ErrorCode>,)>;

pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p3::add_to_linker(linker)?;
    wasmtime_wasi_http::p3::add_to_linker(linker)?;
    linker.allow_shadowing(true);
    refuse_sockets(linker)?;
    bound_requests(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Where they are made, so that each try is counted and none takes a file descriptor.
fn refuse_sockets(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut sockets = linker.instance(SOCKETS)?;
    sockets.func_wrap(
        "[static]tcp-socket.create",
        |store: Store<'_>, (_,): (IpAddressFamily,)| -> Refused<TcpSocket> {
            store.data().log.refuse("refused: a TCP socket");
            Ok((Err(ErrorCode::AccessDenied),))
        },
    )?;
    sockets.func_wrap(
        "[static]udp-socket.create",
        |store: Store<'_>, (_,): (IpAddressFamily,)| -> Refused<UdpSocket> {
            store.data().log.refuse("refused: a UDP socket");
            Ok((Err(ErrorCode::AccessDenied),))
        },
    )
}

/// Puts our setters in front of the library's, for the reason that [`super::requests`] gives.
fn bound_requests(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut types = linker.instance(HTTP_TYPES)?;
    types.func_wrap(
        "[method]request.set-method",
        |mut store: Store<'_>, (request, method): (Resource<Request>, Method)| -> Taken {
            let own = match &method {
                Method::Other(name) => Some(name.as_str()),
                _ => None,
            };
            if !fits(own, WORD_MAX) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_method(request, method)?,))
        },
    )?;
    types.func_wrap(
        "[method]request.set-scheme",
        |mut store: Store<'_>, (request, scheme): (Resource<Request>, Option<Scheme>)| -> Taken {
            let own = match &scheme {
                Some(Scheme::Other(name)) => Some(name.as_str()),
                _ => None,
            };
            if !fits(own, WORD_MAX) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_scheme(request, scheme)?,))
        },
    )?;
    types.func_wrap(
        "[method]request.set-authority",
        |mut store: Store<'_>, (request, place): (Resource<Request>, Option<String>)| -> Taken {
            if !fits(place.as_deref(), WORD_MAX) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_authority(request, place)?,))
        },
    )?;
    types.func_wrap(
        "[method]request.set-path-with-query",
        |mut store: Store<'_>, (request, path): (Resource<Request>, Option<String>)| -> Taken {
            if !fits(path.as_deref(), PATH_MAX) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_path_with_query(request, path)?,))
        },
    )
}
