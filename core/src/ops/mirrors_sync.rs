//! OP_INSTANCE_MIRRORS_SYNC: copies that miss writes are brought in sync again, beside the guest. The master asks for it by
//! itself; the job ends when copying has begun, and OP_INSTANCE_MIRRORS_SETTLE says when a copy holds everything.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common, examples,
    mirroring, parts,
};
use crate::{
    calls::Sync,
    hooks::Env,
    locks::Locks,
    model::{Cluster, CopyState, Instance},
    names::InstanceName,
};

/// Brings an instance's copies in sync.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorsSync {
    /// The instance.
    pub instance: InstanceName,
}

impl Operation for MirrorsSync {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_MIRRORS_SYNC",
        object: ObjectKind::Instance,
        hooks: None,
        hooks2: None,
        submitter: Submitter::Operator,
    };
    type Checked = Instance;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("instance", &self.instance)
    }

    fn check(&self, given: Given<'_>) -> Result<Instance, Refusal> {
        let instance = parts::instance_reachable(given.cluster, &self.instance)?;
        if !mirroring::follows(given.cluster, instance) || !instance.up {
            return Err(Refusal(format!(
                "{} has no copies that follow a running guest: replace its disks, or start it",
                self.instance
            )));
        }
        if let Some(node) = parts::secondary(instance) {
            common::node_with_disks(given.cluster, &node)?;
        }
        Ok(instance.clone())
    }

    fn hook_nodes(&self, _given: Given<'_>, _instance: &Instance) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _instance: &Instance) -> Env {
        Env::new()
    }

    fn hooks2(&self, _given: Given<'_>, _instance: &Instance) -> Hooks2 {
        Hooks2::none()
    }

    fn plan(&self, given: Given<'_>, instance: &Instance) -> Plan {
        let behind = mirroring::copies(instance, |mirror| mirror.state != CopyState::Consistent);
        let mut plan = Plan::new();
        let serve = mirroring::serve(given.cluster, instance, &behind);
        let start = mirroring::start(given.cluster, instance, &behind, Sync::Full, false);
        let release = mirroring::release(&behind);
        if let (Some(release), Some(serve), Some(start)) = (release, serve, start) {
            // Writes that were on their way when a mirror broke off may arrive much later, and must not come after newer
            // ones: whoever would still take them is ended first.
            plan = plan.harmless(mirroring::stop(instance, &behind)).harmless(release);
            // A copy that is written over is inconsistent before the first write.
            plan = plan.harmless(serve).cleanup_once(start);
        }
        for edit in mirroring::set_all(instance, &behind, CopyState::Inconsistent) {
            plan = plan.edit(edit);
        }
        plan
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let mut cluster = examples::in_sync("mail1");
        let instance = examples::instance_name("mail1");
        let mail = cluster.instances.get_mut(&instance).expect("it is an example");
        mail.disks
            .iter_mut()
            .flat_map(|disk| &mut disk.mirrors)
            .for_each(|copy| copy.state = CopyState::Stale);
        vec![(cluster, examples::fresh(), MirrorsSync { instance })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::Edit;

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, name: &str, text: &str| {
            let op = MirrorsSync { instance: examples::instance_name(name) };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        let cluster = examples::in_sync("mail1");
        check(&cluster, "mail2", "there is no instance mail2");
        check(&cluster, "web1", "web1 has no copies that follow a running guest");
        check(&cluster, "db1", "db1 has no copies that follow a running guest");
    }

    #[test]
    fn only_what_is_behind_is_copied_and_it_is_inconsistent_before() {
        let (mut cluster, fresh, op) = MirrorsSync::examples().remove(0);
        let mail = cluster.instances.get_mut(&op.instance).unwrap();
        mail.disks[0].mirrors[0].state = CopyState::Consistent;
        let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
        assert_eq!((plan.steps.len(), plan.cleanups.len()), (3, 1));
        let [Edit::CopySet { disk, state, .. }] = &plan.edits[..] else { panic!("one edit") };
        assert_eq!((disk.as_str(), *state), ("sdb", CopyState::Inconsistent));
    }
}
