//! TLS of the HTTP API: a certificate and its key, which may be replaced while connections are open.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a client may take to agree on keys.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// A certificate with its key, as new connections use it.
#[derive(Debug)]
pub struct Certificate(Arc<ServerConfig>);

/// The certificate that may be replaced.
pub type SharedCertificate = Arc<RwLock<Arc<Certificate>>>;

impl Certificate {
    /// Reads both from PEM. The first certificate is the server's; those that lead to its issuer follow.
    ///
    /// # Errors
    ///
    /// What is wrong with which of them, in words.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain: Result<Vec<CertificateDer<'static>>, PemError> =
            CertificateDer::pem_slice_iter(certificates).collect();
        let chain =
            chain.map_err(|error| format!("the certificate is not PEM: {}", problem(&error)))?;
        if chain.is_empty() {
            return Err("no certificate is in the file of --tls-cert".to_owned());
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            PemError::NoItemsFound => "no private key is in the file of --tls-key".to_owned(),
            error => format!("the key is not PEM: {}", problem(&error)),
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    "the key is not the key of the certificate".to_owned()
                }
                error => format!("the certificate or its key cannot be used: {error}"),
            })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Agrees with a client on keys. None if that fails or takes too long.
    pub(super) async fn accept(
        shared: &SharedCertificate,
        stream: TcpStream,
    ) -> Option<TlsStream<TcpStream>> {
        let config = {
            let certificate = shared.read().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&certificate.0)
        };
        let accepted = TlsAcceptor::from(config).accept(stream);
        match tokio::time::timeout(HANDSHAKE_LIMIT, accepted).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!("a client does not agree on TLS: {error}");
                None
            }
            Err(_) => {
                tracing::debug!("a client takes too long to agree on TLS");
                None
            }
        }
    }
}

/// What is wrong with a file. The library's own words may have lines of it, and so the key.
fn problem(error: &PemError) -> &'static str {
    match error {
        PemError::MissingSectionEnd { .. } => "a section has no END line",
        PemError::IllegalSectionStart { .. } => "a BEGIN line is wrong",
        PemError::SectionTooLarge => "a section is too long",
        PemError::Io(_) => "it cannot be read",
        _ => "its base64 is wrong",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_certificate_or_its_key_is_told() {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        assert!(Certificate::from_pem(certificate.as_bytes(), key.as_bytes()).is_ok());
        for (certificate, key, says) in [
            (key.as_str(), key.as_str(), "no certificate"),
            ("", &key, "no certificate"),
            (&certificate, &certificate, "no private key"),
            (&certificate, "", "no private key"),
            (&certificate, &other, "not the key of the certificate"),
            (
                "-----BEGIN CERTIFICATE-----\n\u{1b}\n-----END CERTIFICATE-----\n",
                &key,
                "the certificate",
            ),
        ] {
            let error = Certificate::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(error.contains(says), "{error}");
            assert!(!error.contains('\u{1b}'), "{error:?}");
        }
        // Without its line breaks, the whole key is a BEGIN line.
        let one_line = key.replace('\n', "");
        let byte = format!("{}, {}", one_line.as_bytes()[40], one_line.as_bytes()[41]);
        for (certificate, key) in [(&certificate, &one_line), (&one_line, &key)] {
            let error = Certificate::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
            assert!(error.contains("is not PEM: a"), "{error}");
            assert!(
                !error.contains(&byte) && !error.contains(&one_line[40..60]),
                "{error}"
            );
        }
    }
}
