//! `muster-masterd --restore FILE`: a backup becomes this host's store, and the operator is told what it is and what to
//! do next.

use std::path::{Path, PathBuf};

use muster_core::{engine::Job, model::Cluster};
use uuid::Uuid;

use crate::{
    config::Config,
    lost,
    office::StartError,
    serve,
    shell::wall_ms,
    store::{self, RestoreError, Restored, StoreError},
};

/// Why nothing, or not all, was restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreFailure {
    /// The directories can't be made.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A master uses the store.
    #[error("a master daemon runs on {0}: stop it before a restore")]
    Running(PathBuf),
    /// The backup, or the disk.
    #[error(transparent)]
    Restore(RestoreError),
}

impl From<RestoreError> for RestoreFailure {
    fn from(error: RestoreError) -> Self {
        if let RestoreError::Store(StoreError::InUse { path }) = error {
            Self::Running(path)
        } else {
            Self::Restore(error)
        }
    }
}

/// Restores, and tells what was done.
///
/// # Errors
/// When a master runs on the directory, or the backup can't be used.
pub fn run(config: &Config, file: &Path) -> Result<String, RestoreFailure> {
    serve::make_folder(&config.state_dir, 0o755)?;
    let node = lost::node_cluster(&config.state_dir);
    let accept = |cluster: &Cluster| match &node {
        Some(node) if node.parse::<Uuid>().is_ok_and(|node| node != cluster.uuid) => Err(format!(
            "it is of cluster {} ({}), and this host's node belongs to cluster {node}",
            cluster.name, cluster.uuid
        )),
        Some(_) | None => Ok(()),
    };
    let restored = store::restore(&config.store(), file, &moment(), accept)?;
    Ok(words(config, file, &restored))
}

/// Now, as part of a file's name.
fn moment() -> String {
    let seconds = i64::try_from(wall_ms() / 1000).unwrap_or(0);
    let now = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let format = time::macros::format_description!("[year][month][day]T[hour][minute][second]Z");
    now.format(format).unwrap_or_else(|_| seconds.to_string())
}

fn words(config: &Config, file: &Path, restored: &Restored) -> String {
    let Restored { cluster, epoch, jobs, archived, kept } = restored;
    let alive = jobs.iter().filter(|job: &&Job| !job.done()).count();
    let mut lines = vec![format!(
        "restored cluster {} ({}) from {}: serial {}, epoch {epoch}, {} nodes, {} instances, {} jobs of which {alive} are not over, {archived} archived jobs",
        cluster.name,
        cluster.uuid,
        file.display(),
        cluster.serial,
        cluster.nodes.len(),
        cluster.instances.len(),
        jobs.len(),
    )];
    if let Some(kept) = kept {
        lines.push(format!("the store of before is kept as {}", kept.display()));
    }
    let directory = config.master_dir();
    if !(directory.join("ca.pem").exists() && directory.join("ca.key").exists()) {
        let directory = directory.display();
        lines.push(format!(
            "the certificate authority is missing: put ca.pem and ca.key of this cluster into {directory}"
        ));
    }
    if cluster.master != config.name {
        lines.push(format!(
            "its master is {}, and this host is {}: make sure that no other master runs",
            cluster.master, config.name
        ));
    }
    lines.push(
        "next: start muster-masterd; if it refuses because nodes have seen a newer configuration or epoch, what came after the backup is lost: \
         start it once with --accept-loss, then run gnt-cluster verify"
            .to_owned(),
    );
    lines.join("\n")
}
