//! A console on a node: the instance is named first, what is typed arrives in order, the end of one side is the other's.

use futures::{StreamExt, stream};
use uuid::Uuid;

use super::{
    fixture::{patient, registry, within},
    server::TestNode,
};

#[tokio::test]
async fn a_console_carries_both_ways_and_ends_with_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let node = TestNode::new();
    let socket = folder.path().join("node.sock");
    let _serving = node.serve(&socket);
    let client = registry(&socket, patient()).0.local();
    let typed = stream::iter([b"ls\n".to_vec(), b"exit\n".to_vec()]);
    let output = within(client.console(Uuid::nil(), typed)).await.unwrap();
    let said: Vec<Vec<u8>> = within(output.map(|output| output.unwrap().data).collect()).await;
    assert_eq!(said, [b"ls\n".to_vec(), b"exit\n".to_vec()]);
}
