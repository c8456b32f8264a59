//! The keeper: looks at all mirrors once a second, and whenever a node says something new of one, and submits jobs for what
//! is not in order.
//!
//! It looks twice: what seems wrong is asked of the nodes once more before a job is made of it, since a job of that instance
//! may have ended after the nodes spoke. An instance that a job works on, or waits for, is left alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use muster_core::{
    hypervisor::HypervisorKind,
    locks::Locks,
    model::{Cluster, Instance},
    names::{InstanceName, NodeName},
    ops::{MirrorsSettle, MirrorsSync, Op},
};
use muster_proto::v1;
use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, interval, sleep},
};
use uuid::Uuid;

use super::{
    decide::{Verdict, decide, reason},
    memory::Memory,
    seen::{MirrorsSeen, follows, mirrors_of},
};
use crate::{
    driver::{Command, Request},
    master::{Master, Standing},
};

/// How often mirrors are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// Between two looks: changes in quick succession are looked at together.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// A state that is older says nothing: nodes push theirs every 10 s at least, and this is a little more.
const FRESH: Duration = Duration::from_secs(12);
/// Instances whose copies are brought in sync on one node at the same time: more would only make each take longer, and
/// every guest wait for its writes.
const SYNCS_PER_NODE_MAX: usize = 8;
/// Before the queue is asked again after it took no job.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// Looks until the daemon ends.
pub(crate) async fn keep(master: Arc<Master>) {
    let mut keeper = Keeper::default();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = master.nodes().mirrors_changed() => {}
            () = master.stop.cancelled() => return,
        }
        tokio::select! {
            () = keeper.look(&master) => {}
            () = master.stop.cancelled() => return,
        }
        sleep(LOOK_PAUSE).await;
    }
}

/// What is known at a moment.
struct Picture<'a> {
    cluster: &'a Cluster,
    /// What nodes that can be asked say of themselves.
    said: BTreeMap<NodeName, Arc<v1::NodeState>>,
    /// How often nodes were connected to.
    connections: BTreeMap<NodeName, u64>,
}

/// What is to be done for an instance.
#[derive(Debug)]
struct Need {
    instance: Uuid,
    name: InstanceName,
    primary: NodeName,
    verdict: Verdict,
    connections: Option<u64>,
}

impl Need {
    /// The operation, and why.
    fn op(&self) -> Option<(Op, String)> {
        let instance = self.name.clone();
        match &self.verdict {
            Verdict::InOrder | Verdict::Syncing => None,
            Verdict::Settle(findings) => {
                Some((Op::MirrorsSettle(MirrorsSettle { instance }), reason(findings)))
            }
            Verdict::Sync { behind, .. } => Some((Op::MirrorsSync(MirrorsSync { instance }), reason(behind))),
        }
    }

    fn is_sync(&self) -> bool {
        matches!(self.verdict, Verdict::Sync { .. })
    }

    /// The nodes that must answer before the operation makes sense.
    fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        let copies = match &self.verdict {
            Verdict::Sync { node, .. } => Some(node),
            Verdict::InOrder | Verdict::Syncing | Verdict::Settle(_) => None,
        };
        std::iter::once(&self.primary).chain(copies)
    }

    /// Whether one of these jobs works on the instance, or is to.
    fn is_busy(&self, jobs: &[Locks]) -> bool {
        let own = Locks::part().exclusive("instance", &self.name);
        jobs.iter().any(|job| job.conflicts(&own))
    }
}

/// Whether a guest computes, or has ended by itself: its copies are what their mirrors were then. Nothing is said of one that
/// stands still or was stopped, which somebody else sees to.
fn runs(guest: &v1::GuestState) -> Option<bool> {
    match guest.state() {
        v1::RunState::Running => Some(true),
        v1::RunState::ShutDown | v1::RunState::Crashed => Some(false),
        v1::RunState::Unspecified | v1::RunState::Paused | v1::RunState::Stopped => None,
    }
}

