//! OP_JOB_REPAIR: does what an ended job's undo should have done, where that is still wanted.

use serde::{Deserialize, Serialize};

use super::{Given, HookNodes, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, examples};
use crate::{
    calls::{Call, MasterCall, MigrationCall, MirrorCall, NodeCall},
    hooks::Env,
    locks::Locks,
    model::Cluster,
    names::NodeName,
};

/// Repeats the undos of a job that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRepair {
    /// That job's number.
    pub job: u64,
}

/// What the driver knows of the job when its repair is submitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// The locks that the job had.
    pub locks: Locks,
    /// What its undo should have done.
    pub calls: Vec<Call>,
    /// The job was blocked, and was given up for this repair: that is something done, also where nothing is to be undone.
    #[serde(default)]
    pub gave_up: bool,
}

/// Whether the configuration of today still wants an undo of then.
fn is_wanted(cluster: &Cluster, call: &Call) -> bool {
    let node_is_there = call.node().is_none_or(|node| cluster.nodes.contains_key(node));
    node_is_there
        && match call {
            Call::Node(node, call) => node_call_is_wanted(cluster, node, call),
            Call::Master(MasterCall::PendingWithdraw { node }) => !cluster.nodes.contains_key(node),
            Call::Master(_) => true,
        }
}

fn node_call_is_wanted(cluster: &Cluster, node: &NodeName, call: &NodeCall) -> bool {
    let runs_here = |uuid| {
        cluster
            .instances
            .values()
            .any(|instance| instance.uuid == uuid && instance.primary == *node && instance.up)
    };
    match call {
        NodeCall::GuestStart { guest, .. } => runs_here(guest.uuid),
        NodeCall::GuestStop { instance, .. } => !runs_here(*instance),
        NodeCall::DiskRemove { disk } => {
            let mut disks = cluster.instances.values().flat_map(|instance| &instance.disks);
            !disks.any(|of| of.uuid == *disk || of.mirrors.iter().any(|copy| copy.uuid == *disk))
        }
        NodeCall::ExportRemove { export } => !cluster.exports.contains_key(export),
        NodeCall::DiskResize { disk, size_mib } => {
            let mut disks = cluster.instances.values().flat_map(|instance| &instance.disks);
            disks.any(|of| {
                let is_file = of.uuid == *disk || of.mirrors.iter().any(|copy| copy.uuid == *disk);
                is_file && of.size_mib == *size_mib
            })
        }
        NodeCall::OsRename { guest, .. } => cluster
            .instances
            .get(&guest.name)
            .is_some_and(|instance| instance.uuid == guest.uuid && !instance.up),
        // Who does not migrate any more is primary again, and runs; a guest that nobody awaits was stopped.
        NodeCall::Migration(MigrationCall::Cancel { instance, .. }) => runs_here(*instance),
        NodeCall::Mirror(MirrorCall::Stop { copies, .. }) => {
            let mirrors = cluster.instances.values().flat_map(|instance| &instance.disks);
            let mut mirrors = mirrors.flat_map(|disk| &disk.mirrors);
            !mirrors.any(|mirror| copies.contains(&mirror.uuid))
        }
        NodeCall::Mirror(_)
        | NodeCall::Migration(_)
        | NodeCall::GuestResume { .. }
        | NodeCall::ExportCheck { .. }
        | NodeCall::DisksSnapshot { .. }
        | NodeCall::DiskCreate { .. }
        | NodeCall::DiskAbsent { .. }
        | NodeCall::OsCreate { .. }
        | NodeCall::GuestReboot { .. }
        | NodeCall::ExportStage { .. }
        | NodeCall::ExportPublish { .. } => false,
    }
}

impl Operation for JobRepair {
    const ROW: Row = Row {
        op_id: "OP_JOB_REPAIR",
        object: ObjectKind::Cluster,
        hooks: None,
        hooks2: None,
        submitter: Submitter::Operator,
    };
    /// What is to be done, and what need not be done any more.
    type Checked = (Vec<Call>, Vec<Call>);

    fn target(&self) -> String {
        self.job.to_string()
    }

    fn locks(&self) -> Locks {
        // Those of the job that is repaired take their place: only the driver knows them.
        Locks::cluster()
    }

