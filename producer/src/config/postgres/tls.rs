//! Encrypted connections: whom to trust, and who we are.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslNegotiation;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresSection;
use super::url::SslMode;
use crate::{Error, ErrorKind};

/// Opens connections to PostgreSQL as `postgres.url` asks for it. Clones share what was read from files.
#[derive(Clone)]
pub struct PostgresTls(pub(super) MakeRustlsConnect);

impl PostgresTls {
    /// Asks the server to cancel what a connection is doing, over a connection that is protected like it.
    ///
    /// # Errors
    /// The server cannot be reached. Whether there was something to cancel is not known.
    pub async fn cancel(&self, token: &tokio_postgres::CancelToken) -> Result<(), tokio_postgres::Error> {
        token.cancel_query(self.0.clone()).await
    }

    /// Reads the files of the section.
    pub(super) fn new(
        section: &PostgresSection,
        mode: SslMode,
        negotiation: SslNegotiation,
    ) -> Result<PostgresTls, Error> {
        let provider = Arc::new(ring::default_provider());
        let verifier = verifier(section, mode, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refused("prepare TLS to postgresql").because(error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match (&section.ssl_cert_file, &section.ssl_key_file) {
            (Some(chain), Some(key)) => {
                let (chain, key) = (certificates("postgres.ssl_cert_file", chain)?, private_key(key)?);
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    refused("use postgres.ssl_cert_file and postgres.ssl_key_file: they do not fit together")
                        .because(error)
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        if negotiation == SslNegotiation::Direct {
            // The server insists on it when TLS begins without a request.
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(PostgresTls(MakeRustlsConnect::new(config)))
    }
}

fn verifier(
    section: &PostgresSection,
    mode: SslMode,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let given = section.ssl_root_cert_file.as_deref();
    let roots = match (mode, given) {
        (SslMode::Disable | SslMode::Prefer, _) | (SslMode::Require, None) => {
            return Ok(Arc::new(Lenient { roots: None, provider: provider.clone() }));
        }
        (_, Some(path)) => roots_of(path)?,
        (_, None) => roots_of_the_system()?,
    };
    if mode < SslMode::VerifyFull {
        return Ok(Arc::new(Lenient { roots: Some(roots), provider: provider.clone() }));
    }
    let strict = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    strict
        .map(|it| it as Arc<dyn ServerCertVerifier>)
        .map_err(|error| refused("prepare TLS to postgresql").because(error))
}

fn roots_of(path: &Path) -> Result<RootCertStore, Error> {
    let key = "postgres.ssl_root_cert_file";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(key, path)? {
        roots.add(certificate).map_err(|error| refused(&format!("use {key} {}", path.display())).because(error))?;
    }
    Ok(roots)
}

fn roots_of_the_system() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _unreadable) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(refused(
            "find the certificate authorities that this system trusts: there are none; install them, or set \
             postgres.ssl_root_cert_file",
        ));
    }
    Ok(roots)
}

fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = fs::read(path).map_err(|error| refused(&format!("read {key} {}", path.display())).because(error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(refused(&format!("use {key} {}: it holds no certificate in PEM form", path.display()))),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let key = "postgres.ssl_key_file";
    let text = fs::read(path).map_err(|error| refused(&format!("read {key} {}", path.display())).because(error))?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        refused(&format!("use {key} {}: it holds no private key in PEM form without a password", path.display()))
    })
}

fn refused(doing: &str) -> Error {
    Error::new(ErrorKind::Config, doing)
}

/// Asks for a certificate of these authorities, whatever name is in it, or for any certificate at all. In either case
/// the server proves that it has the key.
#[derive(Debug)]
struct Lenient {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(certificate)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
