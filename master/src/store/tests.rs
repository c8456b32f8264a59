//! The stores: what is kept, what is refused, and with which words.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use muster_core::{
    calls::{Call, Cleanup, NodeCall},
    edit::Touched,
    model::{CleanupId, Client, ClientRole, Cluster, Node},
    names::{ClientName, ClusterName, NodeName},
    ops,
};
use uuid::Uuid;

use super::{format::Format, *};

fn put(key: &str, value: &str) -> Batch {
    Batch { puts: vec![(key.to_owned(), encode(&value))], ..Batch::default() }
}

fn delete(key: &str) -> Batch {
    Batch { deletes: vec![key.to_owned()], ..Batch::default() }
}

fn records(pairs: &[(&str, &str)]) -> Records {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), encode(value))).collect()
}

/// The names in a directory.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Changes one byte of the file, at the text, by one bit.
fn flip(path: &Path, text: &str) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Changes the file as an operator's shell could.
fn with_shell(path: &Path, sql: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_reopened_file_holds_what_was_committed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    let mut store = SqliteStore::create(&path, &records(&[("a", "1"), ("b", "2")])).unwrap();
    store.commit(&put("c", "3")).unwrap();
    store.commit(&put("a", "one")).unwrap();
    store.commit(&delete("b")).unwrap();
    store.commit(&delete("never there")).unwrap();
    let mut both = delete("c");
    both.extend(put("c", "three"));
    store.commit(&both).unwrap();
    let expected = records(&[("a", "one"), ("c", "three")]);
    assert_eq!(store.load().unwrap(), expected);
    let commits = store.commits();
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!((store.load().unwrap(), store.commits()), (expected, commits));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn all_stores_answer_alike() {
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteStore::create(&folder.path().join("cluster.db"), &Records::new()).unwrap();
    let mut stores: [Box<dyn Store>; 2] = [Box::new(file), Box::new(MemoryStore::default())];
    for store in &mut stores {
        store.commit(&put("a", "1")).unwrap();
        let epoch =
            Batch { puts: vec![(keys::EPOCH.to_owned(), encode(&4))], epoch: Some(0), ..Batch::default() };
        store.commit(&epoch).unwrap();
        let error = store.commit(&Batch { epoch: Some(3), ..put("a", "2") }).unwrap_err();
        assert!(matches!(error, StoreError::EpochChanged { expected: 3, found: 4 }));
        store.commit(&Batch { epoch: Some(4), ..put("b", "3") }).unwrap();
        let loaded = store.load().unwrap();
        assert_eq!((loaded["a"].clone(), loaded["b"].clone(), loaded.len()), (encode(&"1"), encode(&"3"), 3));
        assert_eq!(store.commits(), 3);
    }
}

#[test]
fn batches_are_joined_in_their_order() {
    let mut batch = put("a", "1");
    batch.extend(delete("a"));
    assert_eq!(batch, delete("a"));
    batch.extend(put("a", "2"));
    batch.put("b".to_owned(), encode(&"3"));
    batch.delete("b".to_owned());
    let mut store = MemoryStore::new(records(&[("b", "old")]));
    store.commit(&batch).unwrap();
    assert_eq!(store.load().unwrap(), records(&[("a", "2")]));
    let old = records(&[("a", "1"), ("b", "2")]);
    let new = records(&[("b", "3"), ("c", "4")]);
    let mut store = MemoryStore::new(old.clone());
    store.commit(&Batch::replacing(&old, new.clone())).unwrap();
    assert_eq!(store.load().unwrap(), new);
}

#[test]
fn a_flipped_bit_is_found_and_the_record_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    drop(SqliteStore::create(&path, &records(&[("node/node1", "an address"), ("z", "other")])).unwrap());
    flip(&path, "an address");
    let error = SqliteStore::open(&path).unwrap().load().unwrap_err();
    let path = path.display();
    let expected = format!(
        "record node/node1 of the store {path} is damaged: restore a backup: muster-masterd --restore FILE"
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn the_stores_record_of_itself_is_checked_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    drop(SqliteStore::create(&path, &records(&[("a", "1")])).unwrap());
    flip(&path, "\"commits\"");
    let error = SqliteStore::open(&path).err().unwrap();
    assert!(matches!(error, StoreError::DamagedRecord { ref key, .. } if key == "meta"), "{error}");
}

#[test]
fn a_torn_file_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    let big = "x".repeat(100_000);
    drop(SqliteStore::create(&path, &records(&[("a", &big), ("b", "2")])).unwrap());
    let length = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length / 2).unwrap();
    let error = SqliteStore::open(&path).and_then(|store| store.load()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().ends_with("muster-masterd --restore FILE"), "{error}");
}

