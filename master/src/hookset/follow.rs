//! Brings nodes the set that they are to have: when they are connected to, before hooks run on them, and every now and then.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use muster_core::{hooks::Digest, names::NodeName, ops::sync_env};
use tokio::{
    sync::OwnedMutexGuard,
    time::{interval, timeout},
};
use tonic::Code;
use uuid::Uuid;

use crate::{
    master::{Master, Standing},
    nodes::{BeforeHooks, Brought, CallError, NodeClient, SetAsk, SetAttempt, SetOffer},
};

/// How often it is looked whether a node has what it should; that costs nothing.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How often a node is asked to compare its set, and one that did not take it is asked again.
const COMPARE_PERIOD: Duration = Duration::from_secs(30 * 60);
/// At most so much is added, so that not all nodes are asked at once.
const COMPARE_SPREAD_S: u128 = 300;
/// A node that is behind gets the set first, but hooks do not wait longer: old guards are better than none.
const BEFORE_HOOKS_LIMIT: Duration = Duration::from_secs(10);
/// A node that another sync works on is asked again after this.
const BUSY_PAUSE: Duration = Duration::from_secs(10);
/// Who asks where nobody did.
const USER: &str = "muster-masterd";

/// Why a node did not take a set.
fn refusal(brought: &Result<Brought, CallError>) -> Option<String> {
    match brought {
        Ok(brought) => brought.refused.clone(),
        Err(CallError::NotReached(_) | CallError::OfficeLost(_)) => None,
        Err(CallError::Refused { message, .. }) => Some(message.clone()),
    }
}

/// Remembers that a set was brought, or why not.
pub(super) fn remember(client: &NodeClient, tried: Digest, refused: Option<String>) {
    let spread = u64::try_from(Uuid::new_v4().as_u128() % COMPARE_SPREAD_S).unwrap_or(0);
    remember_until(client, tried, refused, COMPARE_PERIOD + Duration::from_secs(spread));
}

fn remember_until(client: &NodeClient, tried: Digest, refused: Option<String>, pause: Duration) {
    let next = Instant::now() + pause;
    client.set_attempted(SetAttempt { tried, connection: client.connections(), next, refused });
}

/// Brings a set to a node, some nodes at a time, and remembers how that ended.
pub(super) async fn bring(
    master: &Master,
    client: &NodeClient,
    turn: &OwnedMutexGuard<()>,
    offer: &SetOffer,
    ask: &SetAsk,
) -> Result<Brought, CallError> {
    let _permit = master.hook_sets.bringing.acquire().await.expect("nobody closes it");
    let brought = client.bring_set(turn, offer, ask).await;
    match &brought {
        // One that was broken off ends there in a moment.
        Err(CallError::Refused { code: Code::Aborted, .. }) => {
            remember_until(client, offer.digest, None, BUSY_PAUSE);
        }
        Ok(_) | Err(_) => remember(client, offer.digest, refusal(&brought)),
    }
    brought
}

/// Looks after the nodes' sets until the daemon stops.
pub(crate) async fn keep(master: Arc<Master>) {
    let mut ticks = interval(LOOK_PERIOD);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = master.stop.cancelled() => return,
        }
        if master.standing() == Standing::Active {
            look(&master);
        }
    }
}

fn look(master: &Arc<Master>) {
    let Some(cluster) = master.view.cluster() else { return };
    let record = master.hook_sets.record();
    for node in cluster.nodes.values().filter(|node| !node.offline) {
        let (Some(wanted), Ok(client)) = (record.wanted(node), master.nodes.node(&node.name)) else {
            continue;
        };
        if client.not_reached().is_some() || !is_due(&client, &wanted) {
            continue;
        }
        // Where another is about it, the next look sees what is left to do.
        let Some(turn) = client.try_set_turn() else { continue };
        if is_begun(&client, wanted) {
            let master = master.clone();
            tokio::spawn(async move { bring_wanted(&master, &client, turn).await });
        }
    }
}

