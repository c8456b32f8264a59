//! Generated from the protocol files.
#![expect(missing_docs, reason = "generated; the meaning stands in the .proto files")]
#![expect(clippy::all, clippy::as_conversions, clippy::too_many_lines, reason = "generated")]
#![expect(clippy::allow_attributes, clippy::allow_attributes_without_reason, reason = "generated")]

tonic::include_proto!("muster.v1");
