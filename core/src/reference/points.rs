//! What scripts see in directories beside an operation's own: the global ones, those of events, and the one that may refuse
//! a set of hooks. The names that all have in common come from the very environments that are made for them.

use super::{COMMON, Presence, Reference};
use crate::{
    hooks::{Env, HooksVersion, Phase},
    ops::{
        AFTER_VARIABLES, EVENT_POINTS, GLOBAL_PREFIX, SYNC_PREFIX, SYNC_VARIABLES, event_env, examples,
        sync_env,
    },
};

/// What such a directory's scripts are run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointKind {
    /// Every operation.
    Global,
    /// Something that is no operation.
    Event,
    /// Another set of the cluster's own hooks.
    Sync,
}

/// A variable of a point: name without prefix, when it is there, meaning.
pub type PointVariable = (&'static str, Presence, &'static str);

/// A directory beside the operations' own; the same in all versions of the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointHooks {
    /// For example `global-pre.d`.
    pub directory: String,
    /// Its phase.
    pub phase: Phase,
    /// What for.
    pub kind: PointKind,
    /// When it is run and where, in words.
    pub when: String,
    /// All variables, but for those that an operation has of its own.
    pub variables: Vec<PointVariable>,
}

/// When a variable of [`AFTER_VARIABLES`] is there in `global-post.d`, and in words where that is not always.
pub fn after_in_global(name: &str) -> (Presence, &'static str) {
    match name {
        "JOB_STARTED" => (Presence::Sometimes, "unless the job was over before it began"),
        "ERROR_MESSAGE_PATH" => (Presence::Sometimes, "after an error"),
        _ => (Presence::Always, "always"),
    }
}

fn common_of(env: Env) -> Vec<PointVariable> {
    let env = env.on_node("node1", Some("/")).for_script(1);
    COMMON.into_iter().filter(|(name, ..)| env.get(name).is_some()).collect()
}

fn always((name, meaning): &(&'static str, &'static str)) -> PointVariable {
    (name, Presence::Always, meaning)
}

fn global(phase: Phase) -> PointHooks {
    let after = AFTER_VARIABLES.iter().filter(|_| phase == Phase::Post);
    let after = after.map(|(name, meaning, _)| (*name, after_in_global(name).0, *meaning));
    let when = match phase {
        Phase::Pre => "before every operation, on the master, before the operation's own; an error denies it",
        Phase::Post | Phase::Failed => {
            "once at the end of every job, however it ended, on the master; nobody's locks are held meanwhile"
        }
    };
    PointHooks {
        directory: phase.directory(GLOBAL_PREFIX),
        phase,
        kind: PointKind::Global,
        when: when.to_owned(),
        variables: after.chain(COMMON).collect(),
    }
}

/// All such directories.
pub fn points() -> Vec<PointHooks> {
    let cluster = examples::cluster();
    let events = EVENT_POINTS.iter().map(|point| PointHooks {
        directory: Phase::Post.directory(point.prefix),
        phase: Phase::Post,
        kind: PointKind::Event,
        when: format!("on the master, {}; nothing is changed by the result", point.when),
        variables: point
            .own
            .iter()
            .map(always)
            .chain(common_of(event_env(point.prefix, &cluster, Env::new())))
            .collect(),
    });
    let sync = PointHooks {
        directory: Phase::Pre.directory(SYNC_PREFIX),
        phase: Phase::Pre,
        kind: PointKind::Sync,
        when: "on each node before it uses another set of the cluster's own hooks (gnt-hooks sync); an error keeps the \
               set that the node has, and on the master's node that of all nodes; there is no job: JOB_ID is 0, OP_ID \
               OP_HOOKS_SYNC"
            .to_owned(),
        variables: SYNC_VARIABLES.iter().map(always).chain(common_of(sync_env(&cluster, "root"))).collect(),
    };
    [global(Phase::Pre), global(Phase::Post)].into_iter().chain(events).chain([sync]).collect()
}

impl PointHooks {
    /// Whether its scripts have a variable, the name without prefix.
    pub fn presence(&self, reference: &Reference, name: &str) -> Option<Presence> {
        let own = self.variables.iter().find(|(own, ..)| *own == name).map(|(_, presence, _)| *presence);
        own.or_else(|| self.is_of_an_operation(reference, name).then_some(Presence::Sometimes))
    }

    /// Whether it is there for some operations only.
    pub fn is_of_an_operation(&self, reference: &Reference, name: &str) -> bool {
        let restated = name.strip_prefix("POST_").filter(|_| self.phase == Phase::Post);
        let restates = |name| reference.version == HooksVersion::V2 && !reference.setters(name).is_empty();
        let is_listed = self.variables.iter().any(|(own, ..)| *own == name);
        self.kind == PointKind::Global
            && !is_listed
            && (!reference.setters(name).is_empty() || restated.is_some_and(restates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::point_directories;

    #[test]
    fn every_point_is_described_with_what_its_environment_has() {
        let points = points();
        let names: Vec<&str> = points.iter().map(|point| point.directory.as_str()).collect();
        assert_eq!(names, point_directories().collect::<Vec<_>>());
        let reference = Reference::new(HooksVersion::V2);
        let of = |directory: &str, name: &str| {
            points.iter().find(|point| point.directory == directory).unwrap().presence(&reference, name)
        };
        for (directory, name, right) in [
            ("global-pre.d", "OP_ID", Some(Presence::Always)),
            ("global-pre.d", "DRY_RUN", Some(Presence::Sometimes)),
            ("global-pre.d", "INSTANCE_NIC0_IP", Some(Presence::Sometimes)),
            ("global-pre.d", "POST_INSTANCE_NAME", None),
            ("global-pre.d", "JOB_ENDED", None),
            ("global-post.d", "POST_INSTANCE_NAME", Some(Presence::Sometimes)),
            ("global-post.d", "POST_STATUS", Some(Presence::Always)),
            ("global-post.d", "ERROR_MESSAGE_PATH", Some(Presence::Sometimes)),
            ("config-update-post.d", "CONFIG_SERIAL", Some(Presence::Always)),
            ("config-update-post.d", "JOB_ID", None),
            ("config-update-post.d", "HOST_NAME", Some(Presence::Always)),
            ("node-pending-post.d", "NODE_IPS", Some(Presence::Always)),
            ("hooks-sync-pre.d", "HOOK_SET_OLD", Some(Presence::Always)),
            ("hooks-sync-pre.d", "JOB_USER", Some(Presence::Always)),
            ("hooks-sync-pre.d", "INSTANCE_NAME", None),
        ] {
            assert_eq!(of(directory, name), right, "{name} in {directory}");
        }
    }
}
