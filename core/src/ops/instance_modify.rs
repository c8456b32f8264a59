//! OP_INSTANCE_MODIFY: other memory, processors or address; the guest has them from its next start.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, ObjectKind, Operation, Plan, Refusal, Row, Submitter, addresses, bounds,
    common, examples, parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance},
    names::InstanceName,
};

/// What becomes of an instance's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpChange {
    /// It gets this one.
    Set(IpAddr),
    /// It has none.
    Clear,
}

/// Changes an instance; what is absent stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceModify {
    /// The instance.
    pub instance: InstanceName,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Virtual processors.
    pub vcpus: Option<u32>,
    /// Its address.
    pub ip: Option<IpChange>,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    before: Instance,
    after: Instance,
}

impl Operation for InstanceModify {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_MODIFY",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "instance-modify", op_code: "OP_INSTANCE_SET_PARMS" }),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().exclusive("instance", &self.instance);
        match self.ip {
            Some(IpChange::Set(ip)) => locks.exclusive("ip", ip),
            Some(IpChange::Clear) | None => locks,
        }
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let before = common::instance(given.cluster, &self.instance)?.clone();
        if self.memory_mib.is_none() && self.vcpus.is_none() && self.ip.is_none() {
            return Err(Refusal(
                "nothing to change: give memory, virtual processors or an address".to_owned(),
            ));
        }
        let ip = match self.ip {
            None => before.ip,
            Some(IpChange::Clear) => None,
            Some(IpChange::Set(ip)) => {
                addresses::instance_address_free(given.cluster, ip, &self.instance)?;
                Some(ip)
            }
        };
        let memory_mib = self.memory_mib.unwrap_or(before.memory_mib);
        let vcpus = self.vcpus.unwrap_or(before.vcpus);
        bounds::memory(memory_mib)?;
        bounds::vcpus(vcpus)?;
        let after = Instance { memory_mib, vcpus, ip, ..before.clone() };
        Ok(Checked { before, after })
    }

    fn hook_nodes(&self, given: Given<'_>, checked: &Checked) -> HookNodes {
        parts::instance_nodes(given, &checked.before)
    }

    fn hook_env(&self, _given: Given<'_>, checked: &Checked) -> Env {
        common::instance_env(&checked.before)
            .set("MEM_SIZE", checked.after.memory_mib.to_string())
            .set("VCPUS", checked.after.vcpus.to_string())
            .optional("INSTANCE_IP", checked.after.ip.map(|ip| ip.to_string()))
    }

    fn plan(&self, _given: Given<'_>, checked: &Checked) -> Plan {
        Plan::new().edit(Edit::InstancePut { instance: Box::new(checked.after.clone()) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let instance = examples::instance_name("web1");
        let memory = InstanceModify { instance, memory_mib: Some(1024), vcpus: None, ip: None };
        let address = InstanceModify {
            instance: examples::instance_name("mail1"),
            memory_mib: None,
            vcpus: Some(4),
            ip: Some(IpChange::Set(IpAddr::from([198, 51, 100, 77]))),
        };
        let cleared = InstanceModify { memory_mib: None, ip: Some(IpChange::Clear), ..memory.clone() };
        [memory, address, cleared].map(|op| (examples::cluster(), examples::fresh(), op)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut InstanceModify), text: &str) {
        let cluster = examples::cluster();
        let instance = examples::instance_name("mail1");
        let mut op = InstanceModify { instance, memory_mib: None, vcpus: None, ip: None };
        change(&mut op);
        examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn refusals() {
        check(|_| (), "nothing to change");
        check(|op| op.instance = examples::instance_name("mail11"), "there is no instance mail11");
        check(|op| op.memory_mib = Some(0), "a memory of 0 MiB");
        check(|op| op.vcpus = Some(0), "0 virtual processors");
        check(
            |op| op.ip = Some(IpChange::Set(IpAddr::from([198, 51, 100, 1]))),
            "instance web1 has the address",
        );
    }

    #[test]
    fn variables_are_those_after_the_change() {
        let expected =
            [("1024", "2", Some("198.51.100.1")), ("256", "4", Some("198.51.100.77")), ("512", "2", None)];
        for ((cluster, fresh, op), (memory, vcpus, ip)) in
            InstanceModify::examples().into_iter().zip(expected)
        {
            let env = examples::prepared(&op, &cluster, &fresh, &cluster.master).env;
            let found = (env.get("MEM_SIZE"), env.get("VCPUS"), env.get("INSTANCE_IP"));
            assert_eq!(found, (Some(memory), Some(vcpus), ip));
        }
    }
}
