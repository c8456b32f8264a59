//! Named places at which the daemon kills itself, to show what a crash there leaves behind.
//!
//! `muster-masterd --failpoints` lists them; `MUSTER_FAILPOINT=NAME[:N]` arms one for its N-th pass.

use std::sync::atomic::{AtomicU32, Ordering};

use muster_core::engine::Phase;

/// Every place: before a record is durable, and after it is but before its effects.
pub const NAMES: &[&str] = &[
    "submit.before",
    "submit.after",
    "pre-hooks.before",
    "pre-hooks.after",
    "step.before",
    "step.after",
    "step.answered",
    "commit.before",
    "commit.after",
    "cleanup.before",
    "cleanup.after",
    "post-hooks.before",
    "post-hooks.after",
    "undo.before",
    "undo.after",
    "end-hooks.before",
    "end-hooks.after",
    "done.before",
    "done.after",
];

/// What the environment says does not name a failpoint.
#[derive(Debug, thiserror::Error)]
#[error("MUSTER_FAILPOINT={0:?} is none of: {names}", names = NAMES.join(", "))]
pub struct UnknownFailpoint(String);

/// The armed failpoint, if any.
#[derive(Debug, Default)]
pub struct Failpoints {
    armed: Option<(&'static str, AtomicU32)>,
}

impl Failpoints {
    /// Reads `MUSTER_FAILPOINT`.
    ///
    /// # Errors
    /// When the variable names no failpoint or no count.
    pub fn from_env() -> Result<Self, UnknownFailpoint> {
        let Ok(text) = std::env::var("MUSTER_FAILPOINT") else { return Ok(Failpoints::default()) };
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        let name = NAMES.iter().find(|known| **known == name);
        let (Some(name), Ok(count @ 1..)) = (name, count.parse::<u32>()) else {
            return Err(UnknownFailpoint(text));
        };
        Ok(Failpoints { armed: Some((name, AtomicU32::new(count))) })
    }

    /// Passes a place; the process ends here when it is the armed one and its turn has come.
    pub fn pass(&self, name: &str) {
        debug_assert!(NAMES.contains(&name), "failpoint {name} is not listed");
        if let Some((armed, left)) = &self.armed
            && *armed == name
            && left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            tracing::error!(failpoint = name, "killing this process");
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
            std::process::abort();
        }
    }
}

/// The place at which a job in this phase is recorded; `moment` is `before` or `after`. A job that waits was submitted,
/// which is a place of its own.
pub fn place(phase: &Phase, moment: &str) -> Option<String> {
    let name = match phase {
        // Nothing happens when a job becomes blocked: its next answer is a place again.
        Phase::Waiting | Phase::Blocked { .. } => return None,
        Phase::PreHooks { .. } => "pre-hooks",
        Phase::Running { .. } => "step",
        Phase::Cleaning { .. } => "cleanup",
        Phase::PostHooks { .. } => "post-hooks",
        Phase::Undoing { .. } => "undo",
        Phase::Ending { .. } => "end-hooks",
        Phase::Done { .. } => "done",
    };
    Some(format!("{name}.{moment}"))
}