/// What instances need, those first that must be settled.
fn needs(picture: &Picture<'_>, memory: &mut Memory, now: Instant) -> Vec<Need> {
    let mut guests: BTreeMap<&NodeName, BTreeMap<Uuid, &v1::GuestState>> = BTreeMap::new();
    for (node, state) in &picture.said {
        let told = state.guests.iter().filter(|guest| runs(guest).is_some());
        let by_uuid = told.filter_map(|guest| Some((guest.instance_uuid.parse().ok()?, guest)));
        guests.insert(node, by_uuid.collect());
    }
    let (mut settles, mut syncs) = (Vec::new(), Vec::new());
    let mut syncing: BTreeMap<NodeName, usize> = BTreeMap::new();
    let wanted = picture.cluster.instances.values().filter(|instance| instance.up);
    for instance in wanted.filter(|instance| follows(picture.cluster, instance)) {
        let guest = guests.get(&instance.primary).and_then(|guests| guests.get(&instance.uuid));
        let Some((guest, runs)) = guest.and_then(|guest| Some((*guest, runs(guest)?))) else { continue };
        let mirrors = mirrors_of(guest);
        for node in syncing_on(instance, &mirrors).into_iter().filter(|_| runs) {
            *syncing.entry(node).or_default() += 1;
        }
        let verdict = decide(instance, &mirrors);
        let copies_on = match &verdict {
            // Nothing follows a guest that has ended.
            Verdict::Sync { .. } if !runs => continue,
            Verdict::InOrder => {
                memory.in_order(instance.uuid, now);
                continue;
            }
            Verdict::Syncing => continue,
            Verdict::Settle(_) => None,
            Verdict::Sync { node, .. } if picture.said.contains_key(node) => Some(node),
            Verdict::Sync { .. } => continue,
        };
        let connections = copies_on.and_then(|node| picture.connections.get(node).copied());
        if memory.allows(instance.uuid, &verdict, connections, now) {
            let (name, primary) = (instance.name.clone(), instance.primary.clone());
            let need = Need { instance: instance.uuid, name, primary, verdict, connections };
            if need.is_sync() { syncs.push(need) } else { settles.push(need) }
        }
    }
    settles.extend(syncs.into_iter().filter(|need| take_turn(need, &mut syncing)));
    settles
}

/// The nodes on which copies of the instance are being brought in sync.
fn syncing_on(instance: &Instance, mirrors: &MirrorsSeen) -> BTreeSet<NodeName> {
    let copies = instance.disks.iter().flat_map(|disk| &disk.mirrors);
    let syncing = copies.filter(|copy| mirrors.get(&copy.uuid).is_some_and(|mirror| mirror.is_syncing()));
    syncing.map(|copy| copy.node.clone()).collect()
}

/// Whether one more may be brought in sync on its node; it counts as one from then on.
fn take_turn(need: &Need, syncing: &mut BTreeMap<NodeName, usize>) -> bool {
    let Verdict::Sync { node, .. } = &need.verdict else { return true };
    let count = syncing.entry(node.clone()).or_default();
    let free = *count < SYNCS_PER_NODE_MAX;
    *count += usize::from(free);
    free
}

/// The loop's state.
#[derive(Default)]
struct Keeper {
    memory: Memory,
    /// Until when the queue is left alone, since it took no job.
    refused: Option<Instant>,
}

impl Keeper {
    async fn look(&mut self, master: &Master) {
        let cluster = master.view().cluster().filter(|_| master.standing() == Standing::Active);
        let Some(cluster) = cluster.filter(|cluster| cluster.hypervisor.kind == HypervisorKind::Qemu) else {
            return self.memory.clear();
        };
        if self.refused.is_some_and(|end| Instant::now() < end) {
            return;
        }
        self.memory.retain(&cluster);
        let found = needs(&picture(master, &cluster), &mut self.memory, Instant::now());
        drop(cluster);
        if found.is_empty() {
            return;
        }
        let jobs = master.view().locks();
        let free = found.into_iter().filter(|need| !need.is_busy(&jobs));
        let (syncs, settles): (Vec<Need>, Vec<Need>) = free.partition(Need::is_sync);
        // A silent node of copies must not hold up what is to be settled.
        self.act(master, &settles).await;
        self.act(master, &syncs).await;
    }

