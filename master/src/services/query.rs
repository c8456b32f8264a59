//! Lists and infos: the configuration from the view, the nodes' state from the cache.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_core::{
    hooks::HooksVersion,
    locks::LockMode,
    model::{Cluster, Instance, Node},
    names::{InstanceName, NodeName, nearest},
    ops::{UnusedDirectory, hook_directories},
    status::{GuestSeen, Seen, instance_status},
};
use muster_proto::{
    convert::{hooks::version_to_wire, host::host_facts, query as convert},
    transport::Peer,
    v1::{self, query_service_server::QueryService},
};
use tonic::{Request, Response, Status, Streaming};

use super::{console, explain, groups, oses, verify};
use crate::{
    master::Master,
    mirrors::{MirrorsSeen, degraded, mirror_of, mirrors_of},
    shell::wall_ms,
};

/// The query service.
pub struct Queries(pub Arc<Master>);

#[tonic::async_trait]
impl QueryService for Queries {
    async fn get_cluster(
        &self,
        _: Request<v1::GetClusterRequest>,
    ) -> Result<Response<v1::ClusterInfo>, Status> {
        let cluster = self.0.cluster()?;
        let mut info = convert::cluster_info(&cluster);
        self.0.fill_cluster_info(&mut info);
        Ok(Response::new(info))
    }

    async fn list_nodes(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        let wanted = request.into_inner();
        if wanted.live {
            let cluster = self.0.cluster()?;
            let nodes = nodes_named(&cluster, &wanted.names)?;
            let names: Vec<NodeName> = nodes.iter().map(|node| node.name.clone()).collect();
            self.0.nodes().refresh_live(&names).await;
        }
        // After the wait, in which jobs went on: what nodes say is never older than this.
        let cluster = self.0.cluster()?;
        let nodes = nodes_named(&cluster, &wanted.names)?;
        let blocked = blocked_locks(&self.0);
        let nodes = nodes.into_iter().map(|node| {
            let mut info = self.node_info(&cluster, node);
            info.blocked_by = blocked.get(&format!("node:{}", node.name)).copied();
            info
        });
        Ok(Response::new(v1::ListNodesResponse { nodes: nodes.collect() }))
    }

    async fn list_instances(
        &self,
        request: Request<v1::ListInstancesRequest>,
    ) -> Result<Response<v1::ListInstancesResponse>, Status> {
        let wanted = request.into_inner();
        if wanted.live {
            let cluster = self.0.cluster()?;
            instances_named(&cluster, &wanted.names)?;
            let names: Vec<NodeName> = cluster.nodes.keys().cloned().collect();
            self.0.nodes().refresh_live(&names).await;
        }
        // After the wait, in which jobs went on: what nodes say is never older than this.
        let cluster = self.0.cluster()?;
        let instances = instances_named(&cluster, &wanted.names)?;
        let running = RunningGuests::new(&self.0, &cluster);
        let blocked = blocked_locks(&self.0);
        let instances = instances.into_iter().map(|instance| {
            let mut info = convert::instance_info(&cluster, instance);
            info.status = running.status(&cluster, instance).to_owned();
            fill_mirrors(&mut info, &cluster, instance, running.mirrors(instance));
            info.state_age_ms = self.0.nodes().state(&instance.primary).map(|(_, age)| millis(age));
            info.blocked_by = blocked.get(&format!("instance:{}", instance.name)).copied();
            info
        });
        Ok(Response::new(v1::ListInstancesResponse { instances: instances.collect() }))
    }

    async fn list_exports(
        &self,
        request: Request<v1::ListExportsRequest>,
    ) -> Result<Response<v1::ListExportsResponse>, Status> {
        let cluster = self.0.cluster()?;
        let wanted = request.into_inner().nodes;
        let nodes: Vec<&NodeName> =
            nodes_named(&cluster, &wanted)?.into_iter().map(|node| &node.name).collect();
        let exports = cluster.exports.values().filter(|export| nodes.contains(&&export.node));
        let exports = exports.map(convert::export_info).collect();
        Ok(Response::new(v1::ListExportsResponse { exports }))
    }

    async fn list_groups(
        &self,
        request: Request<v1::ListGroupsRequest>,
    ) -> Result<Response<v1::ListGroupsResponse>, Status> {
        let groups = groups::groups(&*self.0.cluster()?, &request.into_inner().names)?;
        Ok(Response::new(v1::ListGroupsResponse { groups }))
    }

