//! Connections: closed when their certificate is withdrawn, and never waited for without a limit.
use super::*;

#[tokio::test]
async fn a_withdrawn_certificate_is_refused_on_its_open_connection() {
    let fixture = Fixture::start().await;
    let own = fixture.member(&operator());
    let channel = fixture.connect(&own).await.unwrap();
    check(&channel).await.unwrap();
    fixture.accepted.0.lock().unwrap().clear();
    let status = check(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().ends_with("is refused: it was withdrawn"), "{}", status.message());
    drop(channel);
    fixture.stop().await;
}

#[tokio::test]
async fn open_streams_end_when_their_certificate_is_withdrawn() {
    let fixture = Fixture::start().await;
    let (own, other) = (fixture.member(&operator()), fixture.member(&operator()));
    let (channel, other_channel) =
        (fixture.connect(&own).await.unwrap(), fixture.connect(&other).await.unwrap());
    let (mut stream, mut other_stream) = (watch(&channel).await, watch(&other_channel).await);
    assert_eq!(fixture.connections.count(&own.fingerprint()), 1);

    fixture.accepted.0.lock().unwrap().remove(&own.fingerprint());
    assert_eq!(fixture.connections.close(&own.fingerprint()), 1);
    let end = timeout(PATIENCE, stream.message()).await.expect("the stream ends at once");
    let lost = end.unwrap_err();
    assert!(unanswered(&lost));
    assert_eq!(describe(&lost), "the connection was lost: closed by the other side");
    // The channel connects again, and is refused.
    assert_eq!(check(&channel).await.unwrap_err().code(), Code::Unauthenticated);
    // Nobody else notices.
    check(&other_channel).await.unwrap();
    assert!(timeout(Duration::ZERO, other_stream.message()).await.is_err());

    let keep = own.fingerprint();
    fixture.connections.retain(|fingerprint| *fingerprint == keep);
    assert!(timeout(PATIENCE, other_stream.message()).await.expect("the stream ends at once").is_err());
    fixture.stop().await;
}

#[tokio::test]
async fn a_renewed_certificate_is_used_from_the_next_connection_on() {
    let fixture = Fixture::start().await;
    let own = fixture.member(&operator());
    let pins = Pins::new([fixture.server.fingerprint()]);
    let tls = ClientTls::new(&own, Expect::Node { node: NODE, accepted: pins.clone() });
    let channel = connect_tls(fixture.address, &tls).await.unwrap();

    let (certificate, key) = material(&fixture.ca, &Identity::node(CLUSTER, NODE), now());
    fixture.server.replace(&fixture.ca.certificate_pem(), &certificate, &key).unwrap();
    check(&channel).await.expect("the open connection goes on");
    fixture.connections.close(&own.fingerprint());
    let lost = wait_for_error(&channel).await;
    assert!(describe(&lost).contains("no longer, accepted"), "{}", describe(&lost));
    pins.replace([fixture.server.fingerprint()]);
    check(&channel).await.expect("the same channel connects by the new certificate");

    let (certificate, key) = material(&fixture.ca, &operator(), now());
    own.replace(&fixture.ca.certificate_pem(), &certificate, &key).unwrap();
    fixture.accepted.0.lock().unwrap().insert(own.fingerprint(), Role::Operator);
    let second = connect_tls(fixture.address, &tls).await.unwrap();
    check(&second).await.unwrap();
    assert_eq!(fixture.connections.count(&own.fingerprint()), 1);
    drop((channel, second));
    fixture.stop().await;
}

/// The error of connecting again, after that of the connection that was lost.
async fn wait_for_error(channel: &Channel) -> tonic::Status {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Err(status) = check(channel).await
            && dial_error(&status).is_some()
        {
            return status;
        }
    }
    panic!("the connection is still there");
}

