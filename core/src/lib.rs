//! The pure part of Muster: names, the cluster model, edits, locks, the operations table, hook rules and the job engine.
//!
//! Nothing here does I/O, reads a clock, draws a random number or waits.

pub mod allowed;
pub mod calls;
pub mod edit;
pub mod engine;
pub mod explain;
pub mod facts;
pub mod groups;
pub mod history;
pub mod hooks;
pub mod hypervisor;
pub mod locks;
pub mod model;
pub mod names;
pub mod networks;
pub mod ops;
pub mod reference;
pub mod status;
pub mod summary;
pub mod tags;