    /// Looks again at these instances, and submits what they still need.
    async fn act(&mut self, master: &Master, needs_before: &[Need]) {
        if needs_before.is_empty() {
            return;
        }
        let names: BTreeSet<NodeName> = needs_before.iter().flat_map(Need::nodes).cloned().collect();
        let names: Vec<NodeName> = names.into_iter().collect();
        let live = master.nodes().refresh_live(&names).await;
        let Some(cluster) = master.view().cluster() else { return };
        let mut picture = picture(master, &cluster);
        // Who did not answer says nothing.
        for (name, state) in live {
            match state {
                Ok(state) => drop(picture.said.insert(name, state)),
                Err(_) => drop(picture.said.remove(&name)),
            }
        }
        let same = |need: &Need| {
            let before =
                |before: &Need| before.instance == need.instance && before.is_sync() == need.is_sync();
            needs_before.iter().any(before)
        };
        let now = Instant::now();
        let found: Vec<Need> = needs(&picture, &mut self.memory, now).into_iter().filter(same).collect();
        drop(picture);
        drop(cluster);
        let jobs = master.view().locks();
        for need in found.iter().filter(|need| !need.is_busy(&jobs)) {
            if !self.submit(master, need).await {
                return;
            }
        }
    }

    /// Submits a job, and returns whether the queue took it. Once this returns, others see the job.
    async fn submit(&mut self, master: &Master, need: &Need) -> bool {
        let Some((op, reason)) = need.op() else { return true };
        let op_id = op.row().op_id;
        let request = Request { reason: reason.clone(), ..Request::new(op, "muster-masterd") };
        let (reply, answer) = oneshot::channel();
        // Nobody waits any more when this daemon ends.
        let reply = Box::new(move |result| reply.send(result).map(drop).unwrap_or_default());
        let sent = master.send(Command::Submit(Box::new(request), reply)).await;
        let submitted = match sent {
            Ok(()) => answer.await.map_err(|_| "the master is stopping".to_owned()),
            Err(status) => Err(status.message().to_owned()),
        };
        match submitted.and_then(|result| result.map_err(|refusal| refusal.to_string())) {
            Ok(job) => {
                tracing::info!(job, op_id, instance = %need.name, reason, "a mirror needs care");
                self.memory.note(need.instance, &need.verdict, need.connections, Instant::now());
                self.refused = None;
                true
            }
            Err(why) => {
                if self.refused.is_none() {
                    tracing::warn!(op_id, instance = %need.name, reason, why, "mirrors wait for care");
                }
                self.refused = Some(Instant::now() + REFUSED_PAUSE);
                false
            }
        }
    }
}

fn picture<'a>(master: &Master, cluster: &'a Cluster) -> Picture<'a> {
    let mut picture = Picture { cluster, said: BTreeMap::new(), connections: BTreeMap::new() };
    for node in cluster.nodes.values().filter(|node| !node.offline && !node.hooks_only) {
        let name = &node.name;
        let reached = master.nodes().not_reached(name).is_none();
        let state = master.nodes().state(name).filter(|(_, age)| reached && *age < FRESH);
        picture.said.extend(state.map(|(state, _)| (name.clone(), state)));
        let connections = master.nodes().connections(name);
        picture.connections.extend(connections.map(|count| (name.clone(), count)));
    }
    picture
}

#[cfg(test)]
mod tests {
    use muster_core::{model::CopyState, ops::examples};

    use super::*;

    /// `mail1` on node2 with copies on node3, and what both nodes say.
    struct World {
        cluster: Cluster,
        said: BTreeMap<NodeName, Arc<v1::NodeState>>,
        memory: Memory,
    }

    fn name(text: &str) -> NodeName {
        NodeName::parse(text).unwrap()
    }

    fn mail() -> InstanceName {
        InstanceName::parse("mail1").unwrap()
    }