/// Whether a set is to be brought now; it is asked by who has the node's turn, and keeps it until the set is there, so that
/// from this moment on hooks wait for it.
fn is_begun(client: &NodeClient, wanted: Digest) -> bool {
    let due = is_due(client, &wanted);
    if due {
        // Before it begins, so that one which can't be brought is not tried at each look.
        remember(client, wanted, refused_last(client));
    }
    due
}

fn refused_last(client: &NodeClient) -> Option<String> {
    client.set_attempt().and_then(|attempt| attempt.refused)
}

/// Why a node did not take a set at the last attempt.
pub(super) fn last_refusal(master: &Master, name: &NodeName) -> Option<String> {
    master.nodes.node(name).ok().and_then(|client| refused_last(&client))
}

/// Whether a node uses another set than it should, as far as is known.
fn is_behind(client: &NodeClient, wanted: &Digest) -> bool {
    client.used_set().is_some_and(|used| used.digest != Some(wanted.to_string()))
}

/// Whether a node that is behind is about to be brought the set that it should have.
pub(super) fn is_coming(client: &NodeClient, wanted: &Digest) -> bool {
    let is_behind = is_behind(client, wanted);
    is_behind && attempt_is_due(client.set_attempt().as_ref(), is_behind, wanted, client.connections())
}

/// Whether a node is to be brought the set that it should have, or asked to compare it.
fn is_due(client: &NodeClient, wanted: &Digest) -> bool {
    if client.used_set().is_none() {
        return false;
    }
    let attempt = client.set_attempt();
    if attempt.is_none() && !is_behind(client, wanted) {
        remember(client, *wanted, None);
        return false;
    }
    attempt_is_due(attempt.as_ref(), is_behind(client, wanted), wanted, client.connections())
}

/// A node that is behind gets a set that was not tried yet, or not on this connection; all else has its time.
fn attempt_is_due(last: Option<&SetAttempt>, is_behind: bool, wanted: &Digest, connection: u64) -> bool {
    let Some(last) = last else { return is_behind };
    let is_new = last.connection != connection || last.tried != *wanted;
    (is_behind && is_new) || Instant::now() >= last.next
}

/// What a node of this name is to have.
fn wanted_by(master: &Master, name: &NodeName) -> Option<Digest> {
    let cluster = master.view.cluster()?;
    master.hook_sets.record().wanted(cluster.nodes.get(name)?)
}

/// Brings the set that the node is to have at this moment.
async fn bring_wanted(master: &Arc<Master>, client: &NodeClient, turn: OwnedMutexGuard<()>) {
    let Some(cluster) = master.view.cluster() else { return };
    let Some(wanted) = wanted_by(master, client.name()) else { return };
    let offered = {
        let master = master.clone();
        tokio::task::spawn_blocking(move || master.hook_sets.offer(wanted)).await
    };
    let offer = match offered {
        Ok(Ok(offer)) => offer,
        Ok(Err(error)) => {
            let error = crate::chain(&error);
            return tracing::error!(set = %wanted, error, "this master does not have the cluster's hook set: run gnt-hooks sync");
        }
        Err(error) => return tracing::error!(%error, "the cluster's hook set was not read"),
    };
    let ask = SetAsk { full: false, policy: cluster.hooks.clone(), env: sync_env(&cluster, USER) };
    let brought = bring(master, client, &turn, &offer, &ask).await;
    let (node, set) = (client.name(), wanted.short());
    match brought {
        Ok(Brought { refused: Some(reason), .. }) => {
            tracing::warn!(%node, set, reason, "the node does not take the hook set")
        }
        Ok(Brought { switched: true, files, bytes, .. }) => {
            tracing::info!(%node, set, files, bytes, "the node was brought the cluster's hook set");
        }
        Ok(_) => tracing::debug!(%node, set, "the node has the cluster's hook set"),
        Err(error) => tracing::warn!(%node, set, %error, "the node was not brought the hook set"),
    }
}

