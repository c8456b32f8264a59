//! `gnt-hooks policy`.

use muster_core::hooks::DirectoryPolicy;
use muster_proto::v1::{ClusterModify, GetClusterRequest, HookPolicyRow, operation::Operation};

use super::operation::{self, Asked};
use crate::{
    args::{ConnectionFlags, PolicyVerb},
    client::{Master, answer},
    exit::Failure,
    output::{fields::select, hook_policy as render, print},
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: PolicyVerb) -> Result<(), Failure> {
    match verb {
        PolicyVerb::List { list } => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            let master = Master::connect(connection).await?;
            let cluster = answer(master.queries().get_cluster(GetClusterRequest {})).await?;
            print(&selection.render(&render::rows(cluster.hooks.unwrap_or_default()))?)
        }
        change @ (PolicyVerb::Set { .. } | PolicyVerb::Reset { .. }) => {
            let asked = asked(change).expect("these verbs ask for operations");
            operation::carry_out(connection, asked).await
        }
    }
}

/// The operation that a verb asks for; `None` for one that shows something.
pub(super) fn asked(verb: PolicyVerb) -> Option<Asked> {
    let (directory, reset, set, flags) = match verb {
        PolicyVerb::List { .. } => return None,
        PolicyVerb::Set { directory, settings, operation } => {
            let nothing = DirectoryPolicy::default();
            let set = settings.iter().fold(nothing, |set, setting| set.changed(&setting.0));
            (directory, false, set, operation)
        }
        PolicyVerb::Reset { directory, operation } => {
            (directory, true, DirectoryPolicy::default(), operation)
        }
    };
    let row = HookPolicyRow { directory, reset, set: Some(set.into()) };
    let modify = ClusterModify { hook_policy: vec![row], ..ClusterModify::default() };
    Some(Asked::one(Operation::ClusterModify(modify), flags))
}
