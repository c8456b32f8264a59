//! Right and wrong certificates on both sides.
use muster_core::names::NodeName;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SanType};

use super::*;

fn node2() -> NodeName {
    NodeName::parse("node2").unwrap()
}

#[tokio::test]
async fn the_right_certificate_is_served() {
    let fixture = Fixture::start().await;
    let channel = fixture.connect(&fixture.member(&operator())).await.unwrap();
    check(&channel).await.unwrap();
    ping(&channel).await.unwrap();
    drop(channel);
    fixture.stop().await;
}

#[tokio::test]
async fn without_a_certificate_everything_but_enrolment_is_unauthenticated() {
    let identity = Identity::master(CLUSTER, NODE, 7);
    let fixture = Fixture::start_as(&identity, now()).await;
    let (tls, learnt) = ClientTls::enrolment(fixture.ca.digest());
    let channel = connect_tls(fixture.address, &tls).await.unwrap();
    assert_eq!(learnt.pem(), Some(fixture.ca.certificate_pem().as_str()));
    let status = check(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("no certificate"), "{}", status.message());

    // Enrolment passes the gate: this server has no such service, which is for the router to say.
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/muster.v1.EnrolmentService/Enrol");
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let status =
        client.unary(tonic::Request::new(HealthCheckRequest::default()), path, codec).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, ""));
    drop(client);
    fixture.stop().await;
}

