//! The hook rules as pure functions: what a result means, who is asked, with which environment.
//!
//! The numbers (`R1`, `E4`, ...) are those of HOOKS.md.

mod bound;
mod env;
pub mod lint;
mod policy;
mod report;
mod script_name;
mod timeouts;
mod verdict;

pub use bound::{PHASE_OUTPUT_BYTES_MAX, bound_output};
pub use env::{Env, EnvError, PHASE_POST, PHASE_PRE, Phase, SCRIPT_PATH, VARIABLE_PREFIX};
pub use policy::{Class, ExitCodes, HookPolicy, OnError, OnTimeout, OnUnreachable};
pub use report::{
    Captured, HookResult, NodeAnswer, NodeReport, NotReached, ScriptOutcome, ScriptResult, SkipReason,
    Skipped,
};
pub use script_name::{is_good_byte, skipped_by_name};
pub use timeouts::{KILL_DEFAULT_MS, ScriptLimits, TIMEOUT_MAX_DEFAULT_MS, WARN_DEFAULT_MS, script_limits};
pub use verdict::{Objection, Verdict, fold_post, fold_pre};
