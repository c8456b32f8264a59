//! OP_NODE_EVACUATE: instances leave a node, as its primary, its secondary or both, a job or two each.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common, examples,
    relocate::{Leave, Leaving, Load, Relocation, primary_after},
};
use crate::{
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance},
    names::NodeName,
};

/// Which instances leave a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evacuated {
    /// Those of both kinds; primaries leave it wholly.
    #[default]
    All,
    /// Those whose primary it is; it is their secondary then.
    Primaries,
    /// Those whose copies it has.
    Secondaries,
}

impl Evacuated {
    /// `all`, `primaries` or `secondaries`.
    pub fn as_str(self) -> &'static str {
        match self {
            Evacuated::All => "all",
            Evacuated::Primaries => "primaries",
            Evacuated::Secondaries => "secondaries",
        }
    }

    /// Parses one of these words.
    pub fn parse(text: &str) -> Option<Self> {
        [Evacuated::All, Evacuated::Primaries, Evacuated::Secondaries]
            .into_iter()
            .find(|which| which.as_str() == text)
    }
}

/// Evacuates a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvacuate {
    /// The node.
    pub name: NodeName,
    /// Which instances.
    pub which: Evacuated,
    /// Gets the copies; default: the nodes with the least memory in use.
    pub new_secondary: Option<NodeName>,
    /// Goes on from copies that miss writes.
    pub ignore_consistency: bool,
    /// The operator has made sure that the node, which is marked offline, runs nothing any more.
    pub fenced: bool,
    /// What can't leave stays, and is told; else nothing leaves then.
    #[serde(default)]
    pub ignore_unmovable: bool,
}

impl NodeEvacuate {
    /// The node that gets an instance's copies.
    fn place(
        &self,
        cluster: &Cluster,
        load: &mut Load,
        instance: &Instance,
        primary: &NodeName,
    ) -> Result<NodeName, Refusal> {
        match &self.new_secondary {
            Some(node) if node == primary => {
                Err(Refusal(format!("node {node} is its primary, or will be: its copies go elsewhere")))
            }
            Some(node) => Ok(node.clone()),
            None => load.place(cluster, instance, &self.name, primary),
        }
    }
}

