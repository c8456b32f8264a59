//! Conversions between wire and core.

pub mod calls;
pub mod fields;
pub mod group;
mod hook_policy;
pub mod hook_runs;
pub mod hooks;
pub mod hookset;
pub mod host;
pub mod job;
pub mod mirror;
pub mod operation;
pub mod query;

pub use fields::WireError;
