//! What a guest may put into a request before it is made. The library keeps it whatever its length,
//! for as long as the guest holds the request, so the setters are ours in front of the library's.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest, Method, Scheme};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest as Request;

use super::State;

/// The interface under the name that the library gives it.
const TYPES: &str = "wasi:http/types@0.2.12";

/// Bytes of a method, a scheme and an authority, and of a path with its query.
pub(super) const WORD_MAX: usize = 256;
pub(super) const PATH_MAX: usize = 16 * 1024;

/// The answer to a guest: whether it was taken.
pub(super) type Taken = wasmtime::Result<(Result<(), ()>,)>;

/// True when a text is no longer than it may be.
pub(super) fn fits(text: Option<&str>, max: usize) -> bool {
    text.is_none_or(|text| text.len() <= max)
}

/// Puts the setters in front of those that are linked already.
pub(super) fn bound(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    type Store<'a> = StoreContextMut<'a, State>;
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
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
        "[method]outgoing-request.set-scheme",
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
        "[method]outgoing-request.set-authority",
        |mut store: Store<'_>, (request, place): (Resource<Request>, Option<String>)| -> Taken {
            if !fits(place.as_deref(), WORD_MAX) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_authority(request, place)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: Store<'_>, (request, path): (Resource<Request>, Option<String>)| -> Taken {
            if !fits(path.as_deref(), PATH_MAX) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_path_with_query(request, path)?,))
        },
    )
}
