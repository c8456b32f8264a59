//! Operations by which instances change their places, between wire and core.

use std::collections::BTreeSet;

use muster_core::{
    model::DiskName,
    names::NodeName,
    ops::{DisksRecreate, Evacuated, InstanceMove, NodeEvacuate},
};

use super::{WireError, fields};
use crate::v1;

/// Most nodes of an instance: its primary and its secondary.
const NODES_MAX: usize = 2;

pub(super) fn node_evacuate(wire: &v1::NodeEvacuate) -> Result<NodeEvacuate, WireError> {
    let which = match wire.which.as_str() {
        "" => Evacuated::default(),
        word => Evacuated::parse(word)
            .ok_or_else(|| WireError::wrong("which", word, "all, primaries or secondaries is expected"))?,
    };
    let new_secondary = wire.new_secondary.as_ref();
    Ok(NodeEvacuate {
        name: fields::node("name", &wire.name)?,
        which,
        new_secondary: new_secondary.map(|name| fields::node("new_secondary", name)).transpose()?,
        ignore_consistency: wire.ignore_consistency,
        fenced: wire.fenced,
        ignore_unmovable: wire.ignore_unmovable,
    })
}

impl From<NodeEvacuate> for v1::NodeEvacuate {
    fn from(op: NodeEvacuate) -> Self {
        v1::NodeEvacuate {
            name: op.name.into(),
            which: op.which.as_str().to_owned(),
            new_secondary: op.new_secondary.map(Into::into),
            ignore_consistency: op.ignore_consistency,
            fenced: op.fenced,
            ignore_unmovable: op.ignore_unmovable,
        }
    }
}

pub(super) fn instance_move(wire: &v1::InstanceMove) -> Result<InstanceMove, WireError> {
    Ok(InstanceMove {
        instance: fields::instance("instance", &wire.instance)?,
        node: fields::node("node", &wire.node)?,
    })
}

impl From<InstanceMove> for v1::InstanceMove {
    fn from(op: InstanceMove) -> Self {
        v1::InstanceMove { instance: op.instance.into(), node: op.node.into() }
    }
}

pub(super) fn disks_recreate(wire: &v1::DisksRecreate) -> Result<DisksRecreate, WireError> {
    if wire.nodes.len() > NODES_MAX {
        let found = format!("{} nodes", wire.nodes.len());
        return Err(WireError::wrong("nodes", &found, "a primary and a secondary node are expected"));
    }
    let disks: Result<BTreeSet<DiskName>, WireError> =
        wire.disks.iter().map(|disk| fields::disk("disks", disk)).collect();
    let nodes: Result<Vec<NodeName>, WireError> =
        wire.nodes.iter().map(|node| fields::node("nodes", node)).collect();
    Ok(DisksRecreate {
        instance: fields::instance("instance", &wire.instance)?,
        disks: disks?,
        nodes: nodes?,
    })
}

impl From<DisksRecreate> for v1::DisksRecreate {
    fn from(op: DisksRecreate) -> Self {
        v1::DisksRecreate {
            instance: op.instance.into(),
            disks: op.disks.into_iter().map(|disk| disk.as_str().to_owned()).collect(),
            nodes: op.nodes.into_iter().map(Into::into).collect(),
        }
    }
}
