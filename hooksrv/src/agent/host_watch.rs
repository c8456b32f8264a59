//! What this host is, looked at when the daemon starts, every minute, and when the master asks; the master is told at once
//! of a change, and every hour that all is as it was.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use muster_core::facts::NodeFacts;
use muster_proto::{convert::host::host_facts, v1};
use tokio::{
    sync::{Notify, OwnedMutexGuard},
    time::{sleep, timeout},
};

use super::{
    Agent,
    host_qemu::{Qemu, Seen},
    host_read, node_state,
};

/// How often the host is looked at. A look reads some small files.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// What has not changed counts as looked at anew after this.
const COLLECT_INTERVAL: Duration = Duration::from_secs(3600);
/// A look takes no longer: a device that hangs is waited for in the background, by one thread.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// A master that asks waits no longer; it gets what was known before. Below its own limit for a fresh state.
const REFRESH_LIMIT: Duration = Duration::from_secs(2);

/// What was found.
#[derive(Debug, Clone)]
struct Known {
    facts: NodeFacts,
    collected_ms: u64,
    at: Instant,
}

/// The host as it was found last.
#[derive(Debug)]
pub(super) struct HostWatch {
    root: PathBuf,
    hooks_only: bool,
    qemu: Qemu,
    known: Mutex<Option<Known>>,
    /// Told when the next look is not to be waited for.
    wake: Notify,
    /// One look at a time; held by the thread that looks, for as long as it hangs.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl HostWatch {
    /// Nothing is known before the first look. `root` is the host's root directory as this process sees it.
    pub(super) fn new(root: PathBuf, hooks_only: bool) -> Self {
        HostWatch {
            root,
            hooks_only,
            qemu: Qemu::default(),
            known: Mutex::default(),
            wake: Notify::new(),
            turn: Default::default(),
        }
    }

    /// What was found last, for the wire.
    pub(super) fn told(&self) -> Option<v1::HostFacts> {
        self.known().as_ref().map(|known| host_facts(&known.facts, known.collected_ms))
    }

    /// Looks; whether there is something that the master does not know. `asked` says that what was found counts as new
    /// whether it is or not.
    async fn look(&self, asked: bool) -> bool {
        let Ok(Some((turn, mut facts, seen))) = timeout(LOOK_LIMIT, self.read()).await else {
            tracing::warn!("this host's facts could not be read within {LOOK_LIMIT:?}");
            return false;
        };
        if let Some(seen) = seen {
            let found = self.qemu.ask(seen).await;
            (facts.hypervisors, facts.qemu_version) = (found.hypervisors, found.version);
        }
        let is_news = self.found(facts.bounded(), asked);
        drop(turn);
        is_news
    }

    async fn read(&self) -> Option<(OwnedMutexGuard<()>, NodeFacts, Option<Seen>)> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let (root, hooks_only) = (self.root.clone(), self.hooks_only);
        let read = tokio::task::spawn_blocking(move || {
            let seen = (!hooks_only).then(Seen::look);
            (turn, host_read::host(&root), seen)
        });
        read.await.ok()
    }

    fn found(&self, facts: NodeFacts, asked: bool) -> bool {
        let mut slot = self.known();
        let old = slot.as_ref();
        let is_news = old.is_none_or(|old| old.facts != facts || old.at.elapsed() >= COLLECT_INTERVAL);
        if is_news || asked {
            *slot = Some(Known { facts, collected_ms: node_state::now_ms(), at: Instant::now() });
        }
        is_news || asked
    }

    /// Looks because the master asks.
    pub(super) async fn refresh(&self) {
        if timeout(REFRESH_LIMIT, self.look(true)).await.is_err() {
            tracing::warn!("this host's facts could not be read within {REFRESH_LIMIT:?}");
        }
    }

    /// Has the host looked at soon: who begins to listen wants to hear how it is now.
    pub(super) fn look_soon(&self) {
        self.wake.notify_one();
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks again and again until the daemon stops.
pub(super) async fn keep(agent: Arc<Agent>) {
    let looking = async {
        loop {
            if agent.host().look(false).await {
                agent.changed();
            }
            tokio::select! {
                () = sleep(LOOK_INTERVAL) => {}
                () = agent.host().wake.notified() => {}
            }
        }
    };
    tokio::select! {
        () = looking => {}
        () = agent.stopping().cancelled() => {}
    }
}

/// Looks once, for a host that asks to join.
pub(super) async fn look_once(root: PathBuf, hooks_only: bool) -> Option<v1::HostFacts> {
    let watch = HostWatch::new(root, hooks_only);
    watch.look(true).await;
    watch.told()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_change_is_news_and_a_second_look_is_not() {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        fs::create_dir(&etc).unwrap();
        let watch = HostWatch::new(root.path().to_owned(), true);
        assert!(watch.told().is_none());
        assert!(watch.look(false).await, "the first look");
        assert!(!watch.look(false).await);
        fs::write(etc.join("os-release"), "ID=debian\n").unwrap();
        assert!(watch.look(false).await);
        let told = watch.told().unwrap();
        assert_eq!((told.os_name.as_str(), told.hypervisors.len()), ("debian", 0));
        assert!(told.collected_ms > 0);
        // While one thread hangs, no second one is made.
        let hanging = Arc::clone(&watch.turn).lock_owned().await;
        assert!(timeout(Duration::from_millis(50), watch.look(true)).await.is_err());
        drop(hanging);
        watch.refresh().await;
        assert!(watch.told().unwrap().collected_ms >= told.collected_ms);
        assert!(
            look_once(root.path().to_owned(), false).await.unwrap().hypervisors.contains(&"fake".to_owned())
        );
    }
}
