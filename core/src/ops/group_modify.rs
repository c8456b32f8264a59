//! OP_GROUP_MODIFY: whether a group's nodes get new instances.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookObject, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    examples, groups,
};
use crate::{
    edit::Edit,
    groups::{AllocPolicy, Group},
    hooks::Env,
    locks::Locks,
    model::Cluster,
    names::GroupName,
};

/// Changes a group; what is absent stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupModify {
    /// The group.
    pub name: GroupName,
    /// Whether its nodes get new instances.
    pub alloc_policy: Option<AllocPolicy>,
}

/// The group before and after.
#[derive(Debug)]
pub struct Checked {
    before: Group,
    after: Group,
}

impl Operation for GroupModify {
    const ROW: Row = Row {
        op_id: "OP_GROUP_MODIFY",
        object: ObjectKind::Group,
        hooks: None,
        hooks2: Some(HookRow2::both("group-modify", "OP_GROUP_SET_PARAMS")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("group", &self.name)
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let before = groups::group(given.cluster, &self.name)?.clone();
        let Some(alloc_policy) = self.alloc_policy else {
            return Err(Refusal("nothing to change: give an allocation policy".to_owned()));
        };
        Ok(Checked { after: Group { alloc_policy, ..before.clone() }, before })
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &Checked) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Checked) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let policy = self.alloc_policy.map_or("", AllocPolicy::as_str);
        Hooks2::on_master(given, HookObject::Group(Box::new(checked.before.clone())))
            .with(Env::new().set("NEW_ALLOC_POLICY", policy))
    }

    fn plan(&self, _given: Given<'_>, checked: &Checked) -> Plan {
        Plan::new().edit(Edit::GroupPut { group: checked.after.clone() })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let name = examples::group_name("rack2");
        let op = GroupModify { name, alloc_policy: Some(AllocPolicy::Unallocable) };
        vec![(examples::networked(), examples::fresh(), op)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let (cluster, fresh, op) = GroupModify::examples().remove(0);
        let check = |op: GroupModify, text: &str| {
            examples::refused(&op, &cluster, &fresh, &cluster.master, text);
        };
        check(GroupModify { alloc_policy: None, ..op.clone() }, "nothing to change");
        let name = examples::group_name("rack3");
        check(GroupModify { name, ..op }, "there is no group rack3; the nearest name is rack2");
    }
}
