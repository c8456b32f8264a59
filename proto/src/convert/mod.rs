//! Conversions between wire and core.

pub mod calls;
pub mod fields;
pub mod hooks;
pub mod job;
pub mod mirror;
pub mod operation;
pub mod query;

pub use fields::WireError;
