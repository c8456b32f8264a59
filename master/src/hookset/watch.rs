//! Watches `hooks_source`, by looking at it, and syncs after a change.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use muster_core::hooks::Digest;
use muster_proto::hookset::digest_of;
use tokio::sync::mpsc;

use super::sync::{SyncFailure, Wish, sync};
use crate::master::{Master, Standing};

/// How often the directory is looked at; a change counts when it has stood for as long.
const LOOK_PERIOD: Duration = Duration::from_secs(2);
/// Files that are looked at: far more than a set may have.
const LOOKED_AT_MAX: usize = 50_000;
/// Who asks where nobody did.
const USER: &str = "muster-masterd (hooks_on_change)";

/// What the directory looked like when it was last synced.
pub(crate) struct Changes {
    dir: PathBuf,
    seen: Option<Digest>,
}

impl Changes {
    /// Of a directory as it is now.
    pub(crate) async fn of(dir: PathBuf) -> Self {
        let seen = look(dir.clone()).await;
        Changes { dir, seen }
    }

    /// Waits until the directory has changed, and stands still.
    pub(crate) async fn wait(&mut self) {
        let mut before = self.seen;
        loop {
            tokio::time::sleep(LOOK_PERIOD).await;
            let now = look(self.dir.clone()).await;
            if now.is_some() && now != self.seen && now == before {
                self.seen = now;
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
    let mut changes = Changes::of(dir).await;
    loop {
        tokio::select! {
            () = changes.wait() => {}
            () = master.stop.cancelled() => return,
        }
        if master.standing() != Standing::Active {
            continue;
        }
        let (told, nobody) = mpsc::channel(1);
        drop(nobody);
        let wish = Wish { nodes: None, full: false, user: USER.to_owned() };
        match sync(&master, &wish, &told).await {
            Ok(done) => tracing::info!(
                nodes = done.nodes,
                behind = done.behind,
                "hooks_source has changed and was synced"
            ),
            Err(SyncFailure::Another) => changes.seen = None,
            Err(error) => {
                tracing::error!(error = crate::chain(&error), "hooks_source has changed and was not synced")
            }
        }
    }
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
}
