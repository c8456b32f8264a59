//! OP_INSTANCE_RENAME: another name for an instance; everything on nodes is named by its uuid and stays.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common,
    examples, hooks2, mirroring, parts,
};
use crate::{
    calls::{Call, NodeCall},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance},
    names::InstanceName,
};

/// Renames an instance that is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRename {
    /// The instance.
    pub instance: InstanceName,
    /// Its name afterwards.
    pub new_name: InstanceName,
}

impl Operation for InstanceRename {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_RENAME",
        object: ObjectKind::Instance,
        hooks: None,
        hooks2: Some(HookRow2::both("instance-rename", "OP_INSTANCE_RENAME")),
        submitter: Submitter::Operator,
    };
    /// The instance afterwards.
    type Checked = Instance;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("instance", &self.instance).exclusive("instance", &self.new_name)
    }

    fn check(&self, given: Given<'_>) -> Result<Instance, Refusal> {
        let instance = parts::instance_reachable(given.cluster, &self.instance)?;
        parts::refuse_up(instance)?;
        if given.cluster.instances.contains_key(&self.new_name) {
            return Err(Refusal(format!("there is an instance {} already", self.new_name)));
        }
        Ok(Instance { name: self.new_name.clone(), ..instance.clone() })
    }

    fn hook_nodes(&self, _given: Given<'_>, _after: &Instance) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _after: &Instance) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, _after: &Instance) -> Hooks2 {
        let new_name = Env::new().set("INSTANCE_NEW_NAME", self.new_name.as_str());
        Hooks2::instance(given, hooks2::instance_before(given, &self.instance)).with(new_name)
    }

    fn plan(&self, given: Given<'_>, after: &Instance) -> Plan {
        let mut plan = Plan::new();
        let mut written = after.clone();
        if !after.os.is_none() && !after.disks.is_empty() {
            // The system on the disks may know its own name.
            let rename = |to: &InstanceName, from: &InstanceName| {
                let guest = common::guest(given.cluster, &Instance { name: to.clone(), ..after.clone() });
                Call::Node(after.primary.clone(), NodeCall::OsRename { guest, old_name: from.clone() })
            };
            plan = plan.step(rename(&self.new_name, &self.instance), rename(&self.instance, &self.new_name));
            plan = mirroring::plan_refresh(plan, given.cluster, after);
            written = mirroring::left_behind(given.cluster, None, after);
        }
        plan.edit(Edit::InstanceRemove { instance: self.instance.clone() })
            .edit(Edit::InstancePut { instance: Box::new(written) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let instance = examples::instance_name("db1");
        let new_name = examples::instance_name("db2");
        let mut cluster = examples::cluster();
        let plain = (cluster.clone(), examples::fresh(), InstanceRename { instance, new_name });
        let with_os = cluster.instances.get_mut(&plain.2.instance).expect("it is an example");
        with_os.os = crate::names::OsName::parse("debian").expect("examples use good names");
        let with_os = (cluster, examples::fresh(), plain.2.clone());
        vec![plain, with_os]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |name: &str, new_name: &str, text: &str| {
            let cluster = examples::cluster();
            let (instance, new_name) = (examples::instance_name(name), examples::instance_name(new_name));
            let op = InstanceRename { instance, new_name };
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        };
        check("web3", "web4", "there is no instance web3");
        check("web1", "web2", "instance web1 is up: shut it down first");
        check("db1", "web1", "there is an instance web1 already");
        check("db1", "db1", "there is an instance db1 already");
    }
}