/// What is called before hooks run on a node: one that is behind gets the set first.
pub(crate) fn before_hooks(master: std::sync::Weak<Master>) -> BeforeHooks {
    Arc::new(move |client: NodeClient| -> BoxFuture<'static, ()> {
        let master = master.upgrade();
        Box::pin(async move {
            let Some(master) = master.filter(|master| master.standing() == Standing::Active) else { return };
            let node = client.name().clone();
            if timeout(BEFORE_HOOKS_LIMIT, bring_before_hooks(master, client)).await.is_err() {
                tracing::warn!(%node, "hooks run with the set that the node has: the newer one takes long");
            }
        })
    })
}

async fn bring_before_hooks(master: Arc<Master>, client: NodeClient) {
    let Some(wanted) = wanted_by(&master, client.name()) else { return };
    if !is_behind(&client, &wanted) && !is_due(&client, &wanted) {
        return;
    }
    // Another may be about it, and then it is done; or nobody is, and then the turn is free.
    let turn = client.set_turn().await;
    let Some(wanted) = wanted_by(&master, client.name()) else { return };
    if is_begun(&client, wanted) {
        // On a task of its own: what was begun goes on when the hooks do not wait any more.
        let bringing = tokio::spawn(async move { bring_wanted(&master, &client, turn).await });
        // It tells itself what went wrong.
        drop(bringing.await);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::nodes::{Limits, NodeRegistry, Settings, UsedSet};

    /// A node that is never called.
    fn client() -> NodeClient {
        NodeRegistry::new(Settings {
            local: NodeName::parse("node1").unwrap(),
            local_socket: "/nonexistent".into(),
            version: String::new(),
            limits: Limits::default(),
            alive_jobs: Arc::new(Default::default),
            guests: Arc::new(Vec::new),
            office_lost: Arc::new(|_| {}),
            host_told: Arc::new(|_, _| {}),
        })
        .local()
    }

    #[tokio::test]
    async fn hooks_wait_for_a_set_from_the_moment_that_its_bringing_is_decided() {
        let (client, wanted) = (client(), Digest::new([1; 32]));
        assert!(!is_begun(&client, wanted), "it has not said what it uses");
        client.uses_set(UsedSet { digest: None });
        assert!(is_coming(&client, &wanted));
        let turn = client.try_set_turn().unwrap();
        assert!(is_begun(&client, wanted));
        // The task that brings it has done nothing yet.
        assert!(is_behind(&client, &wanted) && !is_due(&client, &wanted));
        assert!(client.try_set_turn().is_none() && client.set_turn().now_or_never().is_none());
        client.uses_set(UsedSet { digest: Some(wanted.to_string()) });
        drop(turn);
        let turn = client.set_turn().now_or_never().unwrap();
        assert!(!is_begun(&client, wanted), "who waited finds it done");
        drop(turn);
        client.uses_set(UsedSet { digest: None });
        assert!(!is_coming(&client, &wanted), "it was tried, and did not come");
    }

    #[test]
    fn a_node_that_is_behind_is_not_left_alone_because_another_set_was_tried() {
        let [old, new] = [1, 2].map(|mark| Digest::new([mark; 32]));
        let later = Instant::now() + COMPARE_PERIOD;
        let last = |tried, next| SetAttempt { tried, connection: 7, next, refused: None };
        let due = |last: Option<SetAttempt>, is_behind, connection| {
            attempt_is_due(last.as_ref(), is_behind, &new, connection)
        };
        assert!(due(Some(last(old, later)), true, 7), "the new one was not tried");
        assert!(!due(Some(last(new, later)), true, 7), "it was, and did not take it");
        assert!(due(Some(last(new, later)), true, 8), "but not on this connection");
        assert!(due(Some(last(new, Instant::now())), true, 7));
        assert!(!due(Some(last(old, later)), false, 8), "it has it");
        assert!(due(Some(last(new, Instant::now())), false, 7), "it is asked to compare");
        assert_eq!((due(None, true, 7), due(None, false, 7)), (true, false));
    }
}
