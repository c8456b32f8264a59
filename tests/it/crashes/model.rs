//! What the configuration must be: the effects of the successful jobs, one after the other in the order of their ends.
//!
//! Jobs that meet on an object are ordered by its lock, which each holds to its end; the order of the others does not matter.

use std::collections::{BTreeMap, BTreeSet};

use muster_proto::v1;
use muster_proto::v1::operation::Operation as Op;

/// An instance, as far as it is modelled. The states and ids of copies are not: they follow from when a guest ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    primary: String,
    secondary: Option<String>,
    template: String,
    memory_mib: u64,
    vcpus: u32,
    up: bool,
    /// Number of copies of each disk.
    copies: BTreeMap<String, usize>,
}

/// The modelled part of a configuration.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) instances: BTreeMap<String, Instance>,
    /// Instance and node of each export.
    exports: BTreeSet<(String, String)>,
    drained: BTreeSet<String>,
    timeout_max_ms: Option<u64>,
}

/// The configuration that a master describes.
pub(super) fn found(
    instances: &[v1::InstanceInfo],
    exports: &[v1::ExportInfo],
    nodes: &[v1::NodeInfo],
    cluster: &v1::ClusterInfo,
) -> Config {
    let instance = |info: &v1::InstanceInfo| Instance {
        primary: info.primary.clone(),
        secondary: info.secondaries.first().cloned(),
        template: info.disk_template.clone(),
        memory_mib: info.memory_mib,
        vcpus: info.vcpus,
        up: info.admin_up,
        copies: info.disks.iter().map(|disk| (disk.name.clone(), disk.mirrors.len())).collect(),
    };
    Config {
        instances: instances.iter().map(|info| (info.name.clone(), instance(info))).collect(),
        exports: exports.iter().map(|export| (export.instance.clone(), export.node.clone())).collect(),
        drained: nodes.iter().filter(|node| node.drained).map(|node| node.name.clone()).collect(),
        timeout_max_ms: cluster.hooks.as_ref().and_then(|hooks| hooks.timeout_max_ms),
    }
}

/// Adds the successful jobs to a configuration. An effect that does not fit is a finding.
pub(super) fn replay(mut config: Config, jobs: &[v1::Job]) -> Result<Config, String> {
    let successful = |job: &&v1::Job| job.status() == v1::JobStatus::Success && !job.dry_run;
    let mut done: Vec<&v1::Job> = jobs.iter().filter(successful).collect();
    done.sort_by_key(|job| (job.ended_ms, job.id));
    for job in done {
        let op = job.operation.as_ref().and_then(|operation| operation.operation.as_ref());
        let op = op.ok_or_else(|| format!("job {} has no operation", job.id))?;
        apply(&mut config, op).ok_or_else(|| {
            format!("job {} ({}) succeeded and can't have: {:?}", job.id, job.summary, config.instances)
        })?;
    }
    Ok(config)
}

