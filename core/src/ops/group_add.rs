//! OP_GROUP_ADD: makes a group of nodes, still without any.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookObject, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    examples, groups, parts,
};
use crate::{
    edit::Edit,
    groups::{AllocPolicy, Group},
    hooks::Env,
    locks::Locks,
    model::Cluster,
    names::GroupName,
    tags::Tags,
};

/// Makes a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAdd {
    /// Its name.
    pub name: GroupName,
    /// Whether its nodes get new instances.
    pub alloc_policy: AllocPolicy,
}

impl Operation for GroupAdd {
    const ROW: Row = Row {
        op_id: "OP_GROUP_ADD",
        object: ObjectKind::Group,
        hooks: None,
        hooks2: Some(HookRow2::both("group-add", "OP_GROUP_ADD")),
        submitter: Submitter::Operator,
    };
    type Checked = Group;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("group", &self.name)
    }

    fn check(&self, given: Given<'_>) -> Result<Group, Refusal> {
        groups::name_free(given.cluster, &self.name)?;
        Ok(Group {
            uuid: parts::fresh_uuid(given, parts::OBJECT),
            name: self.name.clone(),
            alloc_policy: self.alloc_policy,
            tags: Tags::default(),
        })
    }

    fn hook_nodes(&self, _given: Given<'_>, _group: &Group) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _group: &Group) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, group: &Group) -> Hooks2 {
        Hooks2::on_master(given, HookObject::Group(Box::new(group.clone())))
    }

    fn plan(&self, given: Given<'_>, group: &Group) -> Plan {
        let plan = Plan::new().edit(Edit::GroupPut { group: group.clone() });
        // A store older than groups has the first one in no record as long as it is the only one.
        let mut known = given.cluster.groups.keys();
        match (known.next(), known.next()) {
            (Some(first), None) => plan.edit(Edit::GroupRecord { group: *first }),
            (Some(_), Some(_)) | (None, _) => plan,
        }
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let name = examples::group_name("rack9");
        let second = GroupAdd { name: name.clone(), alloc_policy: AllocPolicy::Preferred };
        let more = GroupAdd { name, alloc_policy: AllocPolicy::LastResort };
        vec![
            (examples::cluster(), examples::fresh(), second),
            (examples::networked(), examples::fresh(), more),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let (cluster, fresh, op) = GroupAdd::examples().remove(1);
        let op = GroupAdd { name: examples::group_name("rack2"), ..op };
        examples::refused(&op, &cluster, &fresh, &cluster.master, "there is a group rack2 already");
    }

    #[test]
    fn the_second_group_records_the_first() {
        let records = |index: usize| {
            let (cluster, fresh, op) = GroupAdd::examples().remove(index);
            let edits = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan.edits;
            edits.iter().filter(|edit| matches!(edit, Edit::GroupRecord { .. })).count()
        };
        assert_eq!((records(0), records(1)), (1, 0));
    }
}
