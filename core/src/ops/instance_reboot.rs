//! OP_INSTANCE_REBOOT: a guest starts anew, within its machine or with a new one.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, examples,
    hooks2,
    mirroring::{self, Starting},
    parts,
};
use crate::{
    calls::{Call, NodeCall},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance},
    names::InstanceName,
};

/// What starts anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RebootKind {
    /// The guest's system, after a clean shutdown.
    #[default]
    Soft,
    /// The guest's system, at once, as by the button.
    Hard,
    /// The whole machine: what was modified since its last start counts.
    Full,
}

impl RebootKind {
    /// `soft`, `hard` or `full`.
    pub fn as_str(self) -> &'static str {
        match self {
            RebootKind::Soft => "soft",
            RebootKind::Hard => "hard",
            RebootKind::Full => "full",
        }
    }

    /// Parses one of these words.
    pub fn parse(text: &str) -> Option<Self> {
        [RebootKind::Soft, RebootKind::Hard, RebootKind::Full].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Reboots an instance that is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceReboot {
    /// The instance.
    pub instance: InstanceName,
    /// What starts anew.
    pub kind: RebootKind,
}

impl Operation for InstanceReboot {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_REBOOT",
        object: ObjectKind::Instance,
        hooks: None,
        hooks2: Some(HookRow2::both("instance-reboot", "OP_INSTANCE_REBOOT")),
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
        if !instance.up {
            return Err(Refusal(format!("instance {} is down: start it", self.instance)));
        }
        Ok(instance.clone())
    }

    fn hook_nodes(&self, _given: Given<'_>, _instance: &Instance) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _instance: &Instance) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, instance: &Instance) -> Hooks2 {
        let own = Env::new()
            .boolean("IGNORE_SECONDARIES", false)
            .set("REBOOT_TYPE", self.kind.as_str())
            .set("SHUTDOWN_TIMEOUT", hooks2::seconds(parts::SHUTDOWN_TIMEOUT_MS));
        Hooks2::instance(given, instance).with(own)
    }

    fn plan(&self, given: Given<'_>, instance: &Instance) -> Plan {
        let reboot = |timeout_ms| {
            let (uuid, name) = (instance.uuid, instance.name.clone());
            let call = NodeCall::GuestReboot { instance: uuid, name, timeout_ms };
            Plan::new().harmless(Call::Node(instance.primary.clone(), call))
        };
        match self.kind {
            RebootKind::Soft => reboot(parts::SHUTDOWN_TIMEOUT_MS),
            RebootKind::Hard => reboot(0),
            RebootKind::Full => {
                let plan = parts::plan_stop(Plan::new(), given.cluster, instance, parts::SHUTDOWN_TIMEOUT_MS);
                let how = Starting { force: false, undone: false };
                let plan = mirroring::plan_start(plan, given.cluster, Some(instance), instance, how);
                let after = mirroring::started(given.cluster, Some(instance), instance);
                if after == *instance {
                    return plan;
                }
                plan.edit(Edit::InstancePut { instance: Box::new(after) })
            }
        }
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let reboot = |kind| {
            let instance = examples::instance_name("web1");
            (examples::cluster(), examples::fresh(), InstanceReboot { instance, kind })
        };
        let real = InstanceReboot { instance: examples::instance_name("mail1"), kind: RebootKind::Full };
        let mut all: Vec<_> = [RebootKind::Soft, RebootKind::Hard, RebootKind::Full].map(reboot).into();
        all.push((examples::in_sync("mail1"), examples::fresh(), real));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, name: &str, text: &str| {
            let op = InstanceReboot { instance: examples::instance_name(name), kind: RebootKind::Soft };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        check(&examples::cluster(), "web3", "there is no instance web3");
        check(&examples::cluster(), "db1", "instance db1 is down: start it");
        check(&examples::offline("node2"), "mail1", "node node2 is marked offline");
    }
}
