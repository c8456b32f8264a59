//! A hook run as a call: scanned once, journaled if anything runs, its results told script by script (HOOKS.md R3).

use std::sync::Arc;

use muster_core::hooks::{HookResult, ScriptResult};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call_id::{CallId, RequestDigest};
use crate::call_stream::CallStream;
use crate::calls::{CallError, CallRegistry};
use crate::journal::{Call, OnLost};
use crate::keeper::HookKeepers;
use crate::run::{HookRequest, NotThere};

/// Runs a directory under a call id, or joins that run, or gives its first answer. Where no script would run the
/// answer is given without a trace in the journal and without a keeper.
///
/// # Errors
/// As [`CallRegistry::start_or_join`].
pub async fn run_hooks<E, A>(
    keepers: &Arc<HookKeepers>,
    calls: &CallRegistry<E, A>,
    id: CallId,
    digest: RequestDigest,
    job: u64,
    request: HookRequest,
) -> Result<CallStream<E, A>, CallError>
where
    E: From<ScriptResult> + Clone + Send + Sync + 'static,
    A: From<HookResult> + Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let output_dir = Some(keepers.runner().output_dir(&id));
    let call = Call { id, digest, job, output_dir, on_lost: OnLost::Tell };
    if let Some(stream) = calls.join(&call).await? {
        return Ok(stream);
    }
    match keepers.runner().plan(&request).await.result_or_scripts() {
        Ok(result) => Ok(CallStream::answered(result.into())),
        Err(plan) => calls.start_or_join_work(call, keepers.work(plan, request)).await,
    }
}

/// Runs one script of a directory, in the same manner.
///
/// # Errors
/// The outer one when the script would not be run, the inner one as for a directory.
pub(crate) async fn run_script<E, A>(
    keepers: &Arc<HookKeepers>,
    calls: &CallRegistry<E, A>,
    id: CallId,
    digest: RequestDigest,
    job: u64,
    request: HookRequest,
    script: &str,
) -> Result<Result<CallStream<E, A>, CallError>, NotThere>
where
    E: From<ScriptResult> + Clone + Send + Sync + 'static,
    A: From<HookResult> + Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let output_dir = Some(keepers.runner().output_dir(&id));
    let call = Call { id, digest, job, output_dir, on_lost: OnLost::Tell };
    match calls.join(&call).await {
        Ok(None) => {}
        Ok(Some(stream)) => return Ok(Ok(stream)),
        Err(error) => return Ok(Err(error)),
    }
    let plan = keepers.runner().plan(&request).await.only(request.directory.as_str(), script)?;
    Ok(calls.start_or_join_work(call, keepers.work(plan, request)).await)
}
