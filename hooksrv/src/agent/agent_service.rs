//! The gRPC service that every node daemon has for its master.

use std::sync::Arc;

use muster_core::{calls::AliveJobs, names::NodeName};
use muster_proto::{
    transport::Peer,
    v1::{self, agent_service_server::AgentService},
};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{Agent, Context, Events, Facts, Purpose, Requests, Signed, node_state};
use crate::CallId;

/// Calls that one request may withdraw: a phase of hooks is tried three times.
const END_CALLS_MAX: usize = 16;

/// Serves the agent.
pub(super) struct AgentGrpc(pub(super) Arc<Agent>);

fn node_name(text: &str) -> Result<NodeName, Status> {
    NodeName::parse(text).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// An instance and its generation.
fn present(wire: &v1::InstanceGeneration) -> Result<(Uuid, u64), Status> {
    let instance = wire.instance_uuid.parse();
    let instance = instance.map_err(|_| Status::invalid_argument("an instance's uuid is none"))?;
    Ok((instance, wire.generation))
}

#[tonic::async_trait]
impl AgentService for AgentGrpc {
    type WatchStream = Events<v1::NodeState>;

    async fn hello(&self, request: Request<v1::HelloRequest>) -> Result<Response<v1::HelloResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let request = request.into_inner();
        let context = Context::parse(request.context)?;
        let name = node_name(&request.node_name)?;
        let guests = request.guests.iter().map(present).collect::<Result<Vec<_>, _>>()?;
        let alive = AliveJobs {
            all: request.alive_jobs.into_iter().collect(),
            ending: request.ending_jobs.into_iter().collect(),
        };
        let ended = self.0.hello(&peer, context, name, alive, guests).await?;
        tracing::info!(%peer, epoch = context.epoch, version = request.version, ended, "a master has connected");
        let member = self.0.membership();
        let agent = Arc::clone(&self.0);
        let hook_set = tokio::task::spawn_blocking(move || agent.hook_set()).await;
        Ok(Response::new(v1::HelloResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now_ms: node_state::now_ms(),
            serial_seen: member.as_ref().map_or(0, |member| member.serial_seen),
            epoch_seen: member.as_ref().map_or(0, |member| member.epoch_seen),
            facts_serial: self.0.facts().serial(),
            hooks_only: self.0.backends().hooks_only(),
            hook_set: hook_set.map_err(|error| Status::internal(error.to_string()))?,
        }))
    }

    async fn end_job(
        &self,
        request: Request<v1::EndJobRequest>,
    ) -> Result<Response<v1::EndJobResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let request = request.into_inner();
        // Not held while the runs end: that takes seconds, and nothing of this job begins meanwhile.
        drop(self.0.admit(&peer, Context::parse(request.context)?, Purpose::Act).await?);
        let calls = request.call_ids.iter().map(|id| CallId::parse(id)).collect::<Result<Vec<_>, _>>();
        let calls = calls.map_err(|error| Status::invalid_argument(error.to_string()))?;
        if calls.len() > END_CALLS_MAX {
            return Err(Status::invalid_argument(format!("at most {END_CALLS_MAX} call ids are expected")));
        }
        let ended = self.0.end_job(request.job_id, &calls).await?;
        Ok(Response::new(v1::EndJobResponse { ended: u32::try_from(ended).unwrap_or(u32::MAX) }))
    }

    async fn put_facts(
        &self,
        request: Request<v1::PutFactsRequest>,
    ) -> Result<Response<v1::PutFactsResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let request = request.into_inner();
        let context = Context::parse(request.context)?;
        let facts = Facts::parse(request.facts)?;
        let _turn = self.0.admit(&peer, context, Purpose::Act).await?;
        let facts_serial = self.0.put_facts(context.epoch, facts).await?;
        Ok(Response::new(v1::PutFactsResponse { facts_serial }))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let request = request.into_inner();
        let context = Context::parse(request.context)?;
        let _turn = self.0.admit(&peer, context, Purpose::Ask).await?;
        Ok(Response::new(node_state::watch(Arc::clone(&self.0), context, request.refresh_host)))
    }

    async fn make_signing_request(
        &self,
        request: Request<v1::MakeSigningRequestRequest>,
    ) -> Result<Response<v1::MakeSigningRequestResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let context = Context::parse(request.into_inner().context)?;
        let _turn = self.0.admit(&peer, context, Purpose::Act).await?;
        let Requests { own, data } = self.0.make_signing_request().await?;
        Ok(Response::new(v1::MakeSigningRequestResponse { csr_der: own, data_csr_der: data }))
    }

    async fn install_certificate(
        &self,
        request: Request<v1::InstallCertificateRequest>,
    ) -> Result<Response<v1::InstallCertificateResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let request = request.into_inner();
        let context = Context::parse(request.context)?;
        let name = node_name(&request.node_name)?;
        let _turn = self.0.admit(&peer, context, Purpose::Act).await?;
        let signed = Signed {
            ca_pem: request.ca_pem,
            certificate_pem: request.certificate_pem,
            data_certificate_pem: request.data_certificate_pem,
        };
        let fingerprint = self.0.install_certificate(context, name, signed).await?;
        tracing::info!(fingerprint, "a certificate was installed");
        Ok(Response::new(v1::InstallCertificateResponse { fingerprint }))
    }

    async fn leave(&self, request: Request<v1::LeaveRequest>) -> Result<Response<v1::LeaveResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let context = Context::parse(request.into_inner().context)?;
        let _turn = self.0.admit(&peer, context, Purpose::Act).await?;
        // Spawned: a caller that goes away must not leave half a membership.
        let agent = Arc::clone(&self.0);
        let left = tokio::spawn(async move { agent.leave().await }).await;
        left.map_err(|error| Status::internal(error.to_string()))??;
        Ok(Response::new(v1::LeaveResponse {}))
    }
}
