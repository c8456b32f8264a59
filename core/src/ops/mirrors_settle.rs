//! OP_INSTANCE_MIRRORS_SETTLE: the configuration follows what an instance's mirrors do. The master asks for it by itself when
//! a node says something else than the configuration.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common, examples,
    mirroring, parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance},
    names::InstanceName,
};

/// Settles the states of an instance's copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorsSettle {
    /// The instance.
    pub instance: InstanceName,
}

impl Operation for MirrorsSettle {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_MIRRORS_SETTLE",
        object: ObjectKind::Instance,
        hooks: None,
        hooks2: None,
        submitter: Submitter::Admin,
    };
    type Checked = Instance;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("instance", &self.instance)
    }

    fn check(&self, given: Given<'_>) -> Result<Instance, Refusal> {
        common::instance(given.cluster, &self.instance).cloned()
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
        let copies = mirroring::copies(instance, |_| true);
        // Whoever asked may have asked before another job stopped the guest: its copies stay what they are.
        let asked = parts::instance_reachable(given.cluster, &self.instance).is_ok() && instance.up;
        if copies.is_empty() || !asked || !mirroring::follows(given.cluster, instance) {
            return Plan::new();
        }
        Plan::new()
            .harmless(mirroring::check(instance, &copies))
            .edit(Edit::CopiesSettle { instance: self.instance.clone(), mirrors: Default::default() })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let settle = |name: &str| {
            let instance = examples::instance_name(name);
            (examples::in_sync("mail1"), examples::fresh(), MirrorsSettle { instance })
        };
        vec![settle("mail1"), settle("db1")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        calls::{MirrorStatus, Output},
        model::CopyState,
    };

    #[test]
    fn a_copy_is_what_its_mirror_says() {
        let (cluster, fresh, op) = MirrorsSettle::examples().remove(0);
        let uuids: Vec<_> = mirroring::copies(&cluster.instances[&op.instance], |_| true)
            .iter()
            .map(|c| c.mirror.uuid)
            .collect();
        let cases = [
            (CopyState::Consistent, Some(MirrorStatus::Ready), CopyState::Consistent),
            (CopyState::Consistent, Some(MirrorStatus::Broken), CopyState::Stale),
            (CopyState::Consistent, None, CopyState::Consistent),
            (CopyState::Inconsistent, Some(MirrorStatus::Ready), CopyState::Consistent),
            (CopyState::Inconsistent, Some(MirrorStatus::Broken), CopyState::Inconsistent),
            (CopyState::Stale, Some(MirrorStatus::Broken), CopyState::Stale),
            (CopyState::Stale, Some(MirrorStatus::Syncing), CopyState::Inconsistent),
        ];
        for (before, mirror, after) in cases {
            let mut cluster = cluster.clone();
            let mail = cluster.instances.get_mut(&op.instance).unwrap();
            mail.disks[0].mirrors[0].state = before;
            let mut edit = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan.edits.remove(0);
            let mirrors = mirror.map(|status| (uuids[0], status)).into_iter().collect();
            edit.fill(&[Output { mirrors, ..Output::default() }]);
            let mut slot = Some(cluster);
            edit.apply(&mut slot);
            let settled = &slot.unwrap().instances[&op.instance];
            assert_eq!(settled.disks[0].mirrors[0].state, after, "{before:?} {mirror:?}");
            assert_eq!(settled.disks[1].mirrors[0].state, CopyState::Consistent);
        }
    }
}