    async fn list_networks(
        &self,
        request: Request<v1::ListNetworksRequest>,
    ) -> Result<Response<v1::ListNetworksResponse>, Status> {
        let networks = groups::networks(&*self.0.cluster()?, &request.into_inner().names)?;
        Ok(Response::new(v1::ListNetworksResponse { networks }))
    }

    async fn list_tags(
        &self,
        request: Request<v1::ListTagsRequest>,
    ) -> Result<Response<v1::ListTagsResponse>, Status> {
        let tags = groups::tags(&*self.0.cluster()?, &request.into_inner())?;
        Ok(Response::new(v1::ListTagsResponse { tags }))
    }

    async fn list_node_hooks(
        &self,
        request: Request<v1::ListNodeHooksRequest>,
    ) -> Result<Response<v1::ListNodeHooksResponse>, Status> {
        let cluster = self.0.cluster()?;
        let nodes = nodes_named(&cluster, &request.into_inner().nodes)?;
        let asked = nodes.into_iter().map(|node| node_hooks(&self.0, node));
        let nodes = futures::future::join_all(asked).await;
        Ok(Response::new(v1::ListNodeHooksResponse { nodes }))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        Ok(Response::new(explain::explain(&self.0, &peer, request.into_inner()).await?))
    }

    async fn list_node_oses(
        &self,
        request: Request<v1::ListNodeOsesRequest>,
    ) -> Result<Response<v1::ListNodeOsesResponse>, Status> {
        let cluster = self.0.cluster()?;
        let nodes = nodes_named(&cluster, &request.into_inner().nodes)?;
        let nodes = oses::node_oses(&self.0, nodes).await;
        Ok(Response::new(v1::ListNodeOsesResponse { nodes }))
    }

    type InstanceConsoleStream = console::Output;

    async fn instance_console(
        &self,
        request: Request<Streaming<v1::InstanceConsoleInput>>,
    ) -> Result<Response<Self::InstanceConsoleStream>, Status> {
        Ok(Response::new(console::open(&self.0, request.into_inner()).await?))
    }

    async fn verify(&self, _: Request<v1::VerifyRequest>) -> Result<Response<v1::VerifyResponse>, Status> {
        Ok(Response::new(verify::verify(&self.0).await?))
    }
}

impl Queries {
    fn node_info(&self, cluster: &Cluster, node: &Node) -> v1::NodeInfo {
        let mut info = convert::node_info(cluster, node);
        if let Some((state, age)) = self.0.nodes().state(&node.name) {
            let mut state = Arc::unwrap_or_clone(state);
            // Told beside it, from the record.
            state.host = None;
            info.state = Some(state);
            info.state_age_ms = Some(millis(age));
        }
        if let Some(kept) = self.0.host_facts.get(&node.name) {
            info.host = Some(host_facts(&kept.facts, kept.collected_ms));
            info.host_age_ms = Some(wall_ms().saturating_sub(kept.at_ms));
        }
        info.not_reached = if node.offline { None } else { self.0.nodes().not_reached(&node.name) };
        info
    }
}

/// What the mirrors do, as far as anybody knows. The infos of disks and copies are in the order of the configuration.
fn fill_mirrors(
    info: &mut v1::InstanceInfo,
    cluster: &Cluster,
    instance: &Instance,
    mirrors: Option<&MirrorsSeen>,
) {
    info.degraded = degraded(cluster, instance, mirrors);
    let copies = instance.disks.iter().flat_map(|disk| &disk.mirrors);
    for (info, copy) in info.disks.iter_mut().flat_map(|disk| &mut disk.mirrors).zip(copies) {
        let Some(mirror) = mirror_of(cluster, instance, mirrors, copy) else { continue };
        info.mirror = v1::MirrorStatus::from(mirror.status).into();
        info.percent = mirror.percent;
    }
}

/// The locks that killed jobs hold alone until a node confirms the end of a call, with the job.
fn blocked_locks(master: &Master) -> BTreeMap<String, u64> {
    let mut locks = BTreeMap::new();
    for view in master.view().jobs().into_iter().filter(|view| view.job.blocked_call().is_some()) {
        let held = view.job.submission.locks();
        let alone = held.iter().filter(|(_, mode)| *mode == LockMode::Exclusive);
        locks.extend(alone.map(|(name, _)| (name.to_owned(), view.job.id())));
    }
    locks
}

