//! OP_INSTANCE_REINSTALL: installs an OS definition on an instance's disks again; what they held is gone.

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
    names::{InstanceName, OsName},
};

/// Reinstalls an instance that is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceReinstall {
    /// The instance.
    pub instance: InstanceName,
    /// Another OS definition than its own.
    pub os: Option<OsName>,
}

impl Operation for InstanceReinstall {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_REINSTALL",
        object: ObjectKind::Instance,
        hooks: None,
        hooks2: Some(HookRow2::both("instance-reinstall", "OP_INSTANCE_REINSTALL")),
        submitter: Submitter::Operator,
    };
    /// The instance afterwards.
    type Checked = Instance;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("instance", &self.instance)
    }

    fn check(&self, given: Given<'_>) -> Result<Instance, Refusal> {
        let instance = parts::instance_reachable(given.cluster, &self.instance)?;
        parts::refuse_up(instance)?;
        if instance.disks.is_empty() {
            return Err(Refusal(format!("instance {} has no disks to install on", self.instance)));
        }
        let os = self.os.clone().unwrap_or_else(|| instance.os.clone());
        if os.is_none() {
            return Err(Refusal(format!("instance {} has no OS definition: name one", self.instance)));
        }
        Ok(Instance { os, ..instance.clone() })
    }

    fn hook_nodes(&self, _given: Given<'_>, _instance: &Instance) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _instance: &Instance) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, _instance: &Instance) -> Hooks2 {
        Hooks2::instance(given, hooks2::instance_before(given, &self.instance))
    }

    fn plan(&self, given: Given<'_>, instance: &Instance) -> Plan {
        let guest = common::guest(given.cluster, instance);
        let install = Call::Node(instance.primary.clone(), NodeCall::OsCreate { guest, reinstall: true });
        let after = mirroring::left_behind(given.cluster, None, instance);
        mirroring::plan_refresh(Plan::new().last(install), given.cluster, instance)
            .edit(Edit::InstancePut { instance: Box::new(after) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let instance = examples::instance_name("db1");
        let os = Some(OsName::parse("debian").expect("examples use good names"));
        vec![(examples::cluster(), examples::fresh(), InstanceReinstall { instance, os })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |name: &str, text: &str| {
            let cluster = examples::cluster();
            let op = InstanceReinstall { instance: examples::instance_name(name), os: None };
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        };
        check("web3", "there is no instance web3");
        check("web1", "instance web1 is up: shut it down first");
        check("db1", "instance db1 has no OS definition: name one");
    }
}
