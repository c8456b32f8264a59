//! Submission: parsed, checked for the caller's role, made durable, and only then answered.

use std::sync::Arc;

use muster_core::ops::{Op, PendingNode};
use muster_proto::{
    convert::{self, operation::Submit},
    transport::Peer,
    v1::{self, operation_service_server::OperationService},
};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::caller;
use crate::{
    driver::{self, SubmitRefusal},
    host_facts::facts_for,
    master::{Master, Standing},
    takeover,
};

/// The operation service.
pub struct Operations(pub Arc<Master>);

#[tonic::async_trait]
impl OperationService for Operations {
    async fn submit(
        &self,
        request: Request<v1::SubmitRequest>,
    ) -> Result<Response<v1::SubmitResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let master = &self.0;
        let submit = convert::operation::submit(request.into_inner(), &master.config.name)?;
        caller::check(&peer, submit.op.submitter(), submit.op.row().op_id)?;
        let takes_over = matches!(submit.op, Op::MasterFailover(_)) && master.standing() == Standing::Standby;
        let job_id = if takes_over {
            let request_id = submit.request_id.clone();
            takeover::take_over(master, &request_id, hand_to_driver(master.clone(), peer, submit)).await?
        } else {
            takeover::check_not_beginning(master)?;
            hand_to_driver(master.clone(), peer, submit).await?
        };
        Ok(Response::new(v1::SubmitResponse { job_id }))
    }
}

/// The number of the job, which is durable.
async fn hand_to_driver(master: Arc<Master>, peer: Peer, submit: Submit) -> Result<u64, Status> {
    let op = submit.op;
    let request = driver::Request {
        pending: pending(&master, &op),
        node_facts: facts_for(&master, &op),
        new_cluster: master.new_cluster(&op)?,
        op,
        user: caller::user(&peer, |uuid| master.client_name(uuid)),
        reason: submit.reason,
        dry_run: submit.dry_run,
        request_id: submit.request_id,
        depends: submit.depends,
        priority: submit.priority,
        parent: submit.parent,
        will_wait: submit.will_wait,
    };
    let (reply, answer) = oneshot::channel();
    let reply = Box::new(move |result| drop(reply.send(result)));
    master.send(driver::Command::Submit(Box::new(request), reply)).await?;
    let result = answer.await.map_err(|_| Status::unavailable("the master is stopping"))?;
    result.map_err(|why| refused(&why))
}

fn refused(why: &SubmitRefusal) -> Status {
    let text = why.to_string();
    match why {
        SubmitRefusal::Full(_) => Status::resource_exhausted(text),
        SubmitRefusal::UnknownJob(_) => Status::not_found(text),
        SubmitRefusal::Drained | SubmitRefusal::Ended { .. } | SubmitRefusal::Cycle(_) => {
            Status::failed_precondition(text)
        }
        SubmitRefusal::Store(_) => Status::data_loss(text),
    }
}

fn pending(master: &Master, op: &Op) -> Option<PendingNode> {
    let Op::NodeAdd(add) = op else { return None };
    master.pending_node(&add.name)
}
