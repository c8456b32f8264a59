//! What hook scripts did, on its way to clients; and which of it is asked for.

use muster_core::{
    history::{HistoryFilter, HookRun, PatternError, ScriptPattern},
    hooks::Class,
};

use super::fields::{self, WireError};
use crate::v1;

impl From<HookRun> for v1::HookRun {
    fn from(run: HookRun) -> Self {
        v1::HookRun {
            job_id: run.job,
            time_ms: run.time_ms,
            op_id: run.op_id.to_owned(),
            target: run.target,
            phase: v1::HookPhase::from(run.phase).into(),
            node: run.node.to_string(),
            directory: run.directory,
            script: run.script,
            outcome: run.outcome.as_str().to_owned(),
            detail: run.detail,
            duration_ms: run.duration_ms,
        }
    }
}

impl From<Class> for v1::ScriptClass {
    fn from(class: Class) -> Self {
        match class {
            Class::Success => v1::ScriptClass::Success,
            Class::Warning => v1::ScriptClass::Warning,
            Class::Error => v1::ScriptClass::Error,
        }
    }
}

/// Why a filter can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The node's name.
    #[error(transparent)]
    Node(#[from] WireError),
    /// The pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// Reads which rows are asked for.
///
/// # Errors
/// When a name or a pattern is none.
pub fn history_filter(request: &v1::ListHookRunsRequest) -> Result<HistoryFilter, FilterError> {
    let node = request.node.as_ref().map(|name| fields::node("node", name)).transpose()?;
    let script = request.script.as_deref().map(ScriptPattern::parse).transpose()?;
    Ok(HistoryFilter { node, script, failed: request.failed, since_ms: request.since_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_what_was_asked_for() {
        let request = v1::ListHookRunsRequest {
            node: Some("node1".to_owned()),
            script: Some("10-*".to_owned()),
            failed: true,
            since_ms: Some(7),
            limit: 3,
        };
        let filter = history_filter(&request).unwrap();
        assert_eq!(
            (filter.node.as_ref().unwrap().as_str(), filter.failed, filter.since_ms),
            ("node1", true, Some(7))
        );
        assert!(filter.script.unwrap().takes("node-add-pre.d", "10-check"));
        let node = v1::ListHookRunsRequest { node: Some("Node 1".to_owned()), ..Default::default() };
        assert!(history_filter(&node).unwrap_err().to_string().contains("node"));
        let script = v1::ListHookRunsRequest { script: Some(String::new()), ..Default::default() };
        assert!(history_filter(&script).unwrap_err().to_string().contains("pattern"));
    }
}