#[test]
fn commits_lost_from_the_log_show_in_the_counter() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("cluster.db"), folder.path().join("copy.db"));
    let mut store = SqliteStore::create(&path, &records(&[("a", "0")])).unwrap();
    for number in 1..=9 {
        store.commit(&put("a", &format!("value {number}"))).unwrap();
    }
    for suffix in ["", "-wal"] {
        fs::copy(files::beside(&path, suffix), files::beside(&copy, suffix)).unwrap();
    }
    // SQLite ends its reading of the log at the first damaged page: all that came later is gone without an error.
    flip(&files::beside(&copy, "-wal"), "value 5");
    let copy = SqliteStore::open(&copy).unwrap();
    assert_eq!(copy.load().unwrap(), records(&[("a", "value 4")]));
    assert_eq!((copy.commits(), store.commits()), (4, 9));
}

#[test]
fn a_record_that_was_taken_away_or_put_back_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    let mut store = SqliteStore::create(&path, &records(&[("a", "1"), ("b", "2")])).unwrap();
    let copy = folder.path().join("copy.db");
    store.backup(&copy).unwrap();
    store.commit(&put("a", "newer")).unwrap();
    drop(store);
    with_shell(&path, "DELETE FROM records WHERE key = 'b'");
    let error = SqliteStore::open(&path).unwrap().load().unwrap_err().to_string();
    assert!(error.contains("1 records instead of 2"), "{error}");
    let attach = format!(
        "ATTACH '{}' AS old; INSERT OR REPLACE INTO records SELECT * FROM old.records",
        copy.display()
    );
    with_shell(&path, &format!("{attach} WHERE key <> 'meta'"));
    let error = SqliteStore::open(&path).unwrap().load().unwrap_err().to_string();
    assert!(error.contains("not all of the same state"), "{error}");
}

#[test]
fn what_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    assert!(matches!(SqliteStore::open(&path).err().unwrap(), StoreError::File { what: "open", .. }));
    fs::write(&path, "").unwrap();
    assert!(matches!(SqliteStore::open(&path).err().unwrap(), StoreError::NotAStore { .. }));
    fs::write(&path, "x".repeat(8192)).unwrap();
    assert!(matches!(SqliteStore::open(&path).err().unwrap(), StoreError::NotAStore { .. }));
    fs::remove_file(&path).unwrap();
    with_shell(&path, "CREATE TABLE other (a TEXT)");
    assert!(matches!(SqliteStore::open(&path).err().unwrap(), StoreError::NotAStore { .. }));
}

fn nothing(_: Records) -> Records {
    unreachable!("this upgrade is of an older format than the file's")
}

fn upgrade(mut old: Records) -> Records {
    old.insert("made by the upgrade".to_owned(), encode(&old.len()));
    old
}

#[test]
fn an_older_file_is_copied_and_upgraded_and_a_newer_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    let old = records(&[("a", "1"), ("b", "2")]);
    drop(SqliteStore::create(&path, &old).unwrap());
    let next = Format { version: FORMAT_VERSION + 1, upgrades: &[nothing, upgrade] };
    let store = SqliteStore::open_as(&path, &next).unwrap();
    assert_eq!(store.load().unwrap(), upgrade(old.clone()));
    drop(store);
    // The program of before: refuses the file, and opens the copy.
    let error = SqliteStore::open(&path).err().unwrap();
    assert!(matches!(error, StoreError::Newer { found: 3, known: 2, .. }), "{error}");
    assert!(error.to_string().contains("start the newer version again"), "{error}");
    let copy = folder.path().join("cluster.db.format-2.backup");
    assert_eq!(SqliteStore::open(&copy).unwrap().load().unwrap(), old);
    // The next program opens it again without upgrading it twice.
    assert_eq!(SqliteStore::open_as(&path, &next).unwrap().load().unwrap(), upgrade(old));
}

