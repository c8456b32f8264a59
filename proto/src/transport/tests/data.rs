//! A data certificate opens nothing: shown to a server of ours, and shown by a server to a client of ours.
use std::io;

use muster_core::names::NodeName;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::transport::tls::{ALPN, provider};

/// Certificate and key as a TLS library takes them: the product's own types refuse them.
fn data(ca: &Ca) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let (key, csr) = new_key_and_csr("node2").unwrap();
    let node = NodeName::parse("node2").unwrap();
    let addresses = ["127.0.0.1".parse().unwrap()];
    let signed = ca.sign_data(&csr, &node, &addresses, now(), LEAF_LIFETIME).unwrap();
    let chain = vec![CertificateDer::from(signed.der), authority(ca)];
    (chain, PrivateKeyDer::from_pem_slice(key.as_str().as_bytes()).unwrap())
}

fn authority(ca: &Ca) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(ca.certificate_pem().as_bytes()).unwrap()
}

/// Connects as a client of another make does, with a certificate; the server's answer, or why there is none.
async fn knock(
    fixture: &Fixture,
    (chain, key): (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
) -> io::Result<u8> {
    let mut roots = RootCertStore::empty();
    roots.add(authority(&fixture.ca)).unwrap();
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key);
    let mut config = config.unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let stream = TcpStream::connect(fixture.address).await.unwrap();
    let name = ServerName::try_from(MASTER_DNS_NAME).unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    // By TLS 1.3 a client learns only now what the server thinks of its certificate.
    let mut head = [0; 9];
    timeout(PATIENCE, stream.read_exact(&mut head)).await.expect("an answer in time")?;
    Ok(head[3])
}

#[tokio::test]
async fn a_data_certificate_opens_no_service() {
    let fixture = Fixture::start_as(&Identity::master(CLUSTER, NODE, 1), now()).await;
    let refused = knock(&fixture, data(&fixture.ca)).await.unwrap_err();
    assert!(refused.to_string().contains("CertificateUnknown"), "{refused}");

    // It was the certificate: with an identity the same client hears the server's settings (frame type 4).
    let (key, csr) = new_key_and_csr("a host").unwrap();
    let signed = fixture.ca.sign(&csr, &operator(), now(), LEAF_LIFETIME).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_str().as_bytes()).unwrap();
    let chain = vec![CertificateDer::from(signed.der), authority(&fixture.ca)];
    assert_eq!(knock(&fixture, (chain, key)).await.unwrap(), 4);
    fixture.stop().await;
}

#[tokio::test]
async fn a_server_with_a_data_certificate_is_nobody() {
    let ca = Ca::create(CLUSTER, now()).unwrap();
    let (chain, key) = data(&ca);
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config = config.unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The client ends the handshake.
            drop(acceptor.accept(stream).await);
        }
    });
    let own = state(&ca, &operator(), now());
    let node = Expect::Node { node: NODE, accepted: Pins::new([own.fingerprint()]) };
    let (enrolment, learnt) = ClientTls::enrolment(ca.digest());
    for tls in
        [ClientTls::new(&own, node), ClientTls::new(&own, Expect::Master { cluster: CLUSTER }), enrolment]
    {
        let reason = tls_reason(connect_tls(address, &tls).await);
        assert!(reason.contains("subject alternative name is not a URI"), "{reason}");
    }
    assert_eq!(learnt.pem(), None);
}
