//! Has a node carry out one call of an operation; that may take hours.

use std::sync::Arc;

use muster_core::calls::{CallAnswer, NodeCall};
use muster_proto::{
    convert::WireError,
    v1::{self, execute_event::Event},
};
use tonic::Code;

use super::{
    client::{NodeClient, Tries},
    drain::read_to_end,
    link::Link,
    trouble::CallError,
};

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// In words.
    pub text: String,
    /// 0 to 100, where it can be told.
    pub percent: Option<u32>,
}

/// Told of a call's progress.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

impl NodeClient {
    /// Carries out one call. A repeat with the same id joins the running call or gets the first answer.
    pub async fn execute(
        &self,
        call_id: &str,
        job: u64,
        call: &NodeCall,
        on_progress: Option<&OnProgress>,
    ) -> CallAnswer {
        let request = v1::ExecuteRequest {
            context: None,
            call_id: call_id.to_owned(),
            job_id: job,
            call: Some(call.clone().into()),
        };
        self.execute_tries(request, on_progress).await.unwrap_or_else(CallError::into_answer)
    }

    async fn execute_tries(
        &self,
        request: v1::ExecuteRequest,
        on_progress: Option<&OnProgress>,
    ) -> Result<CallAnswer, CallError> {
        let mut tries = Tries::new(false);
        loop {
            let link = self.ready(&mut tries).await?;
            match self.execute_once(&link, request.clone(), on_progress).await {
                Err(CallError::NotReached(reason)) => {
                    self.lost(&link, &reason);
                    tries.lost(&link, reason)?;
                }
                ended => return ended,
            }
        }
    }

    async fn execute_once(
        &self,
        link: &Arc<Link>,
        mut request: v1::ExecuteRequest,
        on_progress: Option<&OnProgress>,
    ) -> Result<CallAnswer, CallError> {
        request.context = Some(self.inner.shared.context());
        let error = |status| self.inner.shared.error_after(link.idle(), &status);
        let mut events = link.node().execute(request).await.map_err(error)?.into_inner();
        loop {
            let Some(event) = events.message().await.map_err(error)? else {
                return Err(CallError::NotReached("connection lost: the answer broke off".to_owned()));
            };
            link.answered();
            match event.event {
                Some(Event::Progress(v1::Progress { text, percent })) => {
                    if let Some(on_progress) = on_progress {
                        on_progress(Progress { text, percent: percent.map(|percent| percent.min(100)) });
                    }
                }
                Some(Event::Answer(answer)) => {
                    read_to_end(events);
                    return read_answer(answer);
                }
                // An event of a newer node says at least that it is there.
                Some(Event::Going(_)) | None => {}
            }
        }
    }
}

fn read_answer(wire: v1::Answer) -> Result<CallAnswer, CallError> {
    wire.try_into().map_err(|error: WireError| {
        let message = format!("the node's answer can't be read: {error}");
        CallError::Refused { code: Code::Internal, message }
    })
}

impl CallError {
    /// The error as the answer of a call. A lost office fails the call: nothing may be built on it.
    pub(super) fn into_answer(self) -> CallAnswer {
        match self {
            CallError::NotReached(reason) => CallAnswer::NotReached(reason),
            error @ (CallError::Refused { .. } | CallError::OfficeLost(_)) => {
                CallAnswer::Failed(error.to_string())
            }
        }
    }
}
