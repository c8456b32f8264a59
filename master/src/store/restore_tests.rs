//! Backups and restores of a store's file, and what lost commits look like.

use std::{fs, path::Path};

use muster_core::{edit::Touched, model::Cluster, ops};

use super::{files::beside, *};

fn cluster() -> Cluster {
    ops::examples::cluster()
}

/// A store with a cluster, as a master that was stopped leaves it.
fn stopped(path: &Path) -> MasterStore {
    let mut store = MasterStore::open(path).unwrap();
    let mut batch = records_of(Some(&cluster()), [&Touched::All]);
    batch.put(keys::EPOCH.to_owned(), encode(&3));
    store.commit(&batch).unwrap();
    store
}

fn any(_: &Cluster) -> Result<(), String> {
    Ok(())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_restore_keeps_the_present_store_and_puts_the_backup_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master/cluster.db");
    let file = folder.path().join("backup");
    let mut store = stopped(&path);
    snapshot(&path, &file).unwrap();
    let then = store.load().unwrap();
    for number in 1..=5 {
        store.commit(&Batch { puts: vec![("a".to_owned(), encode(&number))], ..Batch::default() }).unwrap();
    }
    let error = restore(&path, &file, "now", any).unwrap_err();
    assert!(matches!(error, RestoreError::Store(StoreError::InUse { .. })), "{error}");
    let now = store.load().unwrap();
    drop(store);

    let restored = restore(&path, &file, "now", any).unwrap();
    assert_eq!((restored.cluster, restored.epoch, restored.archived), (cluster(), 3, 0));
    let kept = restored.kept.unwrap();
    assert_eq!(kept, beside(&path, ".before-restore-now"));
    assert_eq!(SqliteStore::open(&kept).unwrap().load().unwrap(), now);
    let store = MasterStore::open(&path).unwrap();
    assert_eq!(store.load().unwrap(), then, "the note of later commits is not held against the backup");
    drop(store);
    // The same again: the name that is taken is not taken twice.
    let kept = restore(&path, &file, "now", any).unwrap().kept.unwrap();
    assert_eq!(kept, beside(&path, ".before-restore-now.2"));
    fs::remove_file(&path).unwrap();
    assert_eq!(restore(&path, &file, "later", any).unwrap().archived, 0);
    assert!(!names(path.parent().unwrap()).iter().any(|name| name.contains("cluster.db.restore")));
}

#[test]
fn what_is_no_whole_backup_is_refused_and_nothing_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master/cluster.db");
    let file = folder.path().join("backup");
    let mut store = stopped(&path);
    store.commit(&Batch::archiving(vec![(keys::job(1), encode(&"an archived job"))])).unwrap();
    snapshot(&path, &file).unwrap();
    drop(store);
    let whole = fs::read(&file).unwrap();
    let flipped = |text: &str| {
        let mut bytes = whole.clone();
        // Everywhere: SQLite leaves old bytes in the unused parts of pages.
        let found = |at: &usize| bytes[*at..].starts_with(text.as_bytes());
        let places: Vec<usize> = (0..bytes.len()).filter(found).collect();
        assert!(!places.is_empty(), "{text}");
        places.into_iter().for_each(|at| bytes[at] ^= 1);
        bytes
    };
    let newer = folder.path().join("newer");
    fs::write(&newer, &whole).unwrap();
    let connection = rusqlite::Connection::open(&newer).unwrap();
    let meta: String =
        connection.query_row("SELECT value FROM records WHERE key = 'meta'", [], |row| row.get(0)).unwrap();
    let meta = meta.replace("\"format\":2", "\"format\":9");
    let sum = format::checksum("meta", &meta);
    let write = "UPDATE records SET value = ?1, checksum = ?2 WHERE key = 'meta'";
    connection.execute(write, rusqlite::params![meta, sum]).unwrap();
    drop(connection);
    let none = folder.path().join("none");
    drop(SqliteStore::create(&none, &Records::new()).unwrap());

    let before = (names(path.parent().unwrap()), fs::read(&path).unwrap());
    for (bytes, reason) in [
        (Vec::new(), "it is not a store of Muster"),
        (b"# a configuration file, longer than any header".to_vec(), "it is not a store of Muster"),
        (whole[..whole.len() / 2].to_vec(), "it is damaged"),
        (whole[..4096].to_vec(), "it is damaged"),
        (flipped("192.0.2."), "is damaged"),
        (flipped("an archived job"), "its record job/00000000000000000001 is damaged"),
        (fs::read(&newer).unwrap(), "it has format 9, and this program knows formats up to 2"),
        (fs::read(&none).unwrap(), "it holds no cluster"),
    ] {
        fs::write(&file, bytes).unwrap();
        let error = restore(&path, &file, "now", any)
            .err()
            .unwrap_or_else(|| panic!("restored: {reason}"))
            .to_string();
        assert!(error.contains(&file.display().to_string()) && error.contains(reason), "{reason}: {error}");
        assert!(error.ends_with("the store was not touched"), "{error}");
    }
    fs::write(&file, &whole).unwrap();
    let error = restore(&path, &file, "now", |_| Err("it is of another cluster".to_owned())).unwrap_err();
    assert!(error.to_string().contains("it is of another cluster"), "{error}");
    fs::remove_file(&file).unwrap();
    assert!(matches!(restore(&path, &file, "now", any), Err(RestoreError::File { what: "open", .. })));
    assert_eq!((names(path.parent().unwrap()), fs::read(&path).unwrap()), before);
}

