//! One script on a node, for an admin: the same call as a directory's, with the same ways of being lost and joined again.

use std::sync::Arc;

use muster_core::hooks::ScriptResult;
use muster_proto::v1::{self, run_hooks_event::Event};
use tonic::Code;

use super::{
    client::{NodeClient, Tries},
    drain::read_to_end,
    hooks::{RunHooks, unreadable},
    link::Link,
    trouble::CallError,
};

impl NodeClient {
    /// Runs one script of a directory and waits for its end.
    ///
    /// # Errors
    /// When the node is not reached, or refuses, or could not run it.
    pub async fn run_script(&self, run: &RunHooks, script: &str) -> Result<ScriptResult, CallError> {
        let request = v1::RunScriptRequest { run: Some(run.request()), script: script.to_owned() };
        let mut tries = Tries::new(false);
        loop {
            let link = self.ready(&mut tries).await?;
            match self.run_script_once(&link, request.clone()).await {
                Err(CallError::NotReached(reason)) => {
                    self.lost(&link, &reason);
                    tries.lost(&link, reason)?;
                }
                ended => return ended,
            }
        }
    }

    async fn run_script_once(
        &self,
        link: &Arc<Link>,
        mut request: v1::RunScriptRequest,
    ) -> Result<ScriptResult, CallError> {
        self.before_hooks(link).await?;
        if let Some(run) = &mut request.run {
            run.context = Some(self.inner.shared.context());
        }
        let error = |status| self.inner.shared.error_after(link.idle(), &status);
        let mut events = link.hooks().run_script(request).await.map_err(error)?.into_inner();
        loop {
            let Some(event) = events.message().await.map_err(error)? else {
                return Err(CallError::NotReached("connection lost: the answer broke off".to_owned()));
            };
            link.answered();
            match event.event {
                Some(Event::Result(result)) => {
                    read_to_end(events);
                    return only_script(result);
                }
                Some(Event::Lost(_)) => {
                    read_to_end(events);
                    return Err(failed("the node lost track of the script".to_owned()));
                }
                // The result holds it too.
                Some(Event::Script(_) | Event::Going(_)) | None => {}
            }
        }
    }
}

fn failed(message: String) -> CallError {
    CallError::Refused { code: Code::Internal, message }
}

fn only_script(result: v1::HookResult) -> Result<ScriptResult, CallError> {
    let script = result.scripts.into_iter().next();
    match (script, result.failure) {
        (Some(script), _) => script.try_into().map_err(unreadable),
        (None, Some(failure)) => Err(failed(format!("the node could not run the script: {failure}"))),
        (None, None) => Err(failed("the node says nothing of the script".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::hooks::ScriptOutcome;

    use super::*;

    #[test]
    fn a_result_without_the_script_is_an_error() {
        let outcome = v1::ScriptOutcome::from(ScriptOutcome::Failed { code: 3 });
        let script =
            v1::ScriptResult { name: "10-a".to_owned(), outcome: Some(outcome), ..Default::default() };
        let with = v1::HookResult { scripts: vec![script], ..Default::default() };
        assert_eq!(only_script(with).unwrap().outcome, ScriptOutcome::Failed { code: 3 });
        let failure = Some("no space".to_owned());
        let why = only_script(v1::HookResult { failure, ..Default::default() }).unwrap_err().to_string();
        assert_eq!(why, "the node could not run the script: no space");
        assert!(only_script(v1::HookResult::default()).is_err());
    }
}
