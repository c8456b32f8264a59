//! Mirrors of running guests as the master sees them, and the keeper that repairs them.
//!
//! The primary's node mirrors; the configuration says which copies may be relied on. Where the two differ, a small job brings
//! them together: OP_INSTANCE_MIRRORS_SETTLE says in the configuration what the mirrors do, OP_INSTANCE_MIRRORS_SYNC copies
//! anew what misses writes.
//!
//! - [`seen`]: what nodes say of mirrors. [`decide`]: what an instance needs, a pure function of that and the configuration.
//! - [`memory`]: what was tried, and when it may be tried again. [`keeper`]: the loop.

mod decide;
mod keeper;
mod memory;
mod seen;

pub(crate) use self::{
    keeper::keep,
    seen::{MirrorSeen, MirrorsSeen, degraded, mirror_of, mirrors_of},
};
