//! Against a real storage daemon, which speaks the same protocol and starts in a moment.

use std::{path::PathBuf, process::Child, process::Command, time::Duration};

use serde_json::{Value, json};

use super::{
    Qmp, QmpError,
    wire::{Event, Failure, Line},
};

struct Daemon {
    folder: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::File::create(folder.path().join("disk")).unwrap().set_len(1 << 20).unwrap();
        let socket = format!("socket,id=m,path={}/qmp,server=on,wait=off", folder.path().display());
        let disk = format!("driver=file,node-name=f,filename={}/disk", folder.path().display());
        let child = Command::new("qemu-storage-daemon")
            .args(["--chardev", &socket, "--monitor", "chardev=m", "--blockdev", &disk])
            .spawn()
            .expect("qemu-storage-daemon is installed by deploy/prepare.sh");
        Daemon { folder, child }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("qmp")
    }

    async fn connect(&self) -> Qmp {
        for _ in 0..500 {
            match Qmp::connect(&self.socket()).await {
                Ok(client) => return client,
                Err(QmpError::Connect { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the storage daemon does not serve");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[tokio::test]
async fn commands_are_answered_side_by_side_and_refusals_have_words() {
    let daemon = Daemon::start();
    let client = daemon.connect().await;
    let nodes = || client.execute("query-named-block-nodes", json!({ "flat": true }));
    let (first, second) = tokio::join!(nodes(), nodes());
    assert_eq!(first.unwrap()[0]["node-name"], "f");
    assert_eq!(second.unwrap()[0]["node-name"], "f");
    let refused = client.execute("blockdev-del", json!({ "node-name": "nothing" })).await.unwrap_err();
    let QmpError::Refused { command, description, .. } = refused else { panic!("{refused}") };
    assert_eq!(command, "blockdev-del");
    assert!(description.contains("nothing"), "{description}");
}

#[tokio::test]
async fn a_connection_that_ends_answers_nobody_and_says_so() {
    let mut daemon = Daemon::start();
    let client = daemon.connect().await;
    daemon.child.kill().unwrap();
    // Its socket listens to its last moment.
    daemon.child.wait().unwrap();
    client.ended().await;
    let error = client.execute("query-named-block-nodes", Value::Null).await.unwrap_err();
    assert!(matches!(error, QmpError::Ended { .. }), "{error}");
    drop(client);
    let error = Qmp::connect(&daemon.socket()).await.map(drop).unwrap_err();
    assert!(matches!(error, QmpError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn events_reach_their_listeners() {
    let daemon = Daemon::start();
    let client = daemon.connect().await;
    let mut events = client.events();
    let job = json!({ "job-id": "j", "driver": "file", "filename": "x" });
    assert!(client.execute("blockdev-create", job).await.is_err(), "its options are wrong");
    let create = json!({ "job-id": "j", "options": { "driver": "qcow2", "file": "f", "size": 2 << 20 } });
    client.execute("blockdev-create", create).await.unwrap();
    let event = tokio::time::timeout(Duration::from_secs(10), events.recv()).await.unwrap().unwrap();
    assert_eq!((event.name.as_str(), &event.data["id"]), ("JOB_STATUS_CHANGE", &json!("j")));
}

#[test]
fn lines_of_every_kind() {
    let event = Event { name: "STOP".to_owned(), data: Value::Null };
    assert_eq!(Line::parse(r#"{"event":"STOP","timestamp":{"seconds":1}}"#).unwrap(), Line::Event(event));
    let done = Line::Answer { id: 3, result: Ok(json!({})) };
    assert_eq!(Line::parse(r#"{"return":{},"id":3,"new":1}"#).unwrap(), done);
    let failure = Failure { class: "GenericError".to_owned(), description: "no".to_owned() };
    let failed = Line::Answer { id: 3, result: Err(failure) };
    assert_eq!(Line::parse(r#"{"error":{"class":"GenericError","desc":"no"},"id":3}"#).unwrap(), failed);
    assert_eq!(Line::parse(r#"{"return":{}}"#).unwrap(), Line::Other);
    assert!(Line::parse("{").is_err());
}
