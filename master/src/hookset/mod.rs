//! The cluster's own hook set: read from `hooks_source` when it is asked for, kept, and brought to the nodes.
//!
//! ```text
//! hooks_source --read, checked--> master/hooks (HookStore) --> this host's node: may refuse it for all
//!                                                          --> record `hook_set` (durable: the cluster's set from now on)
//!                                                          --> all other nodes, side by side
//! ```
//!
//! What is edited in `hooks_source` is of no effect before the next sync. A node that has another set than it should is
//! brought the recorded one when it is connected to, before hooks run on it, and every half an hour.
//!
//! The record travels with the office; the files do not. A new master takes them from its own host's node, which has
//! them as any node does; where that one is behind, `gnt-cluster verify` says so until the next sync.

mod diff;
mod follow;
mod keeper;
mod source;
mod sync;
mod watch;

pub(crate) use diff::{Compared, compare, diff};
pub(crate) use follow::{before_hooks, keep};
pub(crate) use keeper::HookSetKeeper;
pub(crate) use sync::{SyncFailure, Wish, sync};
pub(crate) use watch::{Changes, keep_on_change};
