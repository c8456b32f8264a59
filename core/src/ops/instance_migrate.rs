//! OP_INSTANCE_MIGRATE: a running instance goes on, without a stop, on its secondary node; the nodes change places.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common,
    examples, hooks2, mirroring, parts,
};
use crate::{
    calls::{Call, MigrationCall, MirrorCall, NodeCall, Sync},
    edit::Edit,
    hooks::Env,
    hypervisor::HypervisorKind,
    locks::Locks,
    model::{Cluster, CopyState, Instance, Mirror},
    names::{InstanceName, NodeName},
};

/// What can be done where the copies miss writes.
const ADVICE: &str = "wait until it is in sync again";

/// Migrates an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceMigrate {
    /// The instance.
    pub instance: InstanceName,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    before: Instance,
    after: Instance,
}

/// The instance with its two nodes' parts changed; each disk has one copy, which holds everything.
fn turned(before: &Instance, target: &NodeName) -> Result<Instance, Refusal> {
    let mut after = Instance { primary: target.clone(), generation: before.generation + 1, ..before.clone() };
    for disk in &mut after.disks {
        let [copy] = &mut disk.mirrors[..] else {
            return Err(Refusal(format!(
                "disk {} of {} has {} copies: a migration needs one",
                disk.name.as_str(),
                before.name,
                disk.mirrors.len()
            )));
        };
        if copy.state != CopyState::Consistent {
            return Err(Refusal(format!(
                "the copy of {} on {} is {}: it must be in sync",
                disk.name.as_str(),
                copy.node,
                copy.state.as_str()
            )));
        }
        let old = std::mem::replace(&mut disk.uuid, copy.uuid);
        *copy = Mirror { node: before.primary.clone(), uuid: old, ..copy.clone() };
    }
    Ok(after)
}

