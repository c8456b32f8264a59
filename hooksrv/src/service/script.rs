//! `RunScript`: one script of a directory as a call of its own, with the same runner, limits and journal as a directory.

use std::sync::Arc;

use muster_proto::{transport::Peer, v1};
use prost::Message;
use tonic::{Request, Response, Status};

use super::{HookParts, Parsed, going, invalid, run_event};
use crate::{
    CallStream, RequestDigest,
    agent::{Events, Purpose, call_status, forward},
    hook_call::run_script,
    run::NotThere,
};

/// Serves the method.
pub(super) async fn serve(
    parts: &HookParts,
    request: Request<v1::RunScriptRequest>,
) -> Result<Response<Events<v1::RunHooksEvent>>, Status> {
    let peer = Peer::of(&request)?.clone();
    let v1::RunScriptRequest { run, script } = request.into_inner();
    let run = run.ok_or_else(|| invalid("run is missing"))?;
    if run.global.is_some() {
        return Err(invalid("one script is of one directory: no global directory is expected"));
    }
    let Parsed { context, id, digest: _, job, mut request } = Parsed::new(run.clone())?;
    // Without the context, as for a directory.
    let run = v1::RunHooksRequest { context: None, ..run };
    let digest =
        RequestDigest::of(&v1::RunScriptRequest { run: Some(run), script: script.clone() }.encode_to_vec());
    let _turn = parts.agent.admit(&peer, context, Purpose::Act).await?;
    request.env = parts.complete(request.env);
    let keepers = Arc::clone(&parts.keepers);
    let stream = run_script(&keepers, &parts.calls, id, digest, job, request, &script).await;
    let stream: CallStream<_, _> = match stream {
        Ok(stream) => stream.map_err(|error| call_status(&error))?,
        Err(why @ NotThere::Unknown { .. }) => return Err(Status::not_found(why.to_string())),
        Err(why @ (NotThere::Skipped { .. } | NotThere::Unreadable(_))) => {
            return Err(Status::failed_precondition(why.to_string()));
        }
    };
    Ok(Response::new(forward(stream, parts.agent.stopping().clone(), going, run_event)))
}