    fn guest(instance: &Instance, run: v1::RunState, mirror: v1::MirrorStatus) -> v1::GuestState {
        let copies = instance.disks.iter().flat_map(|disk| &disk.mirrors);
        let mirrors = copies.map(|copy| v1::MirrorState {
            copy_uuid: copy.uuid.to_string(),
            status: mirror.into(),
            ..v1::MirrorState::default()
        });
        v1::GuestState {
            instance_uuid: instance.uuid.to_string(),
            state: run.into(),
            mirrors: mirrors.collect(),
            ..v1::GuestState::default()
        }
    }

    impl World {
        fn new(copies: CopyState, run: v1::RunState, mirror: v1::MirrorStatus) -> Self {
            let mut cluster = examples::in_sync("mail1");
            let instance = cluster.instances.get_mut(&mail()).unwrap();
            for copy in instance.disks.iter_mut().flat_map(|disk| &mut disk.mirrors) {
                copy.state = copies;
            }
            let two = v1::NodeState { guests: vec![guest(instance, run, mirror)], ..Default::default() };
            let said = [(name("node2"), two), (name("node3"), v1::NodeState::default())];
            let said = said.map(|(name, state)| (name, Arc::new(state))).into();
            World { cluster, said, memory: Memory::default() }
        }

        /// What is needed, in words.
        fn needs(&mut self) -> Vec<String> {
            let connections = BTreeMap::from([(name("node3"), 1)]);
            let picture = Picture { cluster: &self.cluster, said: self.said.clone(), connections };
            let needs = needs(&picture, &mut self.memory, Instant::now());
            let words = needs.iter().map(|need| {
                let (op, reason) = need.op().unwrap();
                format!("{}({}): {reason}", op.row().op_id, op.target())
            });
            words.collect()
        }
    }

    const SETTLE: &str = "OP_INSTANCE_MIRRORS_SETTLE(mail1): the copy of sda on node3 broke off; the copy of sdb on node3 broke off";
    const SYNC: &str = "OP_INSTANCE_MIRRORS_SYNC(mail1): the copy of sda on node3 misses writes; the copy of sdb on node3 misses writes";

    #[test]
    fn mirrors_that_broke_off_are_settled_and_then_synced() {
        let (running, broken) = (v1::RunState::Running, v1::MirrorStatus::Broken);
        assert_eq!(World::new(CopyState::Consistent, running, broken).needs(), [SETTLE]);
        assert_eq!(World::new(CopyState::Stale, running, broken).needs(), [SYNC]);
        let ready = v1::MirrorStatus::Ready;
        assert!(World::new(CopyState::Consistent, running, ready).needs().is_empty());
    }

    #[test]
    fn nothing_is_needed_where_no_guest_runs_on_its_primary() {
        use v1::{MirrorStatus::Broken, RunState};
        for state in [CopyState::Consistent, CopyState::Stale] {
            for run in [RunState::Paused, RunState::Stopped] {
                assert!(World::new(state, run, Broken).needs().is_empty(), "{run:?}");
            }
            let mut down = World::new(state, RunState::Running, Broken);
            down.cluster.instances.get_mut(&mail()).unwrap().up = false;
            assert!(down.needs().is_empty(), "its end has been asked for");
            let mut fake = World::new(state, RunState::Running, Broken);
            fake.cluster.hypervisor.kind = HypervisorKind::Fake;
            assert!(fake.needs().is_empty(), "a fake guest writes nothing");
            let mut moved = World::new(state, RunState::Running, Broken);
            moved.cluster.instances.get_mut(&mail()).unwrap().primary = name("node1");
            assert!(moved.needs().is_empty(), "it runs on the wrong node");
            let mut silent = World::new(state, RunState::Running, Broken);
            silent.said.remove(&name("node2"));
            assert!(silent.needs().is_empty(), "its primary can't be asked");
        }
    }