impl Operation for NodeEvacuate {
    const ROW: Row = Row {
        op_id: "OP_NODE_EVACUATE",
        object: ObjectKind::Node,
        hooks: None,
        // The jobs that it asks for have theirs.
        hooks2: None,
        submitter: Submitter::Operator,
    };
    type Checked = Leaving;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().exclusive("node", &self.name);
        match &self.new_secondary {
            Some(node) => locks.shared("node", node),
            None => locks,
        }
    }

    fn check(&self, given: Given<'_>) -> Result<Leaving, Refusal> {
        let cluster = given.cluster;
        common::node(cluster, &self.name)?;
        if let Some(node) = &self.new_secondary {
            if self.which == Evacuated::Primaries {
                return Err(Refusal(
                    "primaries go to their secondaries: no other node can be named".to_owned(),
                ));
            }
            if *node == self.name {
                return Err(Refusal(format!("node {node} is the one that is evacuated")));
            }
            common::node_for_instances(cluster, node)?;
        }
        let leave = Leave { ignore_consistency: self.ignore_consistency, fenced: self.fenced };
        let (mut relocation, mut load) = (Relocation::default(), Load::of(cluster));
        if self.which != Evacuated::Secondaries {
            for instance in cluster.primaries_on(&self.name) {
                let moved = relocation.leave_primary(given, instance, leave);
                if let (Some(_), Evacuated::All) = (moved, self.which) {
                    let place = self.place(cluster, &mut load, instance, &primary_after(instance));
                    relocation.leave_secondary(given, instance, place, moved);
                }
            }
        }
        if self.which != Evacuated::Primaries {
            for instance in cluster.secondaries_on(&self.name) {
                let place = self.place(cluster, &mut load, instance, &instance.primary);
                relocation.leave_secondary(given, instance, place, None);
            }
        }
        relocation.leaving(&self.name, self.ignore_unmovable)
    }

    fn hook_nodes(&self, _given: Given<'_>, _leaving: &Leaving) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _leaving: &Leaving) -> Env {
        Env::new()
    }

    fn hooks2(&self, _given: Given<'_>, _leaving: &Leaving) -> Hooks2 {
        Hooks2::none()
    }

    fn plan(&self, _given: Given<'_>, leaving: &Leaving) -> Plan {
        leaving.plan()
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let evacuate = |cluster: Cluster, name: &str, which: Evacuated, new_secondary: Option<&str>| {
            let (name, new_secondary) = (examples::node_name(name), new_secondary.map(examples::node_name));
            let op = NodeEvacuate {
                name,
                which,
                new_secondary,
                ignore_consistency: false,
                fenced: false,
                ignore_unmovable: false,
            };
            (cluster, examples::fresh(), op)
        };
        let mut lost = evacuate(examples::offline("node2"), "node2", Evacuated::Primaries, None);
        (lost.2.ignore_consistency, lost.2.fenced) = (true, true);
        let mut rest = evacuate(examples::in_sync("mail1"), "node1", Evacuated::All, None);
        rest.2.ignore_unmovable = true;
        vec![
            evacuate(examples::cluster(), "node3", Evacuated::Secondaries, None),
            evacuate(examples::in_sync("mail1"), "node2", Evacuated::All, Some("node1")),
            evacuate(examples::offline("node3"), "node3", Evacuated::All, None),
            lost,
            rest,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{FollowUp, Op};

    fn evacuate(name: &str, which: Evacuated, new_secondary: Option<&str>) -> NodeEvacuate {
        let new_secondary = new_secondary.map(examples::node_name);
        let name = examples::node_name(name);
        NodeEvacuate {
            name,
            which,
            new_secondary,
            ignore_consistency: false,
            fenced: false,
            ignore_unmovable: false,
        }
    }

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, op: NodeEvacuate, text: &str| {
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        let cluster = examples::cluster();
        let (all, primaries, secondaries) = (Evacuated::All, Evacuated::Primaries, Evacuated::Secondaries);
        check(&cluster, evacuate("node9", all, None), "there is no node node9");
        check(&cluster, evacuate("node3", all, Some("node9")), "there is no node node9");
        check(&cluster, evacuate("node3", all, Some("node3")), "node node3 is the one that is evacuated");
        check(&cluster, evacuate("node2", primaries, Some("node1")), "primaries go to their secondaries");
        check(&cluster, evacuate("node1", primaries, None), "; web1: it has the template file");
        check(&cluster, evacuate("node2", all, None), "mail1: the copy of sda on node3 is stale");
        let taken = "db1: node node1 is its primary, or will be";
        check(&cluster, evacuate("node3", secondaries, Some("node1")), taken);
        let drained = examples::drained("node1");
        check(&drained, evacuate("node3", secondaries, Some("node1")), "node node1 is drained");
        let nowhere = "mail1: no other node of the group of node2 may get its copies";
        check(&drained, evacuate("node3", secondaries, None), nowhere);
        let unfenced = Cluster { fence_command: None, ..examples::fenced("mail1") };
        check(&unfenced, evacuate("node2", primaries, None), "mail1: node node2 is marked offline");
    }

    #[test]
    fn what_can_not_leave_stays_where_the_operator_says_so() {
        let (mut cluster, fresh, op) = NodeEvacuate::examples().remove(4);
        let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
        assert!(!plan.follow_ups.is_empty());
        let stays =
            |name: &str| plan.warnings.iter().any(|it| it.starts_with(&format!("stays on node1: {name}:")));
        assert!(stays("web1") && stays("null1"), "{:?}", plan.warnings);
        let strict = NodeEvacuate { ignore_unmovable: false, ..op.clone() };
        let hint = " (--ignore-unmovable moves the others)";
        examples::refused(&strict, &cluster, &fresh, &cluster.master, hint);
        // Where nothing leaves there is nothing to be done.
        cluster.instances.retain(|name, _| ["web1", "null1"].contains(&name.as_str()));
        examples::refused(&op, &cluster, &fresh, &cluster.master, "not all instances can leave node1: ");
    }

    #[test]
    fn copies_go_to_the_node_with_the_least_memory_in_use() {
        let places = |cluster: &Cluster| -> Vec<(String, String)> {
            let op = evacuate("node3", Evacuated::Secondaries, None);
            let jobs = examples::prepared(&op, cluster, &examples::fresh(), &cluster.master).plan.follow_ups;
            let place = |job: &FollowUp| {
                let Op::DisksReplace(op) = &job.op else { panic!("{:?}", job.op) };
                let node = op.new_secondary.as_ref().map(ToString::to_string).unwrap_or_default();
                (op.instance.to_string(), node)
            };
            jobs.iter().map(place).collect()
        };
        let pair = |instance: &str, node: &str| (instance.to_owned(), node.to_owned());
        let mut cluster = examples::cluster();
        assert_eq!(places(&cluster), [pair("db1", "node2"), pair("mail1", "node1")]);
        // A fourth node without anything gets the first; it counts with it for the second.
        let node4 = crate::model::Node {
            name: examples::node_name("node4"),
            ..cluster.nodes[&cluster.master].clone()
        };
        cluster.nodes.insert(node4.name.clone(), node4);
        assert_eq!(places(&cluster), [pair("db1", "node4"), pair("mail1", "node4")]);
        // Another group's node is none of theirs.
        cluster.nodes.get_mut(&examples::node_name("node4")).unwrap().group = uuid::Uuid::from_u128(77);
        assert_eq!(places(&cluster), [pair("db1", "node2"), pair("mail1", "node1")]);
    }

    #[test]
    fn a_primary_that_leaves_wholly_has_two_jobs_in_order() {
        let (cluster, fresh, op) = NodeEvacuate::examples().remove(1);
        let jobs = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan.follow_ups;
        let [first, second] = &jobs[..] else { panic!("two jobs") };
        assert!(matches!(&first.op, Op::InstanceMigrate(_)) && first.after.is_none());
        assert!(matches!(&second.op, Op::DisksReplace(_)) && second.after == Some(0));
    }
}
