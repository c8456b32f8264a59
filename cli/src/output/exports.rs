//! Exports in listings.

use muster_proto::v1::ExportInfo;

use super::fields::{Field, Value, field};

/// The fields of `gnt-backup list` without `-o`.
pub(crate) const DEFAULT: &[&str] = &["node", "export", "size", "ctime"];

/// All fields of an export.
pub(crate) const FIELDS: &[Field<ExportInfo>] = &[
    field("node", "Node", |export: &ExportInfo| Value::text(&export.node)),
    field("export", "Export", |export: &ExportInfo| Value::text(&export.instance)),
    field("size", "Size", |export: &ExportInfo| Value::Size(export.size_mib)),
    field("ctime", "CTime", |export: &ExportInfo| Value::Time(export.created_ms)),
    field("shutdown", "Shutdown", |export: &ExportInfo| Value::Bool(export.did_shutdown)),
    field("path", "Path", |export: &ExportInfo| Value::text(&export.path)),
    field("uuid", "UUID", |export: &ExportInfo| Value::text(&export.uuid)),
];
