//! `muster-devcluster`: starts, stops and breaks a cluster whose daemons are processes of this host.
//!
//! A cluster lives in one directory: everything that is needed to act on it stands there, so each run of the program reads the
//! directory, does one thing and ends. What has to last as long as the cluster (the claim on its addresses) is held by a small
//! process of its own, [`holder`].

mod address;
mod args;
mod down;
mod env_file;
mod error;
mod holder;
mod layout;
mod leftovers;
mod process;
mod start;
mod up;
mod verbs;

pub use args::main;
pub use error::DevclusterError;
pub use layout::{Daemon, Layout};