    fn check(&self, given: Given<'_>) -> Result<(Vec<Call>, Vec<Call>), Refusal> {
        let nothing = || Refusal(format!("job {} has left nothing undone", self.job));
        let repair = given.fresh.repair.as_ref().filter(|repair| repair.gave_up || !repair.calls.is_empty());
        let calls = repair.ok_or_else(nothing)?.calls.iter().cloned();
        Ok(calls.partition(|call| is_wanted(given.cluster, call)))
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &Self::Checked) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Self::Checked) -> Env {
        Env::new()
    }

    fn hooks2(&self, _given: Given<'_>, _checked: &Self::Checked) -> Hooks2 {
        Hooks2::none()
    }

    fn plan(&self, _given: Given<'_>, (wanted, settled): &Self::Checked) -> Plan {
        let plan = Plan { settled: settled.clone(), ..Plan::new() };
        wanted.iter().fold(plan, |plan, call| plan.harmless(call.clone()))
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let instance =
            examples::cluster().instances.into_values().next().expect("the example cluster has instances");
        let here = instance.primary.clone();
        let elsewhere =
            examples::cluster().nodes.into_keys().find(|node| *node != here).expect("it has nodes");
        let stop = |node: &NodeName| {
            let (instance, name) = (instance.uuid, instance.name.clone());
            Call::Node(node.clone(), NodeCall::GuestStop { instance, name, timeout_ms: 1000 })
        };
        let remove = |disk| Call::Node(here.clone(), NodeCall::DiskRemove { disk });
        let gone = Call::Node(
            examples::node_name("node9"),
            NodeCall::DiskRemove { disk: uuid::Uuid::from_u128(77) },
        );
        let calls = vec![stop(&elsewhere), remove(uuid::Uuid::from_u128(78)), gone];
        let repair =
            Repair { locks: Locks::part().exclusive("instance", &instance.name), calls, gave_up: false };
        let fresh = super::Fresh { repair: Some(repair), ..examples::fresh() };
        vec![(examples::cluster(), fresh, JobRepair { job: 1 })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Instance, ops::parts};

    fn repaired(cluster: &Cluster, calls: Vec<Call>) -> (Vec<Call>, Vec<Call>) {
        let repair = Repair { locks: Locks::part(), calls, gave_up: false };
        let fresh = super::super::Fresh { repair: Some(repair), ..examples::fresh() };
        let given = Given { cluster, fresh: &fresh, local: &cluster.master, undone: &[] };
        JobRepair { job: 1 }.check(given).unwrap()
    }

    #[test]
    fn only_what_is_still_wanted_is_done() {
        let mut cluster = examples::cluster();
        let name = cluster.instances.keys().next().unwrap().clone();
        cluster.instances.get_mut(&name).unwrap().up = true;
        let instance: &Instance = &cluster.instances[&name];
        let (start, stop) =
            (parts::guest_start(&cluster, instance, false), parts::guest_stop(instance, 1000));
        let own_disk = instance.disks[0].uuid;
        let remove = parts::disk_remove(&instance.primary.clone(), own_disk);
        let calls = vec![start.clone(), stop.clone(), remove.clone()];
        assert_eq!(
            repaired(&cluster, calls.clone()),
            (vec![start.clone()], vec![stop.clone(), remove.clone()])
        );
        cluster.instances.get_mut(&name).unwrap().up = false;
        assert_eq!(
            repaired(&cluster, calls.clone()),
            (vec![stop.clone()], vec![start.clone(), remove.clone()])
        );
        cluster.instances.remove(&name);
        assert_eq!(repaired(&cluster, calls), (vec![stop, remove], vec![start]));
    }

    #[test]
    fn giving_up_a_blocked_job_that_left_nothing_is_a_repair() {
        let cluster = examples::cluster();
        let repair = Repair { gave_up: true, ..Repair::default() };
        let fresh = super::super::Fresh { repair: Some(repair), ..examples::fresh() };
        let given = Given { cluster: &cluster, fresh: &fresh, local: &cluster.master, undone: &[] };
        assert_eq!(JobRepair { job: 1 }.check(given).unwrap(), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_job_that_left_nothing_undone_is_refused() {
        let cluster = examples::cluster();
        let text = "job 1 has left nothing undone";
        examples::refused(&JobRepair { job: 1 }, &cluster, &examples::fresh(), &cluster.master, text);
    }
}
