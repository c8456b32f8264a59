//! OP_GROUP_RENAME: a group has another name; its nodes and networks name it by its uuid and need no change.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookObject, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    examples, groups,
};
use crate::{edit::Edit, groups::Group, hooks::Env, locks::Locks, model::Cluster, names::GroupName};

/// Renames a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRename {
    /// The group.
    pub name: GroupName,
    /// Its new name.
    pub new_name: GroupName,
}

impl Operation for GroupRename {
    const ROW: Row = Row {
        op_id: "OP_GROUP_RENAME",
        object: ObjectKind::Group,
        hooks: None,
        hooks2: Some(HookRow2::both("group-rename", "OP_GROUP_RENAME")),
        submitter: Submitter::Operator,
    };
    /// The group as it was.
    type Checked = Group;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("group", &self.name).exclusive("group", &self.new_name)
    }

    fn check(&self, given: Given<'_>) -> Result<Group, Refusal> {
        let group = groups::group(given.cluster, &self.name)?;
        if self.name == self.new_name {
            return Err(Refusal(format!("group {} has this name already", self.name)));
        }
        groups::name_free(given.cluster, &self.new_name)?;
        Ok(group.clone())
    }

    fn hook_nodes(&self, _given: Given<'_>, _group: &Group) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _group: &Group) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, group: &Group) -> Hooks2 {
        let mut nodes = vec![given.cluster.master.clone()];
        nodes.extend(given.cluster.nodes_in(group.uuid).map(|node| node.name.clone()));
        let names = Env::new().set("OLD_NAME", self.name.as_str()).set("NEW_NAME", self.new_name.as_str());
        Hooks2::on_master(given, HookObject::Cluster).on(HookNodes::both(nodes)).with(names)
    }

    fn plan(&self, _given: Given<'_>, group: &Group) -> Plan {
        let group = Group { name: self.new_name.clone(), ..group.clone() };
        Plan::new().edit(Edit::GroupPut { group })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let [name, new_name] = ["rack2", "room7"].map(examples::group_name);
        vec![(examples::networked(), examples::fresh(), GroupRename { name, new_name })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |name: &str, new_name: &str, text: &str| {
            let [name, new_name] = [name, new_name].map(examples::group_name);
            let cluster = examples::networked();
            let op = GroupRename { name, new_name };
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        };
        check("rack2", "rack2", "group rack2 has this name already");
        check("rack2", "spare", "there is a group spare already");
        check("rakc2", "room7", "there is no group rakc2; the nearest name is rack2");
    }
}