#[tokio::test]
async fn handshakes_that_never_end_hold_up_nobody() {
    let fixture = Fixture::start().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(fixture.address).await.unwrap());
    }
    let channel = fixture.connect(&fixture.member(&operator())).await.unwrap();
    check(&channel).await.unwrap();
    drop(channel);
    // The server's shutdown does not wait for them either.
    fixture.stop().await;
    let mut byte = [0];
    let read = timeout(PATIENCE, silent[0].read(&mut byte)).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_shutdown_ends_open_streams_within_its_limit() {
    let fixture = Fixture::start().await;
    let channel = fixture.connect(&fixture.member(&operator())).await.unwrap();
    let mut stream = watch(&channel).await;
    let start = Instant::now();
    fixture.stop().await;
    assert!(start.elapsed() < DRAIN_LIMIT * 2, "{:?}", start.elapsed());
    assert!(stream.message().await.is_err());
}

fn assert_limit(result: Result<Channel, DialError>, start: Instant, stage: Stage) {
    assert_eq!(result.unwrap_err().cause, DialCause::Limit { stage });
    let took = start.elapsed();
    assert!(took >= CONNECT_LIMIT && took < CONNECT_LIMIT * 2, "{took:?}");
}

#[tokio::test]
async fn a_full_backlog_costs_the_connect_limit() {
    let fixture = Fixture::start().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Nobody accepts: the queue fills, and then the kernel lets no further connection be made.
    let mut queued = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(900), TcpStream::connect(address)).await {
        queued.push(stream.unwrap());
        assert!(queued.len() < 100, "the backlog has no end");
    }
    let start = Instant::now();
    let tls = ClientTls::new(&fixture.member(&operator()), fixture.expect());
    assert_limit(connect_tls(address, &tls).await, start, Stage::Connect);
    fixture.stop().await;
}

#[tokio::test]
async fn a_stopped_daemon_costs_the_connect_limit() {
    let fixture = Fixture::start().await;
    // As with a stopped process, the kernel makes the connections and nobody reads them.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tls = ClientTls::new(&fixture.member(&operator()), fixture.expect());
    let start = Instant::now();
    assert_limit(connect_tls(listener.local_addr().unwrap(), &tls).await, start, Stage::Tls);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let _listener = bind_unix(&path, 0o600).unwrap();
    let start = Instant::now();
    assert_limit(connect_unix(&path).await, start, Stage::Http2);
    fixture.stop().await;
}

#[tokio::test]
async fn failures_to_connect_are_told_apart() {
    let fixture = Fixture::start().await;
    let tls = ClientTls::new(&fixture.member(&operator()), fixture.expect());
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = connect_tls(free, &tls).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{free}: connection refused"));
    // A channel that connects at its first call says the same.
    let status = check(&channel_tls(free, &tls)).await.unwrap_err();
    assert_eq!((status.code(), describe(&status)), (Code::Unavailable, error.to_string()));
    assert_eq!(ping(&channel_tls(free, &tls)).await.unwrap_err().to_string(), error.to_string());

    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await?;
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await?;
        // Until the client has gone.
        stream.read_to_end(&mut Vec::new()).await
    });
    assert_eq!(tls_reason(connect_tls(address, &tls).await), "the other side does not speak TLS");

    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none");
    assert_eq!(connect_unix(&missing).await.unwrap_err().cause, DialCause::NoSocket);
    let stale = folder.path().join("stale");
    drop(bind_unix(&stale, 0o600).unwrap());
    assert_eq!(connect_unix(&stale).await.unwrap_err().cause, DialCause::Refused);
    let long = folder.path().join("s".repeat(SOCKET_PATH_BYTES_MAX));
    assert!(matches!(connect_unix(&long).await.unwrap_err().cause, DialCause::Path(_)));
    fixture.stop().await;
}