/// Whole milliseconds of a duration.
pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What nodes say of each guest, from the cache.
#[derive(Default)]
pub(crate) struct RunningGuests {
    guests: BTreeMap<String, Vec<GuestSaid>>,
    known: BTreeSet<NodeName>,
}

/// What a node says of a guest.
struct GuestSaid {
    node: NodeName,
    seen: GuestSeen,
    generation: u64,
    mirrors: MirrorsSeen,
}

impl GuestSaid {
    fn is_up(&self) -> bool {
        matches!(self.seen, GuestSeen::Running | GuestSeen::Paused)
    }
}

impl RunningGuests {
    /// Looks at all nodes' states.
    pub(crate) fn new(master: &Master, cluster: &Cluster) -> Self {
        let mut guests = RunningGuests::default();
        for node in cluster.nodes.keys() {
            if let Some((state, _)) = master.nodes().state(node) {
                guests.add(node, &state, master.nodes().not_reached(node).is_none());
            }
        }
        guests
    }

    /// Takes in a node's state; it is the last known one of a node that is not reached.
    pub(super) fn add(&mut self, node: &NodeName, state: &v1::NodeState, reached: bool) {
        if reached {
            self.known.insert(node.clone());
        }
        for guest in &state.guests {
            let said = GuestSaid {
                node: node.clone(),
                seen: guest_seen(guest.state()),
                generation: guest.generation,
                mirrors: mirrors_of(guest),
            };
            self.guests.entry(guest.instance_uuid.clone()).or_default().push(said);
        }
    }

    fn said(&self, instance: &Instance) -> &[GuestSaid] {
        self.guests.get(&instance.uuid.to_string()).map_or(&[][..], Vec::as_slice)
    }

    /// The mirrors of the guest on its primary, where it is up there as far as anybody knows.
    pub(crate) fn mirrors(&self, instance: &Instance) -> Option<&MirrorsSeen> {
        let known = self.known.contains(&instance.primary);
        let up = |said: &&GuestSaid| said.node == instance.primary && said.is_up();
        self.said(instance).iter().find(up).filter(|_| known).map(|said| &said.mirrors)
    }

    /// Where else the guest is up, and of which generation it is there. One that is being received does not count: it is of a
    /// generation that is not the instance's yet, and does not run.
    pub(super) fn elsewhere(&self, instance: &Instance) -> impl Iterator<Item = (&NodeName, u64)> {
        let here = |said: &&GuestSaid| {
            let received = said.seen == GuestSeen::Paused && said.generation > instance.generation;
            said.node != instance.primary && said.is_up() && !received
        };
        self.said(instance).iter().filter(here).map(|said| (&said.node, said.generation))
    }

    /// The instance's status in a word.
    pub(crate) fn status(&self, cluster: &Cluster, instance: &Instance) -> &'static str {
        let offline = cluster.nodes.get(&instance.primary).is_some_and(|node| node.offline);
        let on_primary = self.said(instance).iter().find(|said| said.node == instance.primary);
        let seen = Seen {
            primary_offline: offline,
            primary_known: self.known.contains(&instance.primary),
            on_primary: on_primary.map_or(GuestSeen::Absent, |said| said.seen),
            elsewhere: self.elsewhere(instance).next().is_some(),
        };
        instance_status(instance.up, seen)
    }
}

fn guest_seen(state: v1::RunState) -> GuestSeen {
    match state {
        v1::RunState::Running => GuestSeen::Running,
        v1::RunState::Paused => GuestSeen::Paused,
        v1::RunState::ShutDown => GuestSeen::ShutDown,
        v1::RunState::Crashed => GuestSeen::Crashed,
        v1::RunState::Stopped | v1::RunState::Unspecified => GuestSeen::Absent,
    }
}

/// What is known of a directory that nothing uses.
fn unused_directory(version: HooksVersion, name: &str) -> v1::UnusedDirectory {
    let (nearest, hooks_version) = match UnusedDirectory::find(version, name) {
        UnusedDirectory::Nearest(nearest) => (Some(nearest), None),
        UnusedDirectory::OtherVersion(other) => (None, Some(version_to_wire(other))),
        UnusedDirectory::Unlike => (None, None),
    };
    v1::UnusedDirectory { name: name.to_owned(), nearest, hooks_version }
}

