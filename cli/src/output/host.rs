//! What hosts are, as values of fields: unknown where a node has not told, absent where its host does not tell.

use muster_proto::v1::HostFacts;
use serde_json::json;

use super::{fields::Value, text::size};

/// One of the texts.
pub(crate) fn text(host: Option<&HostFacts>, which: fn(&HostFacts) -> &String) -> Value {
    host.map_or(Value::Unknown, |host| Value::text(which(host)))
}

/// One of the lists.
pub(crate) fn list(host: Option<&HostFacts>, which: fn(&HostFacts) -> &Vec<String>) -> Value {
    host.map_or(Value::Unknown, |host| Value::List(which(host).clone()))
}

/// How many processors.
pub(crate) fn cpus(host: Option<&HostFacts>) -> Value {
    host.map_or(Value::Unknown, |host| Value::optional(host.cpus, Value::number))
}

/// How much memory.
pub(crate) fn memory(host: Option<&HostFacts>) -> Value {
    host.map_or(Value::Unknown, |host| Value::optional(host.memory_mib, Value::Size))
}

/// Disks with their sizes.
pub(crate) fn disks(host: Option<&HostFacts>) -> Value {
    let Some(host) = host else { return Value::Unknown };
    if host.disks.is_empty() {
        return Value::Absent;
    }
    let short: Vec<String> =
        host.disks.iter().map(|disk| format!("{}:{}", disk.name, size(disk.size_mib))).collect();
    let whole = host.disks.iter().map(|disk| json!({ "name": disk.name, "size": disk.size_mib }));
    Value::Parts(short.join(","), whole.collect())
}

#[cfg(test)]
mod tests {
    use muster_proto::v1::HostDisk;

    use super::*;

    #[test]
    fn what_is_unknown_and_what_is_absent_differ() {
        let host = HostFacts {
            os_name: "debian".to_owned(),
            disks: vec![HostDisk { name: "vda".to_owned(), size_mib: 2048 }],
            ..HostFacts::default()
        };
        assert_eq!(text(Some(&host), |host| &host.os_name), Value::Text("debian".to_owned()));
        assert_eq!(text(Some(&host), |host| &host.os_sp), Value::Absent);
        assert_eq!(text(None, |host| &host.os_sp), Value::Unknown);
        assert_eq!(cpus(Some(&host)), Value::Absent);
        assert_eq!(
            disks(Some(&host)),
            Value::Parts("vda:2.0G".to_owned(), json!([{ "name": "vda", "size": 2048 }]))
        );
    }
}
