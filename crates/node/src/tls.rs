//! Who may speak to whom.

use std::path::Path;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use crate::config::check_private;
use crate::{Config, Error};

/// Both ends of this machine's links.
#[derive(Clone)]
pub struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    peers: Vec<(String, ServerName<'static>)>,
}

fn cannot(path: &Path) -> impl Fn(&dyn std::fmt::Display) -> Error {
    let path = path.display().to_string();
    move |cause| Error::new(format_args!("{path}: {cause}"))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let said = cannot(path);
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|cause| said(&cause))?.collect();
    match all {
        Ok(all) if all.is_empty() => Err(said(&"no certificate is in it")),
        Ok(all) => Ok(all),
        Err(cause) => Err(said(&cause)),
    }
}

fn name_of(name: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(name.to_owned()).map_err(|cause| Error::new(format_args!("{name}: {cause}")))
}

impl Identity {
    /// As the configuration has it.
    ///
    /// # Errors
    /// Which file is not what it should be.
    pub fn read(config: &Config) -> Result<Identity, Error> {
        let files = &config.tls;
        check_private(&files.key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.authority)? {
            roots.add(certificate).map_err(|cause| cannot(&files.authority)(&cause))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&files.certificate)?;
        let key = || PrivateKeyDer::from_pem_file(&files.key).map_err(|cause| cannot(&files.key)(&cause));
        let unfit = cannot(&files.certificate);
        let is_own = ParsedCertificate::try_from(&chain[0]).and_then(|own| {
            verify_server_name(
                &own,
                &name_of(&config.node.name).map_err(|_| rustls::Error::HandshakeNotComplete)?,
            )
        });
        if is_own.is_err() {
            return Err(unfit(&format_args!("it is not for {}", config.node.name)));
        }
        let only = [&rustls::version::TLS13];
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&only)
            .map_err(Error::new)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key()?)
            .map_err(|cause| unfit(&cause))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let verifier = verifier.build().map_err(|cause| cannot(&files.authority)(&cause))?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&only)
            .map_err(Error::new)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key()?)
            .map_err(|cause| unfit(&cause))?;
        // A link is made anew from its beginning.
        server.send_tls13_tickets = 0;
        let peers = config.peers.iter().map(|peer| Ok((peer.name.clone(), name_of(&peer.name)?)));
        let peers = peers.collect::<Result<_, Error>>()?;
        Ok(Identity { client: Arc::new(client), server: Arc::new(server), peers })
    }

    /// The beginning of a link to the peer of this name.
    pub fn client(&self, name: &str) -> Result<ClientConnection, Error> {
        ClientConnection::new(Arc::clone(&self.client), name_of(name)?).map_err(Error::new)
    }

    /// The beginning of a link from somebody.
    pub fn server(&self) -> Result<ServerConnection, Error> {
        ServerConnection::new(Arc::clone(&self.server)).map_err(Error::new)
    }

    /// Which of the peers has shown these certificates.
    pub fn peer_of(&self, certificates: Option<&[CertificateDer<'_>]>) -> Option<&str> {
        let shown = ParsedCertificate::try_from(certificates?.first()?).ok()?;
        let found = self.peers.iter().find(|(_, name)| verify_server_name(&shown, name).is_ok());
        found.map(|(name, _)| name.as_str())
    }
}
