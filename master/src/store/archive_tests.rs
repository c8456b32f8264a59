//! The archive: what moves there, what is read from it, what it costs, and how its damage shows.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    format::{Meta, checksum},
    snapshot::examine,
    *,
};

fn put(key: &str, value: &str) -> Batch {
    Batch { puts: vec![(key.to_owned(), encode(&value))], ..Batch::default() }
}

fn archive(keys: &[String]) -> Batch {
    Batch { archives: keys.to_vec(), ..Batch::default() }
}

fn jobs(numbers: std::ops::RangeInclusive<u64>) -> Vec<(String, String)> {
    numbers.map(|number| (keys::job(number), encode(&format!("job {number}")))).collect()
}

fn new_file(folder: &Path) -> (PathBuf, SqliteStore) {
    let path = folder.join("cluster.db");
    let store = SqliteStore::create(&path, &[(keys::CLUSTER.to_owned(), encode(&"c"))].into()).unwrap();
    (path, store)
}

#[test]
fn all_stores_archive_alike() {
    let folder = tempfile::tempdir().unwrap();
    let (_, file) = new_file(folder.path());
    let mut master = MasterStore::open(&folder.path().join("master/cluster.db")).unwrap();
    master.commit(&put(keys::CLUSTER, "c")).unwrap();
    let memory = MemoryStore::new(file.load().unwrap());
    let mut stores: [Box<dyn Store>; 3] = [Box::new(file), Box::new(memory), Box::new(master)];
    for store in &mut stores {
        store.commit(&Batch { puts: jobs(1..=5), ..Batch::default() }).unwrap();
        // The job's last state is written with the same commit that archives it.
        let mut batch = put(&keys::job(3), "the end");
        batch.archive(keys::job(3));
        batch.archive(keys::job(1));
        batch.archive(keys::job(99));
        batch.put(keys::NEXT_JOB.to_owned(), encode(&6));
        store.commit(&batch).unwrap();
        let live: Vec<String> =
            store.load().unwrap().into_keys().filter(|key| keys::job_id(key).is_some()).collect();
        assert_eq!(live, [2, 4, 5].map(keys::job));
        assert_eq!(store.archived(&keys::job(3)).unwrap(), Some(encode(&"the end")));
        assert_eq!(store.archived(&keys::job(2)).unwrap(), None);
        assert_eq!(store.archived_count(), 2);
        store.commit(&archive(&[2, 4, 5].map(keys::job))).unwrap();
        assert_eq!(store.archived_keys(2).unwrap(), [5, 4].map(keys::job));
        assert_eq!(store.archived_keys(100).unwrap(), [5, 4, 3, 2, 1].map(keys::job));
        let page = store.archived_after(&keys::job(2), 2).unwrap();
        assert_eq!(page.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), [3, 4].map(keys::job));
        assert_eq!(page[1].1, encode(&"job 4"));
        assert_eq!(store.archived_after(&keys::job(5), 2).unwrap(), []);
        // A number that is given again after lost commits: the newer job counts.
        store.commit(&Batch::archiving(jobs(5..=5))).unwrap();
        assert_eq!(store.archived_count(), 5);
    }
}

#[test]
fn an_archived_record_stays_archived_when_batches_are_joined() {
    let job = || keys::job(1);
    let mut batch = put(&job(), "ended");
    batch.archive(job());
    batch.delete(job());
    batch.extend(Batch { deletes: vec![job(), "a".to_owned()], ..Batch::default() });
    assert_eq!((&batch.deletes, &batch.archives), (&vec!["a".to_owned()], &vec![job()]));
    let mut store = MemoryStore::default();
    store.commit(&batch).unwrap();
    assert_eq!(store.archived(&job()).unwrap(), Some(encode(&"ended")));
    assert!(store.load().unwrap().is_empty() && !archive(&[job()]).is_empty());
}

#[test]
fn the_archive_is_there_after_a_restart_and_in_copies() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut store) = new_file(folder.path());
    store.commit(&Batch::archiving(jobs(1..=3))).unwrap();
    let copy = folder.path().join("copy.db");
    assert_eq!(snapshot(&path, &copy).unwrap().archived, 3);
    drop(store);
    for path in [&path, &copy] {
        let store = SqliteStore::open(path).unwrap();
        assert_eq!((store.archived_count(), store.load().unwrap().len()), (3, 1));
        assert_eq!(store.archived(&keys::job(2)).unwrap(), Some(encode(&"job 2")));
    }
}

#[test]
fn jobs_archived_before_there_is_a_cluster_come_with_it_and_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    let mut store = MasterStore::open(&path).unwrap();
    store.commit(&Batch::archiving(jobs(1..=2))).unwrap();
    store.commit(&put(keys::NEXT_JOB, "3")).unwrap();
    store.commit(&put(keys::CLUSTER, "c")).unwrap();
    assert_eq!((store.archived_count(), store.is_durable()), (2, true));
    store.commit(&Batch { deletes: vec![keys::CLUSTER.to_owned()], ..Batch::default() }).unwrap();
    assert_eq!(store.archived_count(), 0);
    assert_eq!(store.load().unwrap().into_keys().collect::<Vec<_>>(), [keys::NEXT_JOB]);
}

