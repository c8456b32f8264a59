//! The cluster's own hook set on a node: kept, put together, checked, and used from one moment on.
//!
//! ```text
//! node/hooks/files, lists    contents and lists (HookStore)
//! node/hooks/sets/NAME       a set, put together; NAME is its digest, with a number behind it when it was made again
//! node/hooks/current         a link to the set that runs use, replaced by one rename
//! node/hooks/previous        a link to the one before
//! ```
//!
//! A run looks once where `current` leads, and holds a shared lock on that directory for as long as it goes on, its
//! keeper too. A set that neither link leads to is removed when nobody holds it.

mod check;
mod session;
mod sets;
mod turn;

pub(crate) use session::{SetSessions, check_set, open_session};
pub(crate) use sets::{HookSets, SetInUse};
pub(crate) use turn::prune_at_start;
