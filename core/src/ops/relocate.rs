//! Instances that leave a node: which jobs take them where. The jobs are ordinary ones, each checked once more when it starts.

use std::collections::BTreeMap;

use super::{
    DisksReplace, FollowUp, Given, InstanceFailover, InstanceMigrate, Op, Operation, Plan, Refusal, common,
    networks, parts,
};
use crate::{
    hypervisor::HypervisorKind,
    model::{Cluster, DiskTemplate, Instance},
    names::NodeName,
};

/// Most jobs that one job asks for.
const FOLLOW_UPS_MAX: usize = 1_000;

/// What an operator says of all failovers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Leave {
    /// Goes on from copies that miss writes.
    pub(super) ignore_consistency: bool,
    /// The node, which is marked offline, runs nothing any more.
    pub(super) fenced: bool,
}

/// Jobs as they are collected, and what speaks against some.
#[derive(Debug, Default)]
pub(super) struct Relocation {
    jobs: Vec<FollowUp>,
    refused: Vec<String>,
}

impl Relocation {
    /// The primary changes places with the secondary; the position of the job that does it.
    pub(super) fn leave_primary(
        &mut self,
        given: Given<'_>,
        instance: &Instance,
        leave: Leave,
    ) -> Option<usize> {
        match leave_job(given, instance, leave) {
            Ok(op) => {
                self.jobs.push(FollowUp { op, after: None });
                Some(self.jobs.len() - 1)
            }
            Err(why) => {
                self.refused.push(format!("{}: {why}", instance.name));
                None
            }
        }
    }

    /// The copies go to another node, after an earlier job where one is given.
    pub(super) fn leave_secondary(
        &mut self,
        given: Given<'_>,
        instance: &Instance,
        node: Result<NodeName, Refusal>,
        after: Option<usize>,
    ) {
        let job = node.and_then(|node| {
            let op = DisksReplace {
                instance: instance.name.clone(),
                new_secondary: Some(node.clone()),
                on_primary: false,
            };
            match after {
                // As things are now; the node is looked at alone where the primary is another one by then.
                None => op.check(given).map(|_| ())?,
                Some(_) => {
                    common::node_for_instances(given.cluster, &node)?;
                    networks::node_for(given.cluster, instance, &node)?;
                }
            }
            Ok(FollowUp { op: Op::DisksReplace(op), after })
        });
        match job {
            Ok(job) => self.jobs.push(job),
            Err(why) => self.refused.push(format!("{}: {why}", instance.name)),
        }
    }

    /// All jobs. If something speaks against one of them nothing is begun, unless whoever asks lets those stay that can't
    /// leave.
    pub(super) fn leaving(self, node: &NodeName, ignore_unmovable: bool) -> Result<Leaving, Refusal> {
        let nothing_leaves = self.jobs.is_empty() && !self.refused.is_empty();
        if nothing_leaves || (!self.refused.is_empty() && !ignore_unmovable) {
            let hint = if nothing_leaves { "" } else { " (--ignore-unmovable moves the others)" };
            let refused = self.refused.join("; ");
            return Err(Refusal(format!("not all instances can leave {node}: {refused}{hint}")));
        }
        if self.jobs.len() > FOLLOW_UPS_MAX {
            let jobs = self.jobs.len();
            return Err(Refusal(format!(
                "that would be {jobs} jobs; at most {FOLLOW_UPS_MAX} are made at once"
            )));
        }
        let warnings = self.refused.iter().map(|why| format!("stays on {node}: {why}")).collect();
        Ok(Leaving { jobs: self.jobs, warnings })
    }
}

/// What is asked for, and what is told of the rest.
#[derive(Debug)]
pub struct Leaving {
    jobs: Vec<FollowUp>,
    warnings: Vec<String>,
}

impl Leaving {
    /// A plan of this alone.
    pub(super) fn plan(&self) -> Plan {
        Plan { follow_ups: self.jobs.clone(), warnings: self.warnings.clone(), ..Plan::new() }
    }
}

/// A guest that computes migrates where guests can; one that is down, or whose node is marked offline, fails over.
fn leave_job(given: Given<'_>, instance: &Instance, leave: Leave) -> Result<Op, Refusal> {
    let is_away = common::node(given.cluster, &instance.primary)?.offline;
    match instance.template {
        DiskTemplate::Mirror => {}
        template @ (DiskTemplate::Diskless | DiskTemplate::File) if is_away => {
            let (template, left) = match template {
                DiskTemplate::Diskless => (template.as_str(), "move -n NODE moves it"),
                DiskTemplate::File | DiskTemplate::Mirror => {
                    (template.as_str(), "recreate-disks -n NODE makes its disks anew elsewhere, empty")
                }
            };
            return Err(Refusal(format!(
                "it has the template {template}: once gnt-instance shutdown has marked it down, {left}"
            )));
        }
        template @ (DiskTemplate::Diskless | DiskTemplate::File) => {
            let template = template.as_str();
            return Err(Refusal(format!(
                "it has the template {template}: gnt-instance move -n NODE moves it"
            )));
        }
    }
    let name = instance.name.clone();
    if instance.up && !is_away && given.cluster.hypervisor.kind == HypervisorKind::Qemu {
        let op = InstanceMigrate { instance: name };
        op.check(given)?;
        return Ok(Op::InstanceMigrate(op));
    }
    let Leave { ignore_consistency, fenced } = leave;
    let op = InstanceFailover { instance: name, ignore_consistency, fenced };
    op.check(given)?;
    Ok(Op::InstanceFailover(op))
}

/// How much memory the instances of each node are configured to have, copies counted as if they ran there.
#[derive(Debug)]
pub(super) struct Load(BTreeMap<NodeName, u64>);

impl Load {
    /// Of the configuration.
    pub(super) fn of(cluster: &Cluster) -> Self {
        let mut load: BTreeMap<NodeName, u64> = cluster.nodes.keys().map(|name| (name.clone(), 0)).collect();
        for instance in cluster.instances.values() {
            for node in std::iter::once(instance.primary.clone()).chain(instance.secondaries()) {
                *load.entry(node).or_default() += instance.memory_mib;
            }
        }
        Load(load)
    }

    /// The node that gets an instance's copies: of those of its primary's group that may get some, the one with the least
    /// memory in use; of two equal ones the first by name. It counts from now on.
    pub(super) fn place(
        &mut self,
        cluster: &Cluster,
        instance: &Instance,
        leaving: &NodeName,
        primary: &NodeName,
    ) -> Result<NodeName, Refusal> {
        let group = common::node(cluster, primary)?.group;
        let is_candidate = |name: &NodeName| {
            name != leaving
                && name != primary
                && common::node_for_instances(cluster, name).is_ok_and(|node| node.group == group)
        };
        let least =
            self.0.iter().filter(|(name, _)| is_candidate(name)).min_by_key(|(name, load)| (**load, *name));
        let node = least.map(|(name, _)| name.clone()).ok_or_else(|| {
            Refusal(format!(
                "no other node of the group of {primary} may get its copies (online, not drained)"
            ))
        })?;
        *self.0.entry(node.clone()).or_default() += instance.memory_mib;
        Ok(node)
    }
}

/// The node on which an instance runs once it has changed its places.
pub(super) fn primary_after(instance: &Instance) -> NodeName {
    parts::secondary(instance).unwrap_or_else(|| instance.primary.clone())
}
