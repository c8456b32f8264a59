//! The shell of every node daemon, whatever it runs: identity, membership, facts, the services that a master calls, and
//! the program's forms (`run`, `join`, `leave`).
//!
//! ```text
//!              MakeSigningRequest, InstallCertificate (the local master, at cluster init)
//!            +-----------------------------------------------------------+
//!            |                                                           v
//! Unenrolled --join--> Pending --Collect: issued--> Enrolled (TCP open; certificate renewed by the same two calls)
//!     ^                  | gone                        | Leave
//!     +------------------+-----------------------------+
//! ```
//!
//! The unix socket is served in every state. What a state consists of is on disk: `enrolment.json` while pending,
//! `node.json` while enrolled ([`Memberships`]); the daemon may die between any two steps.

mod admission;
mod agent_service;
mod backends;
mod command_service;
mod config;
mod credentials;
mod data_certificate;
mod enrolment;
mod facts;
mod files;
mod forward;
mod freeze;
mod host;
mod host_qemu;
mod host_read;
mod host_watch;
mod join;
mod logging;
mod membership;
mod node;
mod node_command;
mod node_state;
mod program;
mod put_file;
mod serve;
mod token;

#[cfg(test)]
mod tests;

use freeze::FreezeWatch;

pub use backends::{Backends, Ended, HooksOnly, Runs};
pub use config::{CONFIG_FILE_DEFAULT, Config, ConfigError, PORT_DEFAULT};
pub use credentials::{Checked, CredentialError, Credentials, Holder, Keys, Requests, Signed};
pub use enrolment::{Enrolment, EnrolmentError};
pub use facts::{FactStore, Facts, FactsError};
pub use files::words;
pub use forward::{Events, GOING_INTERVAL, call_status, forward};
pub use host_qemu::kvm_is_usable;
pub use join::{JoinError, LeaveError, join, leave};
pub use logging::{LogError, LogFormat, begin_log};
pub use membership::{
    AdmitError, Context, Membership, MembershipError, Memberships, Purpose, Refusal, check,
};
pub use node::{Agent, AgentError, NodeLock};
pub use program::{main, open};
pub use serve::{ServeError, serve};
pub use token::{Token, TokenError};