#[tokio::test]
async fn clients_with_a_wrong_certificate_are_told_why_when_they_connect() {
    let fixture = Fixture::start().await;
    let strange = Ca::create(Uuid::from_u128(0xc2), now()).unwrap();
    let same_name = Ca::create(CLUSTER, now()).unwrap();
    for (ca, start, part) in [
        (&strange, now(), "another cluster's CA"),
        (&same_name, now(), "damaged"),
        (&fixture.ca, now() - LEAF_LIFETIME - time::Duration::hours(2), "expired"),
        (&fixture.ca, now() + time::Duration::hours(2), "not yet valid"),
    ] {
        // Such a client believes this server, so that the refusal is the server's.
        let (certificate, key) = material(ca, &operator(), start);
        let client = TlsState::new(&fixture.ca.certificate_pem(), &certificate, &key).unwrap();
        let reason = tls_reason(fixture.connect(&client).await);
        assert!(reason.starts_with("the other side refused this side's certificate"), "{reason}");
        assert!(reason.contains(part), "{reason}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn servers_with_a_wrong_certificate_are_refused_by_name() {
    let ago = LEAF_LIFETIME + time::Duration::hours(2);
    for (start, part) in [
        (now() - ago, "certificate expired"),
        (now() + time::Duration::hours(2), "certificate not yet valid"),
    ] {
        let fixture = Fixture::start_as(&Identity::node(CLUSTER, NODE), start).await;
        let reason = tls_reason(fixture.connect(&fixture.member(&operator())).await);
        assert!(reason.contains(part), "{reason}");
        fixture.stop().await;
    }

    let fixture = Fixture::start().await;
    let own = fixture.member(&operator());
    let pins = Pins::new([fixture.server.fingerprint()]);
    let other = Pins::new([own.fingerprint()]);
    for (expect, part) in [
        (Expect::Node { node: NODE, accepted: other }, "no longer, accepted"),
        (Expect::Node { node: OTHER_NODE, accepted: pins }, "not node 00000000-0000-0000-0000-0000000000a2"),
        (Expect::Master { cluster: CLUSTER }, "not a master of cluster"),
    ] {
        let reason = tls_reason(connect_tls(fixture.address, &ClientTls::new(&own, expect)).await);
        assert!(reason.contains(part), "{reason}");
    }

    let strange = state(&Ca::create(Uuid::from_u128(0xc2), now()).unwrap(), &operator(), now());
    let reason = tls_reason(fixture.connect(&strange).await);
    assert_eq!(reason, "certificate issued by another cluster's CA");
    fixture.stop().await;
}

#[tokio::test]
async fn enrolment_goes_to_a_master_whose_ca_has_the_tokens_digest() {
    let fixture = Fixture::start_as(&Identity::master(CLUSTER, NODE, 1), now()).await;
    let wrong = Ca::create(CLUSTER, now()).unwrap().digest();
    let (tls, learnt) = ClientTls::enrolment(wrong);
    let reason = tls_reason(connect_tls(fixture.address, &tls).await);
    assert!(reason.contains("not the one that the token names"), "{reason}");
    assert_eq!(learnt.pem(), None);
    fixture.stop().await;

    let node = Fixture::start().await;
    let (tls, learnt) = ClientTls::enrolment(node.ca.digest());
    let reason = tls_reason(connect_tls(node.address, &tls).await);
    assert!(reason.contains("not a master"), "{reason}");
    assert_eq!(learnt.pem(), None);
    node.stop().await;
}

#[tokio::test]
async fn each_role_may_call_what_the_table_says() {
    let fixture = Fixture::start().await;
    let client = |role| Identity::client(CLUSTER, Uuid::from_u128(0xb2), role);
    for identity in [
        client(ClientRole::Reader),
        client(ClientRole::Operator),
        client(ClientRole::Admin),
        Identity::node(CLUSTER, OTHER_NODE),
        Identity::master(CLUSTER, NODE, 1),
    ] {
        let channel = fixture.connect(&fixture.member(&identity)).await.unwrap();
        for (path, roles) in METHODS.iter().filter(|(path, _)| path.starts_with("/muster.")) {
            let status = call(&channel, path).await;
            if roles.contains(identity.role()) {
                assert_eq!(status.code(), Code::Unimplemented, "{path} as {identity}: {status:?}");
                continue;
            }
            assert_eq!(status.code(), Code::PermissionDenied, "{path} as {identity}: {status:?}");
            let needed = format!("needs role {roles}; ");
            let had = format!("has role {}", identity.role());
            assert!(status.message().contains(&needed), "{}", status.message());
            assert!(status.message().ends_with(&had), "{}", status.message());
        }
        assert_eq!(check(&channel).await.map_err(|status| status.code()), Ok(()));
        let unknown = call(&channel, "/muster.v1.JobService/Unknown").await;
        assert_eq!(unknown.message(), "there is no method /muster.v1.JobService/Unknown");
    }
    fixture.stop().await;
}

async fn call(channel: &Channel, path: &str) -> tonic::Status {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let request = tonic::Request::new(HealthCheckRequest::default());
    client.unary(request, path.parse().unwrap(), codec).await.unwrap_err()
}

#[test]
fn a_request_decides_nothing_but_the_key() {
    let ca = Ca::create(CLUSTER, now()).unwrap();
    let mut greedy = CertificateParams::default();
    greedy.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let admin = Identity::client(CLUSTER, NODE, ClientRole::Admin).to_string();
    greedy.subject_alt_names = vec![SanType::URI(admin.as_str().try_into().unwrap())];
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let csr = greedy.serialize_request(&key).unwrap().der().to_vec();

    let identity = Identity::node(CLUSTER, NODE);
    let start = now();
    let signed = ca.sign(&csr, &identity, start, LEAF_LIFETIME).unwrap();
    assert_eq!(Identity::from_certificate(&signed.der), Ok(identity.clone()));
    assert_eq!(signed.fingerprint, Fingerprint::of(&signed.der));
    let (_, parsed) = x509_parser::parse_x509_certificate(&signed.der).unwrap();
    assert!(!parsed.is_ca());
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && usage.server_auth && !usage.any);
    let validity = Validity::of(&signed.der).unwrap();
    assert_eq!(validity.not_before.unix_timestamp(), (start - time::Duration::hours(1)).unix_timestamp());
    assert_eq!(validity.not_after.unix_timestamp(), (start + time::Duration::days(365)).unix_timestamp());
    let again = ca.sign(&csr, &identity, start, LEAF_LIFETIME).unwrap();
    assert_ne!(signed.fingerprint, again.fingerprint, "each certificate has a serial number of its own");

    let mut forged = csr.clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    assert!(matches!(ca.sign(&forged, &identity, start, LEAF_LIFETIME), Err(PkiError::Request(_))));
    let long = vec![0; CSR_BYTES_MAX + 1];
    assert!(matches!(ca.sign(&long, &identity, start, LEAF_LIFETIME), Err(PkiError::RequestTooLong(_))));
    let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let csr = greedy.serialize_request(&other).unwrap().der().to_vec();
    assert!(matches!(ca.sign(&csr, &identity, start, LEAF_LIFETIME), Err(PkiError::RequestKeyType)));
}

#[test]
fn a_data_certificate_says_what_the_ca_decides() {
    let ca = Ca::create(CLUSTER, now()).unwrap();
    let mut greedy = CertificateParams::new(["node3".to_owned(), "muster-master".to_owned()]).unwrap();
    greedy.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let admin = Identity::client(CLUSTER, NODE, ClientRole::Admin).to_string();
    greedy.subject_alt_names.push(SanType::URI(admin.as_str().try_into().unwrap()));
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let csr = greedy.serialize_request(&key).unwrap().der().to_vec();
    let key = PrivateKeyPem::new(key.serialize_pem());

    let addresses =
        ["192.0.2.2", "2001:db8::2", "::ffff:192.0.2.2", "192.0.2.2"].map(|ip| ip.parse().unwrap());
    let start = now();
    let signed = ca.sign_data(&csr, &node2(), &addresses, start, LEAF_LIFETIME).unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&signed.der).unwrap();
    assert_eq!(parsed.subject().to_string(), "CN=node2");
    let names: Vec<String> = parsed
        .subject_alternative_name()
        .unwrap()
        .unwrap()
        .value
        .general_names
        .iter()
        .map(|name| name.to_string())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(names[0], "DNSName(node2)");
    let usage = parsed.key_usage().unwrap().unwrap().value;
    assert!(usage.digital_signature() && usage.key_encipherment() && !usage.key_cert_sign());
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && usage.server_auth && !usage.any);
    assert!(!parsed.is_ca());
    assert_eq!(signed.validity, ca.sign(&csr, &operator(), start, LEAF_LIFETIME).unwrap().validity);
    assert_eq!(Validity::of_pem(&signed.pem).unwrap(), Validity::of(&signed.der).unwrap());

    assert_eq!(Identity::from_certificate(&signed.der), Err(IdentityError::NotUri));
    let own = TlsState::new(&ca.certificate_pem(), &signed.pem, &key);
    assert!(matches!(own, Err(TlsError::Identity(IdentityError::NotUri))), "{own:?}");
    check_data_certificate(&signed.pem, &key, &node2()).unwrap();
    let other = check_data_certificate(&signed.pem, &key, &NodeName::parse("node3").unwrap());
    assert!(matches!(other, Err(TlsError::DataName { .. })), "{other:?}");
    let (strange, _) = new_key_and_csr("node2").unwrap();
    let unfit = check_data_certificate(&signed.pem, &strange, &node2());
    assert!(matches!(unfit, Err(TlsError::Key(_))), "{unfit:?}");
}

