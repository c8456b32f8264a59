//! Kills a process in the middle of its commits and looks at what is left.

use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Batch, MasterStore, Records, SqliteStore, Store, decode, encode, keys};

/// Names the store's file to the child.
const CHILD: &str = "MUSTER_TEST_CRASH_STORE";
/// What the child says when a commit has returned.
const SAID: &str = "committed ";

/// Commits 1, 2, 3 ... without end, each as two records and the deletion of an older one.
fn commit_for_ever(path: &Path) -> ! {
    let mut store = MasterStore::open(path).unwrap();
    let last = |records: &Records| records.get("last").map_or(0, |text| decode("last", text).unwrap());
    let mut number: u64 = last(&store.load().unwrap());
    loop {
        number += 1;
        let mut batch = Batch::default();
        batch.put(keys::CLUSTER.to_owned(), encode(&"c"));
        batch.put("last".to_owned(), encode(&number));
        batch.put(format!("at/{}", number % 50), encode(&(number, "x".repeat(2000))));
        batch.delete(format!("at/{}", (number + 25) % 50));
        store.commit(&batch).unwrap();
        println!("{SAID}{number}");
    }
}

/// Runs this test in a process of its own, and kills it after so many commits; gives the last one that it spoke of.
fn killed_after(path: &Path, commits: usize) -> u64 {
    let test = "store::crash_tests::every_commit_that_was_answered_survives_kill_9";
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = lines.by_ref().map_while(Result::ok).filter_map(number_of);
    let before = said.by_ref().take(commits).last().expect("the child commits");
    child.kill().unwrap();
    child.wait().unwrap();
    // What it said between the last line read and its end.
    said.last().unwrap_or(before)
}

fn number_of(line: String) -> Option<u64> {
    // The harness may have left something without a line's end before it.
    line.rsplit_once(SAID)?.1.parse().ok()
}

#[test]
fn every_commit_that_was_answered_survives_kill_9() {
    if let Some(path) = env::var_os(CHILD) {
        commit_for_ever(&PathBuf::from(path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.db");
    for commits in [1, 2, 17, 300, 5, 700] {
        let answered = killed_after(&path, commits);
        let store = SqliteStore::open(&path).unwrap();
        let records = store.load().unwrap();
        let last: u64 = decode("last", &records["last"]).unwrap();
        // One more may be durable that it had no time to speak of.
        assert!((answered..=answered + 1).contains(&last), "{answered} was answered, {last} is there");
        assert_eq!(store.commits() + 1, last);
        let (at, _): (u64, String) = decode("at", &records[&format!("at/{}", last % 50)]).unwrap();
        assert_eq!(at, last);
        assert!(!records.contains_key(&format!("at/{}", (last + 25) % 50)));
    }
}