#[expect(clippy::too_many_lines, reason = "a few lines for each operation, side by side")]
fn apply(config: &mut Config, op: &Op) -> Option<()> {
    match op {
        Op::InstanceAdd(add) => {
            let fresh = config.instances.insert(add.name.clone(), added(add)).is_none();
            fresh.then_some(())
        }
        Op::InstanceRemove(remove) => config.instances.remove(&remove.instance).map(drop),
        Op::BackupExport(export) => {
            config.instances.get(&export.instance)?;
            config.exports.insert((export.instance.clone(), export.node.clone()));
            Some(())
        }
        Op::NodeModify(modify) => {
            if modify.drained? {
                config.drained.insert(modify.name.clone());
            } else {
                config.drained.remove(&modify.name);
            }
            Some(())
        }
        Op::ClusterModify(modify) => {
            config.timeout_max_ms = Some(modify.hooks.as_ref()?.timeout_max_ms?);
            Some(())
        }
        Op::InstanceStart(start) => {
            config.instances.get_mut(&start.instance)?.up = true;
            Some(())
        }
        Op::InstanceShutdown(shutdown) => {
            config.instances.get_mut(&shutdown.instance)?.up = false;
            Some(())
        }
        Op::InstanceModify(modify) => {
            let instance = config.instances.get_mut(&modify.instance)?;
            instance.memory_mib = modify.memory_mib.unwrap_or(instance.memory_mib);
            instance.vcpus = modify.vcpus.unwrap_or(instance.vcpus);
            Some(())
        }
        Op::InstanceReboot(reboot) => config.instances.get(&reboot.instance)?.up.then_some(()),
        Op::InstanceReinstall(reinstall) => {
            let instance = config.instances.get(&reinstall.instance)?;
            (!instance.up && !instance.copies.is_empty()).then_some(())
        }
        Op::InstanceRename(rename) => {
            let instance = config.instances.remove(&rename.instance)?;
            let fresh = config.instances.insert(rename.new_name.clone(), instance).is_none();
            fresh.then_some(())
        }
        Op::DiskGrow(grow) => {
            let instance = config.instances.get(&grow.instance)?;
            (!instance.up && instance.copies.contains_key(&grow.disk)).then_some(())
        }
        Op::InstanceFailover(failover) => failed_over(config.instances.get_mut(&failover.instance)?),
        Op::MirrorAdd(add) => {
            let instance = config.instances.get_mut(&add.instance)?;
            *instance.copies.get_mut(&add.disk)? += 1;
            instance.template = "mirror".to_owned();
            instance.secondary = Some(add.node.clone());
            Some(())
        }
        Op::MirrorRemove(remove) => {
            let instance = config.instances.get_mut(&remove.instance)?;
            let copies = instance.copies.get_mut(&remove.disk)?;
            *copies = copies.checked_sub(1)?;
            if instance.copies.values().all(|copies| *copies == 0) {
                instance.secondary = None;
            }
            Some(())
        }
        Op::DisksReplace(replace) => {
            let instance = config.instances.get_mut(&replace.instance)?;
            let old = instance.secondary.clone()?;
            instance.secondary = Some(replace.new_secondary.clone().unwrap_or(old));
            Some(())
        }
        // The master's own jobs: they change only how good a copy is.
        Op::MirrorsSettle(_) | Op::MirrorsSync(_) => Some(()),
        Op::ClusterInit(_)
        | Op::NodeMigrate(_)
        | Op::NodeEvacuate(_)
        | Op::InstanceMove(_)
        | Op::DisksRecreate(_)
        | Op::ClusterRename(_)
        | Op::ClusterVerify(_)
        | Op::GroupAdd(_)
        | Op::GroupModify(_)
        | Op::GroupRemove(_)
        | Op::GroupRename(_)
        | Op::GroupAssignNodes(_)
        | Op::NetworkAdd(_)
        | Op::NetworkRemove(_)
        | Op::NetworkModify(_)
        | Op::NetworkConnect(_)
        | Op::NetworkDisconnect(_)
        | Op::TagsSet(_)
        | Op::TagsDel(_)
        | Op::InstanceMigrate(_)
        | Op::MasterFailover(_)
        | Op::NodeAdd(_)
        | Op::NodeRemove(_)
        | Op::ClusterDestroy(_)
        | Op::CertificatesRenew(_)
        | Op::ClientCertificateSign(_)
        | Op::ClientCertificateRevoke(_)
        | Op::JobRepair(_) => None,
    }
}

fn added(add: &v1::InstanceAdd) -> Instance {
    let sizes = [("sda", add.disk_size_mib), ("sdb", add.swap_size_mib)];
    let disks = sizes.into_iter().filter(|(_, size_mib)| *size_mib > 0);
    let copies = usize::from(add.secondary.is_some());
    Instance {
        primary: add.primary.clone(),
        secondary: add.secondary.clone(),
        template: add.disk_template.clone(),
        memory_mib: add.memory_mib,
        vcpus: add.vcpus,
        up: !add.no_start,
        copies: disks.map(|(name, _)| (name.to_owned(), copies)).collect(),
    }
}

/// The nodes change places; of two copies one becomes the disk, and the other goes.
fn failed_over(instance: &mut Instance) -> Option<()> {
    let secondary = instance.secondary.replace(instance.primary.clone())?;
    instance.primary = secondary;
    instance.copies.values_mut().for_each(|copies| *copies = 1);
    Some(())
}