#[test]
fn a_data_certificate_has_its_nodes_whole_name_and_never_the_masters() {
    let ca = Ca::create(CLUSTER, now()).unwrap();
    let (_, csr) = new_key_and_csr("a host").unwrap();
    let long = NodeName::parse(&format!("{}.example", "x".repeat(200))).unwrap();
    let signed = ca.sign_data(&csr, &long, &[], now(), LEAF_LIFETIME).unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&signed.der).unwrap();
    assert_eq!(parsed.subject().to_string(), format!("CN={long}"));
    let master = NodeName::parse(MASTER_DNS_NAME).unwrap();
    let refused = ca.sign_data(&csr, &master, &[], now(), LEAF_LIFETIME);
    assert!(matches!(refused, Err(PkiError::ReservedName)), "{refused:?}");
}

#[test]
fn a_ca_is_read_back_with_its_own_key_only() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("ca.key"));
    let ca = Ca::create(CLUSTER, now()).unwrap();
    ca.save(&certificate, &key).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&key).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let read = Ca::load(&certificate, &key).unwrap();
    assert_eq!(read.digest(), ca.digest());
    assert_eq!(read.certificate_pem(), ca.certificate_pem());

    // What the read CA signs chains to the original.
    let server = state(&read, &operator(), now());
    assert!(
        TlsState::new(&ca.certificate_pem(), &certificate_pem(&server.material().key.cert[0]), &{
            new_key_and_csr("another").unwrap().0
        })
        .is_err_and(|error| matches!(error, TlsError::Key(_)))
    );

    let other = Ca::create(CLUSTER, now()).unwrap();
    other.key_pem().save(&key).unwrap();
    assert!(matches!(Ca::load(&certificate, &key), Err(PkiError::KeyMismatch)));
}

#[test]
fn certificates_are_renewed_at_two_thirds_of_their_life() {
    let start = OffsetDateTime::UNIX_EPOCH;
    let validity = Validity { not_before: start, not_after: start + time::Duration::days(360) };
    let day = |days| start + time::Duration::days(days);
    assert!(!validity.renewal_due(day(239)) && validity.renewal_due(day(240)));
    assert_eq!(validity.days_left(day(239) - time::Duration::SECOND), 121);
    assert_eq!((validity.days_left(day(360)), validity.days_left(day(361))), (0, -1));
}