#[test]
fn a_second_opener_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master/cluster.db");
    let first = MasterStore::open(&path).unwrap();
    let error = MasterStore::open(&path).err().unwrap();
    assert!(
        matches!(error, StoreError::InUse { .. }) && error.to_string().contains("second master"),
        "{error}"
    );
    drop(first);
    assert!(MasterStore::open(&path).is_ok());
}

#[test]
fn an_operator_can_look_into_the_store_of_a_running_master() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    let mut store = MasterStore::open(&path).unwrap();
    store.commit(&put(keys::CLUSTER, "c")).unwrap();
    let looking =
        rusqlite::Connection::open_with_flags(&path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let sql = "SELECT value FROM records WHERE key = 'cluster'";
    let value: String = looking.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(value, store.load().unwrap()[keys::CLUSTER]);
    store.commit(&put("a", "1")).unwrap();
}

#[test]
fn a_copy_of_a_running_store_can_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    let mut store = MasterStore::open(&path).unwrap();
    let copy = folder.path().join("copy.db");
    assert!(snapshot(&path, &copy).is_err());
    store.commit(&put(keys::CLUSTER, "c")).unwrap();
    store.commit(&put("a", "1")).unwrap();
    let contents = snapshot(&path, &copy).unwrap();
    let then = store.load().unwrap();
    assert_eq!((contents.format, contents.commits, &contents.records), (FORMAT_VERSION, 1, &then));
    store.commit(&put("a", "2")).unwrap();
    let opened = SqliteStore::open(&copy).unwrap();
    assert_eq!((opened.load().unwrap(), opened.commits()), (then, 1));
    drop(opened);
    snapshot(&path, &copy).unwrap();
    assert_eq!(SqliteStore::open(&copy).unwrap().load().unwrap(), store.load().unwrap());
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn nothing_is_on_disk_before_there_is_a_cluster_nor_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    let mut store = MasterStore::open(&path).unwrap();
    store.commit(&put(&keys::job(1), "init, denied")).unwrap();
    assert!(names(folder.path()).is_empty() && !store.is_durable());

    // Leftovers of another store must not leak into the new one.
    fs::write(folder.path().join("cluster.db-wal"), "left behind").unwrap();
    fs::write(folder.path().join("cluster.db.new"), "left behind").unwrap();
    store.commit(&put(keys::CLUSTER, "c")).unwrap();
    store.commit(&put("node/node1", "n")).unwrap();
    assert!(store.is_durable());
    let all = records(&[(keys::CLUSTER, "c"), ("node/node1", "n"), (&keys::job(1), "init, denied")]);
    drop(store);
    let mut store = MasterStore::open(&path).unwrap();
    assert_eq!(store.load().unwrap(), all);

    let mut end = delete(keys::CLUSTER);
    end.extend(put(&keys::job(2), "destroy"));
    store.commit(&end).unwrap();
    assert!(names(folder.path()).is_empty() && !store.is_durable());
    let jobs = records(&[(&keys::job(1), "init, denied"), (&keys::job(2), "destroy")]);
    assert_eq!(store.load().unwrap(), jobs);
    store.commit(&put(keys::CLUSTER, "another")).unwrap();
    assert!(store.is_durable() && path.exists());
}

#[test]
fn a_destruction_that_was_interrupted_is_finished_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    drop(SqliteStore::create(&path, &records(&[(&keys::job(2), "destroy")])).unwrap());
    let store = MasterStore::open(&path).unwrap();
    assert!(store.load().unwrap().is_empty() && names(folder.path()).is_empty());
}