/// What a node says of its hook directories.
pub(crate) async fn node_hooks(master: &Master, node: &Node) -> v1::NodeHooks {
    let mut hooks =
        v1::NodeHooks { node: node.name.to_string(), hooks: None, not_reached: None, unused: Vec::new() };
    if node.offline {
        hooks.not_reached = Some("marked offline".to_owned());
        return hooks;
    }
    let listed = match master.nodes().node(&node.name) {
        Ok(client) => client.list_hooks().await,
        Err(error) => Err(error),
    };
    match listed {
        Err(why) => hooks.not_reached = Some(why.to_string()),
        Ok(list) => {
            let policy = master.view().cluster().map(|cluster| cluster.hooks.clone()).unwrap_or_default();
            let version = policy.version;
            let used: Vec<String> = hook_directories(version).collect();
            let unused = list.directories.iter().filter(|d| !used.contains(&d.name));
            hooks.unused = unused.map(|directory| unused_directory(version, &directory.name)).collect();
            hooks.hooks = Some(explain::with_limits(list, &policy));
        }
    }
    hooks
}

pub(super) fn nodes_named<'a>(cluster: &'a Cluster, names: &[String]) -> Result<Vec<&'a Node>, Status> {
    if names.is_empty() {
        return Ok(cluster.nodes.values().collect());
    }
    let known = || cluster.nodes.keys().map(NodeName::as_str);
    let find = |name: &String| {
        let parsed = NodeName::parse(name).map_err(|error| Status::invalid_argument(error.to_string()))?;
        cluster.nodes.get(&parsed).ok_or_else(|| unknown("node", name, nearest(name, known())))
    };
    names.iter().map(find).collect()
}

fn instances_named<'a>(cluster: &'a Cluster, names: &[String]) -> Result<Vec<&'a Instance>, Status> {
    if names.is_empty() {
        return Ok(cluster.instances.values().collect());
    }
    let known = || cluster.instances.keys().map(InstanceName::as_str);
    let find = |name: &String| {
        let parsed =
            InstanceName::parse(name).map_err(|error| Status::invalid_argument(error.to_string()))?;
        cluster.instances.get(&parsed).ok_or_else(|| unknown("instance", name, nearest(name, known())))
    };
    names.iter().map(find).collect()
}

pub(super) fn unknown(what: &str, name: &str, near: Option<&str>) -> Status {
    Status::not_found(match near {
        Some(near) => format!("there is no {what} {name}; the nearest name is {near}"),
        None => format!("there is no {what} {name}"),
    })
}

#[cfg(test)]
mod tests {
    use muster_core::ops::examples;

    use super::*;

    #[test]
    fn an_instances_copies_show_what_their_own_mirrors_do() {
        let cluster = examples::in_sync("mail1");
        let mail = cluster.instances.values().find(|instance| instance.name.as_str() == "mail1").unwrap();
        let mirror = v1::MirrorState {
            copy_uuid: mail.disks[1].mirrors[0].uuid.to_string(),
            status: v1::MirrorStatus::Syncing.into(),
            done_bytes: 30,
            total_bytes: 120,
        };
        let shown = |state: v1::RunState, reached| {
            let guest = v1::GuestState {
                instance_uuid: mail.uuid.to_string(),
                state: state.into(),
                mirrors: vec![mirror.clone()],
                ..v1::GuestState::default()
            };
            let mut guests = RunningGuests::default();
            let state = v1::NodeState { guests: vec![guest], ..v1::NodeState::default() };
            guests.add(&mail.primary, &state, reached);
            let mut info = convert::instance_info(&cluster, mail);
            fill_mirrors(&mut info, &cluster, mail, guests.mirrors(mail));
            let mirrors = info.disks.iter().flat_map(|disk| &disk.mirrors);
            (info.degraded, mirrors.map(|mirror| (mirror.mirror(), mirror.percent)).collect::<Vec<_>>())
        };
        let (syncing, broken) = (v1::MirrorStatus::Syncing, v1::MirrorStatus::Broken);
        let unknown = vec![(v1::MirrorStatus::Unspecified, None); 2];
        // One that is not there is broken.
        assert_eq!(shown(v1::RunState::Running, true), (true, vec![(broken, None), (syncing, Some(25))]));
        assert_eq!(shown(v1::RunState::Running, false), (false, unknown.clone()), "nobody knows");
        assert_eq!(shown(v1::RunState::Stopped, true), (false, unknown), "the guest is down");
    }
}