    #[test]
    fn copies_of_a_guest_that_ended_by_itself_are_what_their_mirrors_were() {
        use v1::MirrorStatus::{Broken, Ready, Syncing};
        for run in [v1::RunState::ShutDown, v1::RunState::Crashed] {
            assert_eq!(World::new(CopyState::Consistent, run, Broken).needs(), [SETTLE]);
            assert_eq!(World::new(CopyState::Inconsistent, run, Ready).needs().len(), 1);
            for (state, mirror) in [
                (CopyState::Consistent, Ready),
                (CopyState::Inconsistent, Syncing),
                (CopyState::Stale, Broken),
                (CopyState::Inconsistent, Broken),
            ] {
                assert!(World::new(state, run, mirror).needs().is_empty(), "{run:?} {state:?} {mirror:?}");
            }
        }
    }

    #[test]
    fn copies_on_a_node_that_is_not_there_are_settled_but_not_synced() {
        let (running, broken) = (v1::RunState::Running, v1::MirrorStatus::Broken);
        for (state, needs) in [(CopyState::Consistent, vec![SETTLE]), (CopyState::Stale, vec![])] {
            let mut world = World::new(state, running, broken);
            world.said.remove(&name("node3"));
            assert_eq!(world.needs(), needs);
        }
    }

    #[test]
    fn what_was_just_done_is_not_done_again() {
        let mut world = World::new(CopyState::Stale, v1::RunState::Running, v1::MirrorStatus::Broken);
        let instance = world.cluster.instances[&mail()].clone();
        let verdict = decide(&instance, &MirrorsSeen::new());
        // The mirrors are there and broken, which is another finding: copying waits all the same.
        world.memory.note(instance.uuid, &verdict, Some(1), Instant::now());
        assert!(world.needs().is_empty());
        world.memory.clear();
        world.memory.note(instance.uuid, &verdict, Some(0), Instant::now());
        assert_eq!(world.needs(), [SYNC], "node3 came back");
    }

    #[test]
    fn a_node_gets_a_bounded_number_of_instances_to_copy() {
        let mut world = World::new(CopyState::Stale, v1::RunState::Running, v1::MirrorStatus::Broken);
        let first = world.cluster.instances[&mail()].clone();
        let mut two = v1::NodeState::default();
        for number in 0..20_u32 {
            let mut instance = first.clone();
            instance.uuid = Uuid::from_u128(1000 + u128::from(number));
            instance.name = InstanceName::parse(&format!("mail{}", 10 + number)).unwrap();
            let syncing = number < 3;
            let copies = instance.disks.iter_mut().flat_map(|disk| &mut disk.mirrors);
            copies.for_each(|copy| {
                copy.state = if syncing { CopyState::Inconsistent } else { CopyState::Stale }
            });
            let mirror = if syncing { v1::MirrorStatus::Syncing } else { v1::MirrorStatus::Broken };
            two.guests.push(guest(&instance, v1::RunState::Running, mirror));
            world.cluster.instances.insert(instance.name.clone(), instance);
        }
        world.said.insert(name("node2"), Arc::new(two));
        assert_eq!(world.needs().len(), SYNCS_PER_NODE_MAX - 3);
    }

    #[test]
    fn an_instance_with_a_job_is_left_alone() {
        let world = World::new(CopyState::Stale, v1::RunState::Running, v1::MirrorStatus::Broken);
        let connections = BTreeMap::new();
        let picture = Picture { cluster: &world.cluster, said: world.said, connections };
        let need = needs(&picture, &mut Memory::default(), Instant::now()).remove(0);
        let locks = |name: &str| Locks::part().exclusive("instance", name);
        assert!(need.is_busy(&[locks("db1"), locks("mail1")]));
        assert!(need.is_busy(&[Locks::cluster()]));
        assert!(need.is_busy(&[Locks::part().shared("instance", "mail1")]));
        assert!(!need.is_busy(&[locks("db1"), Locks::part().exclusive("node", "node3")]));
        assert_eq!(need.nodes().map(NodeName::as_str).collect::<Vec<_>>(), ["node2", "node3"]);
    }
}
