//! Each connection is greeted once, before anybody uses it: the node ends the runs of all jobs that a greeting does not name.

use super::{
    fixture::{name, patient, registry, within},
    server::TestNode,
};

#[tokio::test]
async fn no_greeting_comes_on_a_connection_that_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    let _serving = node.serve(&socket);
    let (registry, _) = registry(&socket, patient());
    let client = registry.local();
    let first = within(client.hello(true)).await.unwrap();
    assert_eq!((first.serial_seen, first.facts_serial), (6, 5));
    within(registry.end_job(&name("node1"), 4, &[])).await.unwrap();
    assert_eq!(within(client.hello(true)).await.unwrap(), first);
    assert_eq!(node.calls(), ["hello", "end_job 4"]);
    client.reset();
    within(client.hello(true)).await.unwrap();
    within(client.hello(false)).await.unwrap();
    assert_eq!(node.calls(), ["hello", "end_job 4", "hello"], "the new connection's own one");
}

#[tokio::test]
async fn a_greeting_under_way_at_a_reset_is_given_up_and_who_waited_gets_the_next_connection() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    node.hang("hello");
    let _serving = node.serve(&socket);
    let (registry, _) = registry(&socket, patient());
    let client = registry.local();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.end_job(4, &[]).await }
    });
    node.called("hello", 1).await;
    node.hangs.lock().unwrap().clear();
    client.reset();
    node.given_up("hello").await;
    assert_eq!(within(waiting).await.unwrap(), Ok(2));
    assert_eq!(node.calls(), ["hello", "hello", "end_job 4"]);
    assert_eq!(registry.not_reached(&name("node1")), None);
}
