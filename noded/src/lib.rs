//! The node daemon's own part: backends for hypervisor and storage behind small traits, and the service that calls them.
//!
//! Everything else that a node daemon does is the shell's, [`muster_hooksrv::agent`].

mod calls;
mod cancel;
mod console;
mod copies;
mod faults;
pub mod hypervisor;
mod image;
mod node;
mod os;
mod process;
mod progress;
pub mod qmp;
mod service;
mod serving;
pub mod storage;
mod tail;
mod turns;

pub use cancel::{Cancel, Cancelled};
pub use node::{Node, NodeError};
pub use progress::{Progress, Tell};
pub use serving::ServingError;