#[test]
fn a_creation_that_was_interrupted_leaves_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    drop(SqliteStore::create(&folder.path().join("cluster.db.new"), &Records::new()).unwrap());
    let store = MasterStore::open(&path).unwrap();
    assert!(!store.is_durable() && store.load().unwrap().is_empty());
}

fn node(name: &str) -> Node {
    let name = NodeName::parse(name).unwrap();
    let ip = "192.0.2.1".parse().unwrap();
    let uuid = Uuid::from_u128(5);
    Node {
        uuid,
        name,
        primary_ip: ip,
        secondary_ip: ip,
        port: 1811,
        offline: false,
        drained: false,
        hooks_only: false,
        master_candidate: false,
        group: Uuid::nil(),
        tags: Default::default(),
        fingerprints: vec![],
    }
}

fn cluster() -> Cluster {
    let mut cluster = Cluster { name: ClusterName::parse("dev").unwrap(), ..ops::examples::cluster() };
    let name = ClientName::parse("monitor").unwrap();
    let (role, fingerprint) = (ClientRole::Reader, "ab".repeat(32));
    let client = Client { name: name.clone(), uuid: Uuid::from_u128(6), role, fingerprint, created_ms: 7 };
    cluster.clients.insert(name, client);
    let call =
        Call::Node(NodeName::parse("node1").unwrap(), NodeCall::DiskRemove { disk: Uuid::from_u128(8) });
    let cleanup = Cleanup { call, once: false, attempts: 2, last_error: Some("busy".to_owned()) };
    cluster.cleanups.insert(CleanupId { job: 3, index: 1 }, cleanup);
    cluster
}

#[test]
fn a_configuration_comes_back_from_its_records() {
    let cluster = cluster();
    assert!(!cluster.nodes.is_empty() && !cluster.instances.is_empty());
    let batch = records_of(Some(&cluster), [&Touched::All]);
    let records: Records = batch.puts.into_iter().collect();
    assert_eq!(cluster_from(&records).unwrap(), Some(cluster));
    assert_eq!(cluster_from(&Records::new()).unwrap(), None);
}

#[test]
fn a_commit_writes_what_was_touched_and_no_more() {
    let mut cluster = cluster();
    let name = NodeName::parse("a-new-node").unwrap();
    cluster.nodes.insert(name.clone(), node("a-new-node"));
    let touched = [Touched::Node(name.clone()), Touched::Node(NodeName::parse("gone").unwrap())];
    let batch = records_of(Some(&cluster), &touched);
    let keys: Vec<&str> = batch.puts.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!((keys, batch.deletes), (vec!["cluster", "node/a-new-node"], vec!["node/gone".to_owned()]));
    assert!(records_of(Some(&cluster), []).is_empty());
    assert_eq!(records_of(None, [&Touched::Nothing]), delete("cluster"));
}

#[test]
fn records_that_do_not_fit_together_are_refused() {
    let name = NodeName::parse("node9").unwrap();
    let alone: Records = [(keys::node(&name), encode(&node("node9")))].into();
    let error = cluster_from(&alone).unwrap_err();
    assert_eq!(error.to_string(), "there is a record node/node9, but no record of the cluster");
    let batch = records_of(Some(&cluster()), [&Touched::All]);
    let mut moved: Records = batch.puts.into_iter().collect();
    moved.insert(keys::node(&name), encode(&node("node8")));
    assert_eq!(
        cluster_from(&moved).unwrap_err().to_string(),
        "record node/node9 holds something of another name"
    );
    moved.insert(keys::node(&name), "{\"version\":1}".to_owned());
    assert!(matches!(cluster_from(&moved).unwrap_err(), ClusterRecordError::Value(_)));
}

#[test]
fn jobs_are_in_the_order_of_their_numbers() {
    let keys: Vec<String> = [1, 2, 10, u64::MAX].map(keys::job).into();
    assert!(keys.is_sorted());
    assert_eq!(keys.iter().map(|key| keys::job_id(key)).collect::<Vec<_>>(), [1, 2, 10, u64::MAX].map(Some));
    assert_eq!(keys::job_id("node/1"), None);
}
