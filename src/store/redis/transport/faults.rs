//! What the errors of the client library mean to us.

use crate::store::Operation;
use std::error::Error as _;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::store::StoreError;
use crate::text::printable;

/// As an error of the store that operators know under this name.
pub(crate) fn store_error(name: &str, operation: Operation, error: &RedisError) -> StoreError {
    let store = name.to_owned();
    let reason = printable(&error.to_string()).into_owned();
    let unreachable = |store, reason| StoreError::Unreachable {
        store,
        operation,
        reason,
    };
    match error.kind() {
        _ if is_forbidden(error) => StoreError::Unusable {
            store,
            reason: format!("{reason}; check the user in its URL, its password and its rights"),
        },
        ErrorKind::Io if let Some(error) = tls_error(error) => StoreError::Unusable {
            store,
            reason: printable(&tls_reason(error)).into_owned(),
        },
        ErrorKind::Parse if is_of_another_protocol(error) => unreachable(
            store,
            "what answers there is not Redis: check the host and the port".to_owned(),
        ),
        ErrorKind::Io
        | ErrorKind::Parse
        | ErrorKind::Server(
            ServerErrorKind::ReadOnly
            | ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask,
        ) => unreachable(store, reason),
        ErrorKind::Client => StoreError::Unusable { store, reason },
        ErrorKind::InvalidClientConfig => StoreError::Unusable {
            store,
            reason: match error.detail() {
                Some(detail) => printable(detail).into_owned(),
                None => reason,
            },
        },
        _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => StoreError::Unusable {
            store,
            reason: format!(
                "{reason}; give the user in its URL, and the password there or with \
                 --redis-password-file"
            ),
        },
        _ if error.code() == Some("BUSY") => unreachable(store, reason),
        _ => StoreError::Refused {
            store,
            operation,
            reason,
        },
    }
}

/// True when this user may not do that, or is not known. Within a script Redis 7.0 says so in words only.
fn is_forbidden(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm)
    ) || error
        .detail()
        .is_some_and(|detail| detail.starts_with("The user executing the script can't"))
}

/// True if the answer was none of Redis's protocol. A value of a wrong type is the same kind of error, and the
/// parser has no other mark.
fn is_of_another_protocol(error: &RedisError) -> bool {
    error.to_string().contains("Parse error at ")
}

/// What went wrong with TLS, if that is what it was. The client library has it in an [`Arc`], and the
/// system's errors keep what they are made of to themselves.
fn tls_error(error: &RedisError) -> Option<&TlsError> {
    let inner = error.source()?.downcast_ref::<Shared>()?;
    let inner = inner.downcast_ref::<std::io::Error>()?.get_ref()?;
    inner.downcast_ref::<TlsError>()
}

type Shared = Arc<dyn std::error::Error + Send + Sync>;

fn tls_reason(error: &TlsError) -> String {
    let mend = match error {
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is from a CA that is not trusted here; give that CA's certificate with \
             --redis-ca FILE"
        }
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for another host; give the name that stands in it",
        TlsError::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "its certificate has expired",
        TlsError::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
        ) => "it wants a certificate of ours; give one with --redis-cert FILE and --redis-key FILE",
        TlsError::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired,
        ) => "it does not take the certificate of --redis-cert",
        TlsError::InvalidMessage(_) => "it does not speak TLS there; is this the right port?",
        _ => "TLS failed",
    };
    format!("{mend} ({error})")
}

/// A failover or a demotion leaves connections that answer, but not for long, or only with errors.
pub(crate) fn needs_new_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The server's memory is full, and it did nothing of what it was asked.
pub(crate) fn is_full(error: &RedisError) -> bool {
    error.code() == Some("OOM")
}
