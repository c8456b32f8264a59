//! The two gRPC services of enrolment: for new hosts, which have no certificate, and for admins.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::Stream;
use muster_core::names::NodeName;
use muster_proto::{
    transport::Peer,
    v1::{
        CollectEvent, CollectRequest, CreateTokenRequest, CreateTokenResponse, EnrolRequest, EnrolResponse,
        ListPendingRequest, ListPendingResponse,
        enrolment_service_server::{EnrolmentService, EnrolmentServiceServer},
        token_service_server::{TokenService, TokenServiceServer},
    },
};
use tonic::{Request, Response, Status};

use super::{
    collect::collect,
    pending::PendingHost,
    state::{EnrolError, Enrolment},
    token::TOKEN_LIFETIME,
    told,
};
use crate::events::Events;

/// The longest request of a host without a certificate: signing request and facts, with room.
pub const ENROL_BYTES_MAX: usize = 64 * 1024;

struct Services(Arc<Enrolment>);

struct HostServices {
    enrolment: Arc<Enrolment>,
    events: Arc<Events>,
}

/// The service for new hosts.
pub(crate) fn enrolment_server(
    enrolment: &Arc<Enrolment>,
    events: &Arc<Events>,
) -> EnrolmentServiceServer<impl EnrolmentService + use<>> {
    let services = HostServices { enrolment: enrolment.clone(), events: events.clone() };
    EnrolmentServiceServer::new(services).max_decoding_message_size(ENROL_BYTES_MAX)
}

/// The service for admins.
pub fn token_server(enrolment: &Arc<Enrolment>) -> TokenServiceServer<impl TokenService + use<>> {
    TokenServiceServer::new(Services(enrolment.clone()))
}

#[tonic::async_trait]
impl EnrolmentService for HostServices {
    async fn enrol(&self, request: Request<EnrolRequest>) -> Result<Response<EnrolResponse>, Status> {
        let source = Peer::of(&request)?.address();
        let source =
            source.ok_or_else(|| Status::failed_precondition("a host joins over the network only"))?;
        let request = request.into_inner();
        let said = told::said(&request);
        let enrolled = self.enrolment.enrol(request, source.ip()).await;
        let (host, cluster) = enrolled.map_err(|error| {
            tracing::warn!(%source, %error, "a host was not enrolled");
            let status = status(&error);
            self.events.push(told::failed(said, source.ip(), status.message()));
            status
        })?;
        self.events.push(told::pending(&host));
        Ok(Response::new(EnrolResponse {
            enrolment_uuid: host.enrolment.to_string(),
            cluster_uuid: cluster.uuid.to_string(),
            cluster_name: cluster.name.to_string(),
        }))
    }

    type CollectStream = Pin<Box<dyn Stream<Item = Result<CollectEvent, Status>> + Send>>;

    async fn collect(
        &self,
        request: Request<CollectRequest>,
    ) -> Result<Response<Self::CollectStream>, Status> {
        let uuid = request.into_inner().enrolment_uuid.parse();
        let uuid = uuid.map_err(|_| Status::invalid_argument("enrolment_uuid is no uuid"))?;
        Ok(Response::new(Box::pin(collect(&self.enrolment, uuid)?)))
    }
}

#[tonic::async_trait]
impl TokenService for Services {
    async fn create_token(
        &self,
        request: Request<CreateTokenRequest>,
    ) -> Result<Response<CreateTokenResponse>, Status> {
        let CreateTokenRequest { node_name, lifetime_s } = request.into_inner();
        let node = node_name.as_deref().map(NodeName::parse).transpose();
        let node = node.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let lifetime = lifetime_s.map_or(TOKEN_LIFETIME, |seconds| Duration::from_secs(u64::from(seconds)));
        let created = self.0.create_token(node, lifetime).await;
        let (token, expires_ms) = created.map_err(|error| status(&error))?;
        Ok(Response::new(CreateTokenResponse { token, expires_ms }))
    }

    async fn list_pending(
        &self,
        _: Request<ListPendingRequest>,
    ) -> Result<Response<ListPendingResponse>, Status> {
        self.0.office()?;
        let nodes = self.0.list().iter().map(PendingHost::listed).collect();
        Ok(Response::new(ListPendingResponse { nodes }))
    }
}

fn status(error: &EnrolError) -> Status {
    let text = muster_proto::transport::describe(error);
    match error {
        EnrolError::Request(_) => Status::invalid_argument(text),
        EnrolError::Token | EnrolError::TokenOfOther(_) => Status::permission_denied(text),
        EnrolError::BeingAdded(_) => Status::failed_precondition(text),
        EnrolError::TooManyHosts | EnrolError::TooManyTokens => Status::resource_exhausted(text),
        EnrolError::NotPending(_) => Status::not_found(text),
        EnrolError::Random(_) | EnrolError::Ca(_) => Status::internal(text),
        EnrolError::Write(_) | EnrolError::Stopping => Status::unavailable(text),
        EnrolError::Office(status) => status.clone(),
    }
}
