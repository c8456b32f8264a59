//! `gnt-hooks diff`: what the nodes use against what they are to use, their files looked at.

use std::{collections::BTreeSet, sync::Arc};

use muster_core::{
    hooks::Digest,
    model::{Cluster, Node},
    names::NodeName,
};
use muster_proto::v1;

use super::{
    follow::{is_coming, last_refusal},
    keeper::HookSetRecord,
};
use crate::{master::Master, nodes::SetAttempt};

/// What was found.
pub(crate) struct Compared {
    /// The nodes.
    pub(crate) answer: v1::DiffHookSetsResponse,
    /// Those among them that were being brought a set while they were asked: what was found of them need not last.
    pub(crate) unsettled: BTreeSet<String>,
}

/// As [`compare`], for who sees himself what goes on.
pub(crate) async fn diff(
    master: &Arc<Master>,
    cluster: &Cluster,
    named: &BTreeSet<NodeName>,
) -> v1::DiffHookSetsResponse {
    compare(master, cluster, named).await.answer
}

/// Asks nodes, all at once; none named means all that are not marked offline.
pub(crate) async fn compare(master: &Arc<Master>, cluster: &Cluster, named: &BTreeSet<NodeName>) -> Compared {
    let nodes = cluster.nodes.values().filter(|node| match named.is_empty() {
        true => !node.offline,
        false => named.contains(&node.name),
    });
    let nodes: Vec<&Node> = nodes.collect();
    let before = master.hook_sets.record();
    let moments = |record: &HookSetRecord| -> Vec<Moment> {
        nodes.iter().map(|node| Moment::now(master, record.wanted(node), &node.name)).collect()
    };
    let first = moments(&before);
    let asked = futures::future::join_all(nodes.iter().map(|node| asked_node(master, node))).await;
    let problem = problem(master).await;
    // A sync has it written before it goes on to the nodes: those that have the new set were right to take it.
    let after = master.hook_sets.record();
    let last = moments(&after);
    let unsettled = nodes.iter().zip(first.iter().zip(&last));
    let unsettled = unsettled.filter(|(_, (first, last))| !is_settled(first, last));
    let found = nodes.iter().zip(asked).map(|(node, asked)| {
        let uses = |record: &&&HookSetRecord| digest_of(record, node) == asked.used;
        let record = [&after, &before].iter().find(uses).copied().unwrap_or(&after);
        v1::NodeHookSet {
            wanted: digest_of(record, node),
            own: record.own.contains_key(&node.uuid),
            refused: last_refusal(master, &node.name),
            ..asked
        }
    });
    Compared {
        unsettled: unsettled.map(|(node, _)| node.name.to_string()).collect(),
        answer: v1::DiffHookSetsResponse {
            digest: after.cluster.map(|digest| digest.to_string()),
            problem,
            nodes: found.collect(),
        },
    }
}

fn digest_of(record: &HookSetRecord, node: &Node) -> Option<String> {
    record.wanted(node).map(|digest| digest.to_string())
}

/// Why this master can't bring the cluster's set to a node.
async fn problem(master: &Arc<Master>) -> Option<String> {
    loop {
        let digest = master.hook_sets.record().cluster?;
        let offered = {
            let master = master.clone();
            tokio::task::spawn_blocking(move || master.hook_sets.offer(digest).map(drop)).await
        };
        let problem = match offered {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => crate::chain(&error),
            Err(error) => error.to_string(),
        };
        // After a sync the files of the set before are gone.
        if master.hook_sets.record().cluster == Some(digest) {
            return Some(problem);
        }
    }
}

/// What is done about a node's set at a moment.
#[derive(Debug, Clone, Default)]
struct Moment {
    wanted: Option<Digest>,
    /// A sync goes on, of this node or of others.
    syncing: bool,
    /// The node is being brought a set, or is about to be.
    bringing: bool,
    attempt: Option<SetAttempt>,
}

impl Moment {
    fn now(master: &Master, wanted: Option<Digest>, name: &NodeName) -> Self {
        let client = master.nodes.node(name).ok();
        Moment {
            wanted,
            syncing: master.hook_sets.is_spreading(),
            bringing: client.as_ref().is_some_and(|client| {
                client.try_set_turn().is_none() || wanted.is_some_and(|wanted| is_coming(client, &wanted))
            }),
            attempt: client.and_then(|client| client.set_attempt()),
        }
    }

    /// Whether the node has said no to what it should have. It stays so until a sync comes to it.
    fn is_refused(&self) -> bool {
        let attempt = self.attempt.as_ref();
        attempt.is_some_and(|attempt| attempt.refused.is_some() && Some(attempt.tried) == self.wanted)
    }
}

/// Whether nobody was about a node's set between two moments.
fn is_settled(first: &Moment, last: &Moment) -> bool {
    let tried = |moment: &Moment| moment.attempt.as_ref().map(|attempt| attempt.next);
    let quiet = |moment: &Moment| !moment.bringing && (!moment.syncing || moment.is_refused());
    quiet(first) && quiet(last) && first.wanted == last.wanted && tried(first) == tried(last)
}

async fn asked_node(master: &Master, node: &Node) -> v1::NodeHookSet {
    let found = v1::NodeHookSet { node: node.name.to_string(), ..v1::NodeHookSet::default() };
    if node.offline {
        return v1::NodeHookSet { not_reached: Some("marked offline".to_owned()), ..found };
    }
    let checked = match master.nodes.node(&node.name) {
        Ok(client) => client.check_set().await,
        Err(error) => Err(error),
    };
    match checked {
        Ok(checked) => v1::NodeHookSet { used: checked.digest, changed: checked.changed, ..found },
        Err(error) => v1::NodeHookSet { not_reached: Some(error.to_string()), ..found },
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_a_sync_is_about_is_not_settled_and_what_a_node_refused_before_is() {
        let [old, new] = [1, 2].map(|mark| Digest::new([mark; 32]));
        let next = Instant::now();
        let attempt = |tried, refused: Option<&str>, next| {
            Some(SetAttempt { tried, connection: 7, next, refused: refused.map(str::to_owned) })
        };
        let quiet = Moment { wanted: Some(new), attempt: attempt(new, None, next), ..Moment::default() };
        let both = |change: fn(&mut Moment)| {
            let mut other = quiet.clone();
            change(&mut other);
            (is_settled(&quiet, &other), is_settled(&other, &quiet))
        };
        assert!(is_settled(&quiet, &quiet));
        assert_eq!(both(|moment| moment.bringing = true), (false, false));
        assert_eq!(both(|moment| moment.syncing = true), (false, false));
        // A sync came and went.
        let before = Moment { wanted: Some(old), ..quiet.clone() };
        assert!(!is_settled(&before, &quiet));
        let again = attempt(new, None, next + Duration::from_secs(1));
        assert!(!is_settled(&quiet, &Moment { attempt: again, ..quiet.clone() }));

        let refused = Moment { syncing: true, attempt: attempt(new, Some("no"), next), ..quiet.clone() };
        assert!(is_settled(&refused, &refused), "a sync that goes on for long does not hide it");
        let other = Moment { attempt: attempt(old, Some("no"), next), ..refused.clone() };
        assert!(!is_settled(&other, &other), "the new one has not come yet");
        let asked = Moment { bringing: true, ..refused.clone() };
        assert!(!is_settled(&refused, &asked));
    }
}
