//! Lists and infos: the configuration from the view, the nodes' state from the cache.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_core::{
    locks::LockMode,
    model::{Cluster, Instance, Node},
    names::{InstanceName, NodeName, nearest},
    ops::{unused_directory_nearest, used_directories},
    status::{GuestSeen, Seen, instance_status},
};
use muster_proto::{
    convert::query as convert,
    v1::{self, query_service_server::QueryService},
};
use tonic::{Request, Response, Status, Streaming};

use super::{console, oses, verify};
use crate::master::Master;

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
        let cluster = self.0.cluster()?;
        let nodes = nodes_named(&cluster, &wanted.names)?;
        if wanted.live {
            let names: Vec<NodeName> = nodes.iter().map(|node| node.name.clone()).collect();
            self.0.nodes().refresh_live(&names).await;
        }
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
        let cluster = self.0.cluster()?;
        let instances = instances_named(&cluster, &wanted.names)?;
        if wanted.live {
            let names: Vec<NodeName> = cluster.nodes.keys().cloned().collect();
            self.0.nodes().refresh_live(&names).await;
        }
        let running = RunningGuests::new(&self.0, &cluster);
        let blocked = blocked_locks(&self.0);
        let instances = instances.into_iter().map(|instance| {
            let mut info = convert::instance_info(instance);
            info.status = running.status(&cluster, instance).to_owned();
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
        let cluster = self.0.cluster()?;
        Ok(Response::new(verify::verify(&self.0, &cluster).await))
    }
}

impl Queries {
    fn node_info(&self, cluster: &Cluster, node: &Node) -> v1::NodeInfo {
        let mut info = convert::node_info(cluster, node);
        if let Some((state, age)) = self.0.nodes().state(&node.name) {
            info.state = Some(Arc::unwrap_or_clone(state));
            info.state_age_ms = Some(millis(age));
        }
        info.not_reached = if node.offline { None } else { self.0.nodes().not_reached(&node.name) };
        info
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
pub(crate) struct RunningGuests {
    guests: BTreeMap<String, Vec<(NodeName, GuestSeen)>>,
    known: BTreeSet<NodeName>,
}

impl RunningGuests {
    /// Looks at all nodes' states.
    pub(crate) fn new(master: &Master, cluster: &Cluster) -> Self {
        let mut guests = RunningGuests { guests: BTreeMap::new(), known: BTreeSet::new() };
        for node in cluster.nodes.keys() {
            let Some((state, _)) = master.nodes().state(node) else { continue };
            if master.nodes().not_reached(node).is_none() {
                guests.known.insert(node.clone());
            }
            for guest in &state.guests {
                let seen = (node.clone(), guest_seen(guest.state()));
                guests.guests.entry(guest.instance_uuid.clone()).or_default().push(seen);
            }
        }
        guests
    }

    /// The instance's status in a word.
    pub(crate) fn status(&self, cluster: &Cluster, instance: &Instance) -> &'static str {
        let offline = cluster.nodes.get(&instance.primary).is_some_and(|node| node.offline);
        let said = self.guests.get(&instance.uuid.to_string()).map_or(&[][..], Vec::as_slice);
        let on_primary = said.iter().find(|(node, _)| *node == instance.primary);
        let elsewhere = said.iter().any(|(node, seen)| {
            *node != instance.primary && matches!(seen, GuestSeen::Running | GuestSeen::Paused)
        });
        let seen = Seen {
            primary_offline: offline,
            primary_known: self.known.contains(&instance.primary),
            on_primary: on_primary.map_or(GuestSeen::Absent, |(_, seen)| *seen),
            elsewhere,
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
            let used: Vec<String> = used_directories().collect();
            let unused = list.directories.iter().filter(|d| !used.contains(&d.name));
            hooks.unused = unused
                .map(|d| v1::UnusedDirectory {
                    name: d.name.clone(),
                    nearest: unused_directory_nearest(&d.name),
                })
                .collect();
            hooks.hooks = Some(list);
        }
    }
    hooks
}

fn nodes_named<'a>(cluster: &'a Cluster, names: &[String]) -> Result<Vec<&'a Node>, Status> {
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

fn unknown(what: &str, name: &str, near: Option<&str>) -> Status {
    Status::not_found(match near {
        Some(near) => format!("there is no {what} {name}; the nearest name is {near}"),
        None => format!("there is no {what} {name}"),
    })
}
