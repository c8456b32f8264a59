//! The 14 operations of interface version 1, each run by `gnt` against real daemons.
//!
//! For every operation: a script on each kind of node of the pre set denies, and nothing has changed; then it is allowed, and
//! what the scripts of all nodes were given is compared, whole, with the tables in these files. The tables are typed from the
//! hook rules (HOOKS.md), not taken from the product.

mod case;
mod cluster_ops;
mod instance_add;
mod instance_ops;
mod mirror_ops;
mod node_ops;