#[tokio::test]
async fn on_unix_sockets_the_user_decides() {
    let folder = tempfile::tempdir().unwrap();
    // These tests' user is the daemon's: admin with the master, and the master with a node.
    for (policy, role) in [(SocketPolicy::Master, Role::Admin), (SocketPolicy::Node, Role::Master)] {
        let path = folder.path().join(format!("{policy:?}"));
        let listener = bind_unix(&path, 0o660).unwrap();
        let shutdown = CancellationToken::new();
        let (routes, _) = common_services().unwrap();
        let serving = tokio::spawn(serve_unix(listener, policy, routes, shutdown.clone()));
        let channel = connect_unix(&path).await.unwrap();
        ping(&channel).await.unwrap();
        for (method, roles) in METHODS.iter().filter(|(path, _)| path.starts_with("/muster.")) {
            let mut client = tonic::client::Grpc::new(channel.clone());
            client.ready().await.unwrap();
            let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
            let request = tonic::Request::new(HealthCheckRequest::default());
            let status = client.unary(request, method.parse().unwrap(), codec).await.unwrap_err();
            let allowed = roles.contains(role);
            let code = if allowed { Code::Unimplemented } else { Code::PermissionDenied };
            assert_eq!(status.code(), code, "{method} as {role}: {status:?}");
        }
        drop(channel);
        shutdown.cancel();
        timeout(PATIENCE, serving).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn more_anonymous_connections_than_the_bound_are_closed() {
    let fixture = Fixture::start_as(&Identity::master(CLUSTER, NODE, 1), now()).await;
    let (tls, _) = ClientTls::enrolment(fixture.ca.digest());
    let mut open = Vec::new();
    for _ in 0..ANONYMOUS_MAX {
        open.push(connect_tls(fixture.address, &tls).await.unwrap());
    }
    let error = connect_tls(fixture.address, &tls).await.unwrap_err();
    assert_eq!(error.cause, DialCause::Closed { stage: Stage::Http2 });
    // Those with a certificate have room.
    let own = fixture.member(&operator());
    let tls = ClientTls::new(&own, Expect::Master { cluster: CLUSTER });
    check(&connect_tls(fixture.address, &tls).await.unwrap()).await.unwrap();
    drop(open);
    fixture.stop().await;
}

/// Passes bytes on between a client and the server until told to stop; then the connection stays open and silent, as
/// with a host that vanished.
async fn silenced_proxy(server: SocketAddr, silence: CancellationToken) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(server).await.unwrap();
        tokio::select! {
            () = silence.cancelled() => std::future::pending().await,
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        }
    });
    address
}

#[tokio::test]
async fn a_call_on_a_silent_connection_is_given_up() {
    let fixture = Fixture::start().await;
    let silence = CancellationToken::new();
    let proxy = silenced_proxy(fixture.address, silence.clone()).await;
    let tls = ClientTls::new(&fixture.member(&operator()), fixture.expect());
    let channel = connect_tls(proxy, &tls).await.unwrap();
    let mut stream = watch(&channel).await;
    silence.cancel();
    let start = Instant::now();
    let limit = (PING_INTERVAL + PING_LIMIT) * 2;
    let end = timeout(limit, stream.message()).await.expect("pings find the connection dead");
    let lost = describe(&end.unwrap_err());
    assert!(lost.contains("no answer to a ping within 15 s"), "{lost}");
    assert!(start.elapsed() >= PING_LIMIT, "{:?}", start.elapsed());
    fixture.stop().await;
}

#[tokio::test]
async fn a_probe_on_a_silent_connection_has_its_own_limit() {
    let fixture = Fixture::start().await;
    let silence = CancellationToken::new();
    let proxy = silenced_proxy(fixture.address, silence.clone()).await;
    let tls = ClientTls::new(&fixture.member(&operator()), fixture.expect());
    let channel = connect_tls(proxy, &tls).await.unwrap();
    ping(&channel).await.unwrap();
    silence.cancel();
    let start = Instant::now();
    assert!(matches!(ping(&channel).await, Err(PingError::Limit)));
    assert!(start.elapsed() < PROBE_LIMIT * 2, "{:?}", start.elapsed());
    fixture.stop().await;
}