impl Operation for InstanceMigrate {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_MIGRATE",
        object: ObjectKind::Instance,
        hooks: None,
        hooks2: Some(HookRow2::both("instance-migrate", "OP_INSTANCE_MIGRATE")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("instance", &self.instance)
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let cluster = given.cluster;
        let before = parts::instance_reachable(cluster, &self.instance)?.clone();
        if cluster.hypervisor.kind != HypervisorKind::Qemu {
            let kind = cluster.hypervisor.kind.as_str();
            return Err(Refusal(format!("guests of the {kind} hypervisor can't migrate: fail it over")));
        }
        if !before.up {
            return Err(Refusal(format!("instance {} is down: fail it over", self.instance)));
        }
        let target = parts::secondary(&before)
            .ok_or_else(|| Refusal(format!("{} has no secondary node: add a mirror first", self.instance)))?;
        // It has a place there: what its group's policy says of new instances is not about it.
        common::node_not_drained(cluster, &target)?;
        let after = turned(&before, &target)?;
        Ok(Checked { before, after })
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &Checked) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Checked) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let own = Env::new().boolean("MIGRATE_LIVE", true).boolean("MIGRATE_CLEANUP", false);
        hooks2::turned(given, &checked.before, &checked.after.primary).with(own)
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let Checked { before, after } = checked;
        let (source, target) = (&before.primary, &after.primary);
        let (instance, name) = (before.uuid, before.name.clone());
        let on = |node: &NodeName, call: MigrationCall| Call::Node(node.clone(), NodeCall::Migration(call));
        let receive = MigrationCall::Receive {
            guest: common::guest(given.cluster, after),
            peer: source.clone(),
            listen: mirroring::data_address(given.cluster, target),
        };
        let send = MigrationCall::Send {
            instance,
            name: name.clone(),
            peer: target.clone(),
            address: mirroring::data_address(given.cluster, target),
            port: None,
        };
        let old = mirroring::copies(before, |_| true);
        // The guest takes its machine along: what it is to have from its next start on would not take its state.
        let machine = MigrationCall::Machine { instance, name: name.clone() };
        let mut plan = mirroring::plan_rely(Plan::new(), given.cluster, before, &old, ADVICE)
            .harmless(on(source, machine))
            .step(on(target, receive), parts::guest_stop(after, 0))
            .step(on(source, send), on(source, MigrationCall::Cancel { instance, name: name.clone() }));
        if !old.is_empty() {
            // The mirrors have ended; the files are the new guest's now.
            let copies = old.iter().map(|copy| copy.mirror.uuid).collect();
            let release = NodeCall::Mirror(MirrorCall::Release { copies });
            plan = plan.harmless(Call::Node(target.clone(), release));
        }
        plan = plan.last(on(source, MigrationCall::Finish { instance, name: name.clone() }));
        // The guest is paused until its new copies follow, or can't.
        let new = mirroring::copies(after, |_| true);
        let stale = mirroring::set_all(after, &new, CopyState::Stale);
        let serve = mirroring::serve(given.cluster, after, &new);
        let start = mirroring::start(given.cluster, after, &new, Sync::Unproven, true);
        if let (Some(serve), Some(start)) = (serve, start) {
            plan = plan
                .optional(mirroring::clean(before, &old), stale.clone())
                .optional(serve, stale.clone())
                .optional(start, stale);
        }
        // There is no way back: a guest that does not go on is where the configuration says, and is started there.
        plan.optional(Call::Node(target.clone(), NodeCall::GuestResume { instance, name }), Vec::new())
            .edit(Edit::InstancePut { instance: Box::new(after.clone()) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let cluster = examples::in_sync("mail1");
        vec![(cluster, examples::fresh(), InstanceMigrate { instance: examples::instance_name("mail1") })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, name: &str, text: &str| {
            let op = InstanceMigrate { instance: examples::instance_name(name) };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        let cluster = examples::in_sync("mail1");
        check(&cluster, "mail2", "there is no instance mail2");
        check(&cluster, "db1", "instance db1 is down: fail it over");
        check(&cluster, "web1", "web1 has no secondary node");
        check(&examples::cluster(), "mail1", "guests of the fake hypervisor can't migrate");
        let away = |node: &str| {
            let mut cluster = examples::in_sync("mail1");
            cluster.nodes.get_mut(&examples::node_name(node)).unwrap().offline = true;
            cluster
        };
        check(&away("node3"), "mail1", "node node3 is marked offline");
        check(&away("node2"), "mail1", "the primary of mail1 can't be worked with");
        let mut stale = cluster;
        let mail = stale.instances.get_mut(&examples::instance_name("mail1")).unwrap();
        mail.disks[1].mirrors[0].state = CopyState::Stale;
        check(&stale, "mail1", "the copy of sdb on node3 is stale: it must be in sync");
    }

    #[test]
    fn an_unallocable_group_keeps_what_it_has_and_a_drained_node_gets_nothing() {
        let (mut cluster, fresh, op) = InstanceMigrate::examples().remove(0);
        for group in cluster.groups.values_mut() {
            group.alloc_policy = crate::groups::AllocPolicy::Unallocable;
        }
        examples::prepared(&op, &cluster, &fresh, &cluster.master);
        cluster.nodes.get_mut(&examples::node_name("node3")).unwrap().drained = true;
        examples::refused(&op, &cluster, &fresh, &cluster.master, "node node3 is drained");
    }

    #[test]
    fn the_nodes_and_their_files_change_places_in_a_new_generation() {
        let (cluster, fresh, op) = InstanceMigrate::examples().remove(0);
        let before = &cluster.instances[&op.instance];
        let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
        let [Edit::InstancePut { instance: after }] = &plan.edits[..] else { panic!("one edit") };
        assert_eq!(after.generation, before.generation + 1);
        assert_eq!(
            (&after.primary, after.secondaries()),
            (&before.secondaries()[0], vec![before.primary.clone()])
        );
        for (new, old) in after.disks.iter().zip(&before.disks) {
            assert_eq!((new.uuid, new.mirrors[0].uuid), (old.mirrors[0].uuid, old.uuid));
        }
    }
}
