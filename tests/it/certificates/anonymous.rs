//! A client without a certificate, or with one that names nobody, which believes every server: what is tested is the
//! server's refusal.
//!
//! The product's own client without a certificate only ever talks to a master that it knows by its CA's digest, and takes
//! no certificate without an identity.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Error, Uri};

/// Connects by TLS and shows no certificate.
pub(super) async fn connect(address: SocketAddr) -> Result<Channel, Error> {
    connect_by(address, config(None)).await
}

/// Connects by TLS and shows the data certificate in a node's directory.
pub(super) async fn connect_with_data(address: SocketAddr, dir: &Path) -> Result<Channel, Error> {
    connect_by(address, config(Some(dir))).await
}

async fn connect_by(address: SocketAddr, config: ClientConfig) -> Result<Channel, Error> {
    let connector = TlsConnector::from(Arc::new(config));
    let dial = move |_: Uri| dial(address, connector.clone());
    Endpoint::from_static("http://anonymous.invalid").connect_with_connector(tower::service_fn(dial)).await
}

/// Speaks HTTP/2 without TLS.
pub(super) async fn connect_plain(address: SocketAddr) -> Result<Channel, Error> {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await
}

async fn dial(
    address: SocketAddr,
    connector: TlsConnector,
) -> io::Result<TokioIo<tokio_rustls::client::TlsStream<TcpStream>>> {
    let stream = TcpStream::connect(address).await?;
    Ok(TokioIo::new(connector.connect(ServerName::from(address.ip()), stream).await?))
}

fn config(data: Option<&Path>) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)));
    let mut config = match data {
        Some(dir) => {
            let certificate = |name| CertificateDer::from_pem_file(dir.join(name)).unwrap();
            let chain = vec![certificate("client-cert.pem"), certificate("ca-cert.pem")];
            let key = PrivateKeyDer::from_pem_file(dir.join("client-key.pem")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