#[test]
fn damage_in_the_archive_is_found_where_it_is_read_and_by_an_examination() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut store) = new_file(folder.path());
    store.commit(&Batch::archiving(jobs(1..=3))).unwrap();
    store.close().unwrap();
    // A copy has nothing in it but records: no bytes of those that were moved.
    let copy = folder.path().join("copy.db");
    snapshot(&path, &copy).unwrap();
    let path = copy;
    let whole = fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    let at = bytes.windows(5).position(|window| window == b"job 2").unwrap();
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.archived(&keys::job(1)).unwrap(), Some(encode(&"job 1")));
    let error = store.archived(&keys::job(2)).unwrap_err();
    assert!(matches!(&error, StoreError::DamagedRecord { key, .. } if *key == keys::job(2)), "{error}");
    assert!(store.archived_keys(9).is_err() && store.archived_after("", 9).is_err());
    drop(store);
    assert!(examine(&path).is_err());
    // One that was taken away shows in the sum, not in any record.
    fs::write(&path, whole).unwrap();
    let taken = format!("DELETE FROM archive WHERE key = '{}'", keys::job(2));
    rusqlite::Connection::open(&path).unwrap().execute_batch(&taken).unwrap();
    let error = examine(&path).unwrap_err().to_string();
    assert!(error.contains("2 archived records instead of 3"), "{error}");
    rusqlite::Connection::open(&path).unwrap().execute_batch("DROP TABLE archive").unwrap();
    let error = SqliteStore::open(&path).err().unwrap().to_string();
    assert!(error.contains("its archive is missing"), "{error}");
}

/// Makes a file as the first format's program left it.
fn first_format(path: &Path, records: &Records) {
    drop(SqliteStore::create(path, records).unwrap());
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut meta = serde_json::to_value(Meta::new(1)).unwrap();
    let sums = records.iter().map(|(key, value)| checksum(key, value));
    let mut counted = Meta::new(1);
    sums.for_each(|sum| counted.add(&sum));
    let counted = serde_json::to_value(counted).unwrap();
    for field in ["records", "sum"] {
        meta[field] = counted[field].clone();
    }
    let fields = meta.as_object_mut().unwrap();
    fields.remove("archived").unwrap();
    fields.remove("archive_sum").unwrap();
    let text = encode(&meta);
    let sum = checksum("meta", &text);
    connection.execute_batch("DROP TABLE archive").unwrap();
    let write = "UPDATE records SET value = ?1, checksum = ?2 WHERE key = 'meta'";
    connection.execute(write, rusqlite::params![text, sum]).unwrap();
}

#[test]
fn a_file_of_the_first_format_gets_an_archive_and_is_copied_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    let records: Records = [(keys::CLUSTER.to_owned(), encode(&"c")), (keys::job(1), encode(&"one"))].into();
    first_format(&path, &records);
    let mut store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.load().unwrap(), records);
    store.commit(&archive(&[keys::job(1)])).unwrap();
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.archived(&keys::job(1)).unwrap(), Some(encode(&"one")));
    let copy = examine(&folder.path().join("cluster.db.format-1.backup")).unwrap();
    assert_eq!((copy.format, copy.records, copy.archived), (1, records, 0));
}

/// Archived jobs of the size that real ones have.
fn fill(store: &mut SqliteStore, count: u64) {
    let body = "a line of a script's output, a node's name, a time in milliseconds; ".repeat(45);
    for first in (1..=count).step_by(1000) {
        let page = (first..first + 1000).map(|number| (keys::job(number), encode(&body)));
        store.commit(&Batch::archiving(page.collect())).unwrap();
    }
}

/// The quickest of some openings with all records read, as a start does them.
fn time_to_open(path: &Path) -> Duration {
    let once = || {
        let began = Instant::now();
        let store = SqliteStore::open(path).unwrap();
        assert!(store.load().unwrap().len() > 1000);
        began.elapsed()
    };
    (0..7).map(|_| once()).min().unwrap()
}

#[test]
fn a_start_reads_nothing_of_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut store) = new_file(folder.path());
    store.commit(&Batch { puts: jobs(900_000..=903_000), ..Batch::default() }).unwrap();
    let without = folder.path().join("without.db");
    snapshot(&path, &without).unwrap();
    fill(&mut store, 20_000);
    assert_eq!(store.archived_count(), 20_000);
    let full = folder.path().join("with.db");
    snapshot(&path, &full).unwrap();
    drop(store);
    let path = full;
    let (with, without) = (time_to_open(&path), time_to_open(&without));
    println!(
        "open and load: {without:?} without archive, {with:?} with 20,000 archived jobs, {} bytes",
        fs::metadata(&path).unwrap().len()
    );
    // Not a time but the cause of it: every page of the archive can be spoilt, and a start does not see it.
    let mut bytes = fs::read(&path).unwrap();
    let marker = b"a line of a script's output";
    let mut spoilt = 0;
    for page in bytes.chunks_mut(4096) {
        if page.windows(marker.len()).any(|window| window == marker) {
            page.fill(0x5a);
            spoilt += 1;
        }
    }
    assert!(spoilt > 10_000, "{spoilt} pages hold the archive");
    fs::write(&path, bytes).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.load().unwrap().len(), 3002);
    let error = store.archived(&keys::job(17)).unwrap_err().to_string();
    assert!(error.contains("with.db") && error.contains("--restore"), "{error}");
}
