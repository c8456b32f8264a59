//! OP_INSTANCE_SHUTDOWN: shuts an instance's guest down, by force after a limit.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    common, examples,
    fencing::{self, OldPrimary},
    hooks2, mirroring, parts,
};
use crate::{
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance},
    names::InstanceName,
};

/// The longest limit of a clean shutdown: a day.
const TIMEOUT_S_MAX: u32 = 24 * 3600;

/// Shuts an instance down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceShutdown {
    /// The instance.
    pub instance: InstanceName,
    /// Limit of a clean shutdown in seconds; 0 forces at once; default 120.
    pub timeout_s: Option<u32>,
    /// The operator has made sure that the primary, which is marked offline, runs the guest no more.
    #[serde(default)]
    pub fenced: bool,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    instance: Instance,
    primary: OldPrimary,
}

impl InstanceShutdown {
    fn timeout_ms(&self) -> u64 {
        self.timeout_s.map_or(parts::SHUTDOWN_TIMEOUT_MS, |seconds| u64::from(seconds) * 1000)
    }
}

impl Operation for InstanceShutdown {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_SHUTDOWN",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "instance-shutdown", op_code: "OP_INSTANCE_SHUTDOWN" }),
        hooks2: Some(HookRow2::both("instance-stop", "OP_INSTANCE_SHUTDOWN")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("instance", &self.instance)
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        if let Some(timeout_s) = self.timeout_s
            && timeout_s > TIMEOUT_S_MAX
        {
            return Err(Refusal(format!("a shutdown limit of {timeout_s} s is over {TIMEOUT_S_MAX} s")));
        }
        let instance = common::instance(given.cluster, &self.instance)?.clone();
        let primary = fencing::check_old_primary(given.cluster, &instance, self.fenced)?;
        Ok(Checked { instance, primary })
    }

    fn hook_nodes(&self, given: Given<'_>, checked: &Checked) -> HookNodes {
        parts::instance_nodes(given, &checked.instance)
    }

    fn hook_env(&self, _given: Given<'_>, checked: &Checked) -> Env {
        common::instance_env(&checked.instance)
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let timeout = Env::new().set("TIMEOUT", hooks2::seconds(self.timeout_ms()));
        Hooks2::instance(given, &checked.instance).with(timeout)
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let Checked { instance, primary } = checked;
        let after = Instance { up: false, ..instance.clone() };
        let gone = |plan: Plan| mirroring::plan_gone(plan, given.cluster, instance, after.clone());
        match primary {
            OldPrimary::Stops => {}
            OldPrimary::Fence { address, command } => {
                return gone(fencing::plan_fence(Plan::new(), instance, *address, command));
            }
            OldPrimary::Gone => return gone(Plan::new()),
        }
        let plan = parts::plan_stop(Plan::new(), given.cluster, instance, self.timeout_ms());
        let plan = mirroring::plan_stopped(plan, given.cluster, instance, after);
        mirroring::plan_release(plan, given.cluster, instance)
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let shutdown = |name: &str, timeout_s: Option<u32>| {
            let instance = examples::instance_name(name);
            (examples::cluster(), examples::fresh(), InstanceShutdown { instance, timeout_s, fenced: false })
        };
        let (_, fresh, real) = shutdown("mail1", None);
        vec![
            shutdown("mail1", None),
            shutdown("db1", Some(1)),
            (examples::in_sync("mail1"), fresh.clone(), real.clone()),
            (examples::fenced("mail1"), fresh, real),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        calls::{MirrorStatus, Output},
        edit::Edit,
        model::CopyState,
        ops::StepKind,
    };

    #[test]
    fn copies_of_a_guest_whose_node_can_not_say_how_it_ended_are_stale() {
        let (cluster, fresh, op) = InstanceShutdown::examples().remove(2);
        let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
        let [stop, asked] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
        assert!(stop.call.text().starts_with("stop"), "{}", stop.call.text());
        let StepKind::Optional { edits } = &asked.kind else { panic!("{:?}", asked.kind) };
        let is_stale = |edit: &Edit| matches!(edit, Edit::CopySet { state: CopyState::Stale, .. });
        assert_eq!((edits.len(), edits.iter().all(is_stale)), (2, true));
    }

    #[test]
    fn copies_are_what_their_mirrors_were_at_the_end() {
        let (cluster, fresh, op) = InstanceShutdown::examples().remove(2);
        let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
        let copies = mirroring::copies(&cluster.instances[&op.instance], |_| true);
        let statuses = [MirrorStatus::Broken, MirrorStatus::Ready];
        let mirrors = copies.iter().map(|copy| copy.mirror.uuid).zip(statuses).collect();
        let told = [Output::default(), Output { mirrors, ..Output::default() }];
        let mut after = Some(cluster);
        for mut edit in plan.edits {
            edit.fill(&told);
            edit.apply(&mut after);
        }
        let after = &after.unwrap().instances[&op.instance];
        let states: Vec<CopyState> = after.disks.iter().map(|disk| disk.mirrors[0].state).collect();
        assert_eq!((after.up, &states[..]), (false, &[CopyState::Stale, CopyState::Consistent][..]));
    }

    #[test]
    fn an_instance_of_an_offline_node_is_marked_down_once_its_guest_is_known_to_be_gone() {
        let cluster = examples::fenced("mail1");
        let ask = "ask whether copies are still served to node2";
        for (fenced, steps) in [(false, &["fence node2", ask][..]), (true, &[ask])] {
            let instance = examples::instance_name("mail1");
            let op = InstanceShutdown { instance, timeout_s: None, fenced };
            let plan = examples::prepared(&op, &cluster, &examples::fresh(), &cluster.master).plan;
            let made: Vec<String> = plan.steps.iter().map(|step| step.call.text()).collect();
            assert_eq!(made, steps);
            let [Edit::InstancePut { instance: after }, Edit::CopiesSettle { .. }] = &plan.edits[..] else {
                panic!("{:?}", plan.edits)
            };
            let before = cluster.instances[&op.instance].clone();
            assert_eq!(**after, Instance { up: false, ..before });
            assert!(plan.cleanups.is_empty(), "{:?}", plan.cleanups);
        }
    }

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, name: &str, timeout_s: Option<u32>, text: &str| {
            let op = InstanceShutdown { instance: examples::instance_name(name), timeout_s, fenced: false };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        check(&examples::cluster(), "web3", None, "there is no instance web3");
        check(&examples::cluster(), "web1", Some(86_401), "a shutdown limit of 86401 s is over 86400 s");
        let unfenced = Cluster { fence_command: None, ..examples::fenced("mail1") };
        check(&unfenced, "mail1", None, "node node2 is marked offline, and its guests may still run");
    }
}
