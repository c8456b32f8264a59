//! Watches `hooks_source`, by looking at it, and syncs after a change.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use muster_core::hooks::Digest;
use muster_proto::hookset::digest_of;
use tokio::{sync::mpsc, time::sleep};

use super::sync::{SyncFailure, Wish, sync};
use crate::master::{Master, Standing};

/// How often the directory is looked at; a change counts when it has stood for as long.
const LOOK_PERIOD: Duration = Duration::from_secs(2);
/// What was not synced, and may be with the same files, is tried again after this.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Files that are looked at: far more than a set may have.
const LOOKED_AT_MAX: usize = 50_000;
/// Who asks where nobody did.
const USER: &str = "muster-masterd (hooks_on_change)";

/// What the directory looked like when it was last synced.
pub(crate) struct Changes {
    dir: PathBuf,
    seen: Option<Digest>,
    /// When to go on though nothing has changed.
    retry: Option<Instant>,
}

impl Changes {
    /// Of a directory as it is now.
    pub(crate) async fn of(dir: PathBuf) -> Self {
        let seen = look(dir.clone()).await;
        Changes { dir, seen, retry: None }
    }

    /// Of a directory of which nothing was synced, as far as is known.
    fn unsynced(dir: PathBuf) -> Self {
        Changes { dir, seen: None, retry: None }
    }

    /// What has changed last was not synced.
    pub(crate) fn failed(&mut self, why: &SyncFailure) {
        self.retry = why.may_pass().then(|| Instant::now() + RETRY_PAUSE);
    }

    /// Waits until the directory has changed, and stands still; or until what failed is to be tried again.
    pub(crate) async fn wait(&mut self) {
        let mut before = self.seen;
        loop {
            sleep(LOOK_PERIOD).await;
            let now = look(self.dir.clone()).await;
            let is_due = self.retry.is_some_and(|at| Instant::now() >= at);
            if is_due || (now.is_some() && now != self.seen && now == before) {
                (self.seen, self.retry) = (now, None);
                return;
            }
            before = now;
        }
    }
}

async fn look(dir: PathBuf) -> Option<Digest> {
    tokio::task::spawn_blocking(move || {
        let (mut text, mut left) = (String::new(), LOOKED_AT_MAX);
        describe(&dir, &mut text, &mut left).then(|| digest_of(text.as_bytes()))
    })
    .await
    .ok()
    .flatten()
}

/// Names, kinds, modes, lengths and times of all that is in a directory; false where it can't be read.
fn describe(dir: &Path, text: &mut String, left: &mut usize) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let Some(fewer) = left.checked_sub(1) else { return true };
        *left = fewer;
        let Ok(found) = fs::symlink_metadata(&path) else { return false };
        let (mode, size, inode) = (found.mode(), found.size(), found.ino());
        let (seconds, nanoseconds) = (found.mtime(), found.mtime_nsec());
        text.push_str(&format!("{path:?} {mode} {size} {inode} {seconds}.{nanoseconds}\n"));
        if found.is_dir() && !describe(&path, text, left) {
            return false;
        }
    }
    true
}

/// Syncs after each change, where the configuration says so, until the daemon stops.
pub(crate) async fn keep_on_change(master: Arc<Master>) {
    let Some(dir) = master.config.hooks_source.clone().filter(|_| master.config.hooks_on_change) else {
        return;
    };
    let stop = master.stop.clone();
    tokio::select! {
        () = on_change(&master, dir) => {}
        () = stop.cancelled() => {}
    }
}

async fn on_change(master: &Arc<Master>, dir: PathBuf) {
    // What was edited while a master in office did not run counts. What lay there before this host had the office does not: it
    // may be older than the cluster's set.
    let mut changes = match master.standing() {
        Standing::Active => Changes::unsynced(dir.clone()),
        Standing::NoCluster | Standing::Standby | Standing::Retired { .. } => {
            in_office(master).await;
            Changes::of(dir.clone()).await
        }
    };
    loop {
        changes.wait().await;
        in_office(master).await;
        if let Err(error) = synced(master).await {
            changes.failed(&error);
            let error = crate::chain(&error);
            tracing::error!(error, "hooks_source has changed and was not synced");
        }
    }
}

async fn in_office(master: &Master) {
    while master.standing() != Standing::Active {
        sleep(LOOK_PERIOD).await;
    }
}

async fn synced(master: &Arc<Master>) -> Result<(), SyncFailure> {
    let (told, nobody) = mpsc::channel(1);
    drop(nobody);
    let wish = Wish { nodes: None, full: false, only_new: true, user: USER.to_owned() };
    let syncing = {
        let master = master.clone();
        // What was begun goes on when this daemon stops to watch.
        tokio::spawn(async move { sync(&master, &wish, &told).await })
    };
    let done = syncing.await.map_err(|error| SyncFailure::Stopping(error.to_string()))??;
    if done.nodes > 0 {
        tracing::info!(nodes = done.nodes, behind = done.behind, "hooks_source has changed and was synced");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_changed_time_mode_or_name_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_owned();
        fs::create_dir(dir.join("lib")).unwrap();
        fs::write(dir.join("lib/x"), "1").unwrap();
        let first = look(dir.clone()).await;
        assert!(first.is_some() && first == look(dir.clone()).await);
        fs::File::open(dir.join("lib/x")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        let second = look(dir.clone()).await;
        assert_ne!(first, second);
        fs::rename(dir.join("lib/x"), dir.join("lib/y")).unwrap();
        assert_ne!(second, look(dir.clone()).await);
        assert_eq!(look(dir.join("none")).await, None);
    }

    #[tokio::test]
    async fn what_failed_and_may_pass_is_tried_again_and_all_else_waits_for_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let mut changes = Changes::of(folder.path().to_owned()).await;
        for (failure, is_tried_again) in [
            (SyncFailure::Another, true),
            (SyncFailure::Refused("no".to_owned()), false),
            (SyncFailure::Unasked("no answer".to_owned()), true),
        ] {
            changes.failed(&failure);
            assert_eq!(changes.retry.is_some(), is_tried_again, "{failure}");
        }
        // The pause is over.
        changes.retry = Some(Instant::now());
        changes.wait().await;
        assert_eq!(changes.retry, None);
        // Nothing was synced: that the directory stands still is enough.
        Changes::unsynced(folder.path().to_owned()).wait().await;
    }
}
