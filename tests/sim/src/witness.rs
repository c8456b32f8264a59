//! What was seen on the nodes and on the way to them, whatever the master says of it.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::hooks::Env;

use super::event::NodeId;

/// A phase of a job on a node, all attempts together: job, step, node.
pub(crate) type Place = (u64, String, NodeId);

/// What a node said of a job's pre phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    Allowed,
    Denied,
    Lost,
}

/// Facts that checkers compare the master's doings with.
#[derive(Default)]
pub(crate) struct Witness {
    /// The environment that scripts had.
    pub(crate) environments: BTreeMap<Place, Env>,
    /// Scripts that run, daemons without a node to watch them included.
    pub(crate) running: BTreeMap<Place, String>,
    /// Calls that a node has begun and not lost, and those that it has answered.
    pub(crate) begun: BTreeSet<(NodeId, String)>,
    pub(crate) answered: BTreeSet<(NodeId, String)>,
    /// The last word of each node.
    pub(crate) said: BTreeMap<Place, Said>,
    /// Places whose node the master did not reach.
    pub(crate) unreached: BTreeSet<Place>,
    /// Steps that were carried out: job and step.
    pub(crate) done: BTreeSet<(u64, String)>,
    /// Calls that a node has confirmed not to begin any more.
    pub(crate) withdrawn: BTreeSet<(NodeId, String)>,
    /// When the end of a job was published.
    pub(crate) ended_ms: BTreeMap<u64, u64>,
}