#[test]
fn a_file_copied_by_hand_is_restored_with_the_log_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master/cluster.db");
    let mut store = stopped(&path);
    store.commit(&Batch { puts: vec![("a".to_owned(), encode(&1))], ..Batch::default() }).unwrap();
    let now = store.load().unwrap();
    let copy = folder.path().join("copy.db");
    for suffix in ["", "-wal"] {
        fs::copy(beside(&path, suffix), beside(&copy, suffix)).unwrap();
    }
    drop(store);
    restore(&path, &copy, "now", any).unwrap();
    assert_eq!(MasterStore::open(&path).unwrap().load().unwrap(), now);
}

#[test]
fn a_file_that_lost_the_end_of_its_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    let mut store = stopped(&path);
    for number in 1..=9 {
        store
            .commit(&Batch {
                puts: vec![("a".to_owned(), encode(&format!("value {number}")))],
                ..Batch::default()
            })
            .unwrap();
    }
    let log = fs::read(beside(&path, "-wal")).unwrap();
    let main = fs::read(&path).unwrap();
    drop(store);
    for damage in ["flip", "cut", "gone"] {
        fs::write(&path, &main).unwrap();
        let mut bytes = log.clone();
        let at = bytes.windows(7).rposition(|window| window == b"value 9").unwrap();
        match damage {
            "flip" => bytes[at] ^= 1,
            "cut" => bytes.truncate(at),
            _ => bytes.clear(),
        }
        fs::write(beside(&path, "-wal"), bytes).unwrap();
        let error = MasterStore::open(&path).err().unwrap().to_string();
        assert!(
            error.contains("and commit 9 was answered") && error.contains("--restore"),
            "{damage}: {error}"
        );
        let kept = fs::metadata(beside(&path, "-wal")).map_or(0, |found| found.len());
        let whole = u64::try_from(log.len()).unwrap();
        assert!(damage != "flip" || kept == whole, "what stands behind the damage is not removed");
    }
    // Whole again, whole again.
    fs::write(&path, &main).unwrap();
    fs::write(beside(&path, "-wal"), &log).unwrap();
    assert_eq!(MasterStore::open(&path).unwrap().commits(), 9);
}

#[test]
fn what_a_killed_master_left_of_copies_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    drop(stopped(&path));
    let before = names(folder.path());
    for name in [
        "cluster.db.snapshot",
        "cluster.db.snapshot.new",
        "cluster.db.snapshot.new-journal",
        "cluster.db.restore",
    ] {
        fs::write(folder.path().join(name), "left behind").unwrap();
    }
    drop(MasterStore::open(&path).unwrap());
    assert_eq!(names(folder.path()), before);
}
