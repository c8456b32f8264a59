//! Runs hook directories on a node: scanning, running, output, and the journal of calls (HOOKS.md D1 to D7, X1 to X9).
//!
//! A daemon calls [`prepare_process`] and [`keeper_main`] when it starts, makes one [`HookRunner`], its [`HookKeepers`] and
//! by them one [`CallRegistry`], and serves [`run_hooks`] and [`HookRunner::list`]. Each run is a process of its own, a
//! keeper, which goes on when the daemon is restarted. The registry and its journal serve other calls to a node as well.

pub mod agent;
mod call_id;
mod call_store;
mod call_stream;
mod calls;
mod detached;
mod extras;
mod hook_call;
mod hookset;
mod journal;
mod keeper;
mod output;
mod processes;
mod run;
mod scan;
mod script;
mod service;
mod spawn;
mod unexecutable;

pub use call_id::{CallId, CallIdError, RequestDigest};
pub use call_store::{CallStore, FileStore, Part, StoreError};
pub use call_stream::{CallItem, CallStream};
pub use calls::{CallContext, CallError, CallRegistry};
pub use detached::{Detached, Tool, end_writers, spawn_detached};
pub use extras::{Extras, GlobalRequest};
pub use hook_call::run_hooks;
pub use journal::{Begin, Call, Journal, JournalError, Known, LostCall, OnLost};
pub use keeper::{HookKeepers, KeeperError, KeeperProgram, KeepersConfig, keeper_main};
pub use output::{OutputError, Retention};
pub use processes::{ProcessId, StillThere};
pub use run::{
    DirectoryName, HookRequest, HookRunner, OUTPUT_BYTES_MAX_DEFAULT, Plan, PlanError, PrefixError, RunWatch,
    RunnerConfig, RunnerError,
};
pub use scan::{Decision, Entry, EntryKind, ListedDirectory, ListedScript, ScanError, Script, decide};
pub use service::HookGrpc;
pub use spawn::{Exit, PreparedProcess, prepare_process};

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
