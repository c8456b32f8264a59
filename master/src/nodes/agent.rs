//! The short calls to a node's agent: greeting, end of a job, certificates, leaving, what hooks and OS definitions there are.

use std::{future::Future, sync::Arc, time::Duration};

use muster_proto::v1;
use tokio::time::timeout;
use tonic::{Response, Status};

use super::{
    client::{NodeClient, Tries},
    limits::words,
    link::{Link, NodeInfo},
    trouble::CallError,
};

impl NodeClient {
    /// Sees to it that the node is connected, and returns what it said of itself in the connection's greeting. With
    /// `probe` a silent node costs one short limit.
    ///
    /// # Errors
    /// When it is not reached or refuses.
    pub async fn hello(&self, probe: bool) -> Result<NodeInfo, CallError> {
        let link = self.ready(&mut Tries::new(probe)).await?;
        Ok(link.info.clone())
    }

    /// Ends all that goes on for a job on the node, scripts, calls and copies; returns how many there were. Nothing of
    /// them is left then, and calls that waited were not begun; nor will those named here begin, however late they arrive. Costs at most [`Limits::end_job`](super::Limits).
    ///
    /// # Errors
    /// When the node is not reached or refuses, or says that something is left.
    pub async fn end_job(&self, job: u64, calls: &[String]) -> Result<u32, CallError> {
        let limit = self.inner.shared.limits().end_job;
        let request = v1::EndJobRequest { context: None, job_id: job, call_ids: calls.to_vec() };
        let answer = self.unary(|link, context| {
            let request = v1::EndJobRequest { context: Some(context), ..request.clone() };
            async move { link.agent().end_job(request).await }
        });
        let silent = |_| CallError::NotReached(format!("the job's runs did not end within {}", words(limit)));
        Ok(timeout(limit, answer).await.map_err(silent)??.ended)
    }

    /// Makes new keys on the node; returns the signing requests for them.
    ///
    /// # Errors
    /// When the node is not reached or refuses.
    pub async fn make_signing_request(&self) -> Result<v1::MakeSigningRequestResponse, CallError> {
        let answer = self.unary(|link, context| async move {
            let request = v1::MakeSigningRequestRequest { context: Some(context) };
            link.agent().make_signing_request(request).await
        });
        answer.await
    }

    /// Installs the certificates for the node's newest keys; returns the fingerprint that it now serves with.
    ///
    /// # Errors
    /// When the node is not reached or refuses.
    pub async fn install_certificate(
        &self,
        certificate_pem: &str,
        data_certificate_pem: Option<&str>,
        ca_pem: &str,
    ) -> Result<String, CallError> {
        let answer = self.unary(|link, context| {
            let request = v1::InstallCertificateRequest {
                context: Some(context),
                certificate_pem: certificate_pem.to_owned(),
                data_certificate_pem: data_certificate_pem.map(str::to_owned),
                ca_pem: ca_pem.to_owned(),
                node_name: self.name().as_str().to_owned(),
            };
            async move { link.agent().install_certificate(request).await }
        });
        Ok(answer.await?.fingerprint)
    }

    /// Makes the node forget the cluster.
    ///
    /// # Errors
    /// When the node is not reached or refuses.
    pub async fn leave(&self) -> Result<(), CallError> {
        let answer = self.unary(|link, context| async move {
            link.agent().leave(v1::LeaveRequest { context: Some(context) }).await
        });
        answer.await.map(|_| ())
    }

    /// What hooks would run on the node, and what is skipped and why.
    ///
    /// # Errors
    /// When the node is not reached or refuses.
    pub async fn list_hooks(&self) -> Result<v1::ListHooksResponse, CallError> {
        let answer = self.unary(|link, context| async move {
            link.hooks().list_hooks(v1::ListHooksRequest { context: Some(context) }).await
        });
        answer.await
    }

    /// The OS definitions on the node.
    ///
    /// # Errors
    /// When the node is not reached or refuses.
    pub async fn list_oses(&self) -> Result<v1::ListOsesResponse, CallError> {
        let answer = self.unary(|link, context| async move {
            link.node().list_oses(v1::ListOsesRequest { context: Some(context) }).await
        });
        answer.await
    }

    /// A call with one answer; each of them may come twice. A connection lost in the middle is made again once.
    async fn unary<T, F, R>(&self, call: F) -> Result<T, CallError>
    where
        F: Fn(Arc<Link>, v1::CallContext) -> R,
        R: Future<Output = Result<Response<T>, Status>>,
    {
        let limit: Duration = self.inner.shared.limits().unary;
        let mut tries = Tries::new(false);
        loop {
            let link = self.ready(&mut tries).await?;
            let answer = timeout(limit, call(link.clone(), self.inner.shared.context())).await;
            let silent = |_| CallError::NotReached(format!("no answer within {}", words(limit)));
            match answer.map_err(silent)?.map_err(|status| self.inner.shared.error(&status)) {
                Ok(answer) => {
                    link.answered();
                    return Ok(answer.into_inner());
                }
                Err(CallError::NotReached(reason)) => {
                    self.lost(&link, &reason);
                    tries.lost(&link, reason)?;
                }
                Err(error @ (CallError::Refused { .. } | CallError::OfficeLost(_))) => return Err(error),
            }
        }
    }
}
