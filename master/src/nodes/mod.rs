//! The master's side of node traffic: one kept connection a node, and every call that goes over it.
//!
//! - [`NodeRegistry`]: the nodes of the committed configuration, by name. Clones share everything.
//! - [`NodeClient`]: one node. It holds at most one connection ([`link`]); each new one starts with a greeting.
//! - [`hooks`], [`execute`], [`copy`], [`console`], [`agent`]: the calls. [`watch`], [`facts`]: what goes on in the background.
//!
//! A call whose connection is lost reconnects once and asks again by its call id: the node joins it to the run, or
//! repeats the first answer. Only then does the node count as not reached. Nodes share nothing but read-only settings,
//! so that a slow one delays no other.

mod agent;
mod client;
mod command;
mod console;
mod copy;
mod drain;
mod execute;
mod facts;
mod hooks;
mod hookset;
mod limits;
mod link;
mod registry;
mod script;
mod shared;
mod trouble;
mod watch;

#[cfg(test)]
mod tests;

pub use self::{
    client::NodeClient,
    command::SentFile,
    execute::{OnProgress, Progress},
    facts::facts_of,
    hooks::{OnScript, RunHooks},
    hookset::{BeforeHooks, Brought, SetAsk, SetAttempt, SetOffer, UsedSet},
    limits::Limits,
    link::NodeInfo,
    registry::NodeRegistry,
    shared::{Alive, Guests, HostTold, Office, OfficeLost, Settings},
    trouble::CallError,
};
