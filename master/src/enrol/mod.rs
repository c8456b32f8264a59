//! How hosts become nodes: tokens, hosts that are pending, and their certificates.
//!
//! ```text
//! CreateToken -> token (once, 1 h) -Enrol-> pending (24 h) -sign_pending-> signed -commit, follow-> node
//!                                             ^                    |
//!                                             +----- withdraw -----+
//! ```
//! A host collects its certificate when it is signed, and can use it as long as it is pinned: from `sign_pending` to
//! `withdraw`, or for good when the commit has put it into the configuration.
//!
//! [`Enrolment`] holds all tokens and pending hosts in memory as their records say. Changes are made one at a time: the
//! record first, then pins and memory, then whoever waits is told.

mod collect;
mod pending;
mod services;
mod state;
mod token;
mod told;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire_tests;

pub use self::{
    pending::{FACTS_MAX, PENDING_LIFETIME, PENDING_MAX, PendingHost, SignedHost},
    services::{ENROL_BYTES_MAX, token_server},
    state::{ClusterFacts, EnrolError, Enrolment, Office, Wall},
    token::{TOKEN_LIFETIME, TOKEN_LIFETIME_MAX, TOKENS_MAX, Token},
};
pub(crate) use services::enrolment_server;
