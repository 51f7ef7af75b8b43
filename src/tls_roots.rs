//! Whom this program trusts over TLS.

use std::sync::Arc;

/// Trusts what this machine trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` included), or the roots of Mozilla when it
/// has none. It reads files: not for a thread that must not block.
pub(crate) fn tls() -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider is one of rustls and has its default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}
