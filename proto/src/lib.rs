//! The wire: gRPC services and messages, generated code, conversions to and from `core`, and the transport below them.
//!
//! Wire types are parsed here, once; nothing behind this crate sees them unparsed.

pub mod convert;
pub mod hookset;
pub mod transport;
pub mod v1;

/// The compiled descriptors of all services, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/muster.bin"));
