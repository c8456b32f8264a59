//! The addition and the change of an instance.

use muster_core::{
    model::DiskTemplate,
    ops::{ImportSource, InstanceAdd, InstanceModify, IpChange, NetworkChange},
};

use super::{
    super::{WireError, fields},
    group, optional_ip, v1,
};

pub(super) fn instance_add(wire: v1::InstanceAdd) -> Result<InstanceAdd, WireError> {
    let template = fields::present("disk_template", &wire.disk_template)?;
    let template = DiskTemplate::parse(template).ok_or_else(|| {
        WireError::wrong(
            "disk_template",
            template,
            "diskless, file or mirror (also remote_raid1, drbd) is expected",
        )
    })?;
    let os = Some(wire.os.as_str()).filter(|os| !os.is_empty());
    Ok(InstanceAdd {
        name: fields::instance("name", &wire.name)?,
        primary: fields::node("primary", &wire.primary)?,
        secondary: wire.secondary.map(|name| fields::node("secondary", &name)).transpose()?,
        template,
        disk_size_mib: wire.disk_size_mib,
        swap_size_mib: wire.swap_size_mib,
        memory_mib: wire.memory_mib,
        vcpus: wire.vcpus,
        ip_pool: wire.ip.as_deref() == Some("pool"),
        ip: optional_ip("ip", wire.ip.as_ref().filter(|ip| *ip != "pool"))?,
        network: wire.network.as_ref().map(|name| fields::network("network", name)).transpose()?,
        os: os.map(|os| fields::os("os", os)).transpose()?,
        no_start: wire.no_start,
        no_wait_for_sync: wire.no_wait_for_sync,
        tags: group::words(&wire.tags)?,
        source: wire.source.map(import_source).transpose()?,
    })
}

fn import_source(wire: v1::ImportSource) -> Result<ImportSource, WireError> {
    let node = fields::node("source.node", &wire.node)?;
    let export = match fields::uuid("source.export", &wire.export) {
        // One spelling, so that locks on it meet.
        Ok(uuid) => uuid.to_string(),
        Err(_) => fields::instance("source.export", &wire.export)?.into(),
    };
    Ok(ImportSource { node, export })
}

pub(super) fn instance_modify(wire: &v1::InstanceModify) -> Result<InstanceModify, WireError> {
    let ip = match wire.ip.as_deref() {
        None => None,
        Some("none") => Some(IpChange::Clear),
        Some("pool") => Some(IpChange::Pool),
        Some(text) => Some(IpChange::Set(fields::ip("ip", text)?)),
    };
    Ok(InstanceModify {
        instance: fields::instance("instance", &wire.instance)?,
        memory_mib: wire.memory_mib,
        vcpus: wire.vcpus,
        ip,
        network: match wire.network.as_deref() {
            None => None,
            Some("none") => Some(NetworkChange::Clear),
            Some(name) => Some(NetworkChange::Set(fields::network("network", name)?)),
        },
    })
}

impl From<InstanceAdd> for v1::InstanceAdd {
    fn from(op: InstanceAdd) -> Self {
        v1::InstanceAdd {
            name: op.name.into(),
            primary: op.primary.into(),
            secondary: op.secondary.map(Into::into),
            disk_template: op.template.as_str().to_owned(),
            disk_size_mib: op.disk_size_mib,
            swap_size_mib: op.swap_size_mib,
            memory_mib: op.memory_mib,
            vcpus: op.vcpus,
            ip: if op.ip_pool { Some("pool".to_owned()) } else { op.ip.map(|ip| ip.to_string()) },
            network: op.network.map(Into::into),
            os: op.os.map(Into::into).unwrap_or_default(),
            no_start: op.no_start,
            no_wait_for_sync: op.no_wait_for_sync,
            tags: op.tags.to_texts(),
            source: op
                .source
                .map(|source| v1::ImportSource { node: source.node.into(), export: source.export }),
        }
    }
}

impl From<InstanceModify> for v1::InstanceModify {
    fn from(op: InstanceModify) -> Self {
        let ip = op.ip.map(|change| match change {
            IpChange::Set(ip) => ip.to_string(),
            IpChange::Clear => "none".to_owned(),
            IpChange::Pool => "pool".to_owned(),
        });
        let network = op.network.map(|change| match change {
            NetworkChange::Set(name) => name.into(),
            NetworkChange::Clear => "none".to_owned(),
        });
        let (memory_mib, vcpus) = (op.memory_mib, op.vcpus);
        v1::InstanceModify { instance: op.instance.into(), memory_mib, vcpus, ip, network }
    }
}
