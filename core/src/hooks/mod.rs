//! The hook rules as pure functions: what a result means, who is asked, with which environment.
//!
//! The numbers (`R1`, `E4`, ...) are those of HOOKS.md.

mod bound;
mod env;
pub mod lint;
mod moment;
mod policy;
mod report;
mod script_name;
mod set;
mod timeouts;
mod verdict;
mod version;

pub use bound::{PHASE_OUTPUT_BYTES_MAX, bound_output};
pub use env::{Env, EnvError, PHASE_FAILED, PHASE_POST, PHASE_PRE, Phase, SCRIPT_PATH, VARIABLE_PREFIX};
pub use moment::moment_text;
pub use policy::{
    BUDGET_MS_MIN, Class, DirectoryPolicy, ExitCodes, HookPolicy, OnError, OnTimeout, OnUnreachable,
};
pub use report::{
    Captured, HookResult, NodeAnswer, NodeReport, NotReached, ScriptOutcome, ScriptResult, SkipReason,
    Skipped,
};
pub use script_name::{is_good_byte, skipped_by_name};
pub use set::{
    Digest, DigestError, HookSet, SET_BYTES_MAX, SET_ENTRIES_MAX, SET_MODE_MASK, SET_PATH_BYTES_MAX,
    SetEntry, SetError, SetTarget, check_set_path,
};
pub use timeouts::{
    KILL_DEFAULT_MS, LimitBounds, OwnLimits, ScriptLimits, TIMEOUT_MAX_DEFAULT_MS, WARN_DEFAULT_MS,
    script_limits,
};
pub use verdict::{Objection, Rules, Verdict, fold_post, fold_pre};
pub use version::{HOOKS_VERSION_FILE, HooksVersion};
