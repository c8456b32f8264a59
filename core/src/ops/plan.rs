//! What an operation will do: steps with their undo, then edits, then cleanups.

use serde::{Deserialize, Serialize};

use super::{Op, relied::Relied};
use crate::{
    calls::Call,
    edit::Edit,
    hooks::{Env, HookPolicy, Phase},
    names::NodeName,
};

/// What may follow a step that does not succeed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum StepKind {
    /// Changes something; its undo puts it back, also when the step failed half-way.
    Undoable {
        /// Puts it back.
        undo: Call,
    },
    /// Leaves nothing behind.
    Harmless,
    /// Asks what mirrors do: copies that can't be relied on fail the job, and the configuration says from then on what they
    /// are.
    Relies {
        /// What is relied on.
        on: Relied,
    },
    /// One that does not succeed is a warning, and these edits.
    Optional {
        /// What the configuration then says.
        edits: Vec<Edit>,
    },
    /// A node out of reach is a warning; what is done stays and must be committed, so the job only goes forward.
    Kept,
    /// After it the job only goes forward and can't be canceled.
    Final,
}

/// One call of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What is done, and where.
    pub call: Call,
    /// What follows when it does not succeed.
    pub kind: StepKind,
}

/// An operation's way: steps, then one commit of edits, then cleanups.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// In order; the next starts when the one before is done.
    pub steps: Vec<Step>,
    /// Committed together, after all steps.
    pub edits: Vec<Edit>,
    /// Recorded in the commit, done after it; with whether one try is enough.
    pub cleanups: Vec<(Call, bool)>,
    /// Failed undos of other jobs that need not be done any more.
    #[serde(default)]
    pub settled: Vec<Call>,
    /// Jobs that come to be with the commit.
    #[serde(default)]
    pub follow_ups: Vec<FollowUp>,
    /// What the job's log says as it begins.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// An operation that a job asks for, for the same user and reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FollowUp {
    /// What is asked for.
    pub op: Op,
    /// The position of an earlier one that must have succeeded before.
    pub after: Option<usize>,
}

impl Plan {
    /// Nothing to do.
    pub fn new() -> Self {
        Plan::default()
    }

    /// Adds a step whose undo stands beside it.
    #[must_use]
    pub fn step(mut self, call: Call, undo: Call) -> Self {
        self.steps.push(Step { call, kind: StepKind::Undoable { undo } });
        self
    }

    /// Adds a step that leaves nothing behind.
    #[must_use]
    pub fn harmless(mut self, call: Call) -> Self {
        self.steps.push(Step { call, kind: StepKind::Harmless });
        self
    }

    /// Adds a step whose output must say that copies can be relied on.
    #[must_use]
    pub fn relies(mut self, call: Call, on: Relied) -> Self {
        self.steps.push(Step { call, kind: StepKind::Relies { on } });
        self
    }

    /// Adds a step without which the job goes on, with these edits more.
    #[must_use]
    pub fn optional(mut self, call: Call, edits: Vec<Edit>) -> Self {
        self.steps.push(Step { call, kind: StepKind::Optional { edits } });
        self
    }

    /// Adds a step that a node out of reach does not fail, and whose effect stays.
    #[must_use]
    pub fn kept(mut self, call: Call) -> Self {
        self.steps.push(Step { call, kind: StepKind::Kept });
        self
    }

    /// Adds a step after which there is no way back.
    #[must_use]
    pub fn last(mut self, call: Call) -> Self {
        self.steps.push(Step { call, kind: StepKind::Final });
        self
    }

    /// Adds an edit.
    #[must_use]
    pub fn edit(mut self, edit: Edit) -> Self {
        self.edits.push(edit);
        self
    }

    /// Adds a cleanup that is retried until it succeeds.
    #[must_use]
    pub fn cleanup(mut self, call: Call) -> Self {
        self.cleanups.push((call, false));
        self
    }

    /// Adds a cleanup that is tried once.
    #[must_use]
    pub fn cleanup_once(mut self, call: Call) -> Self {
        self.cleanups.push((call, true));
        self
    }
}

/// The nodes whose scripts are asked and told (HOOKS.md, table of operations).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookNodes {
    /// Asked before.
    pub pre: Vec<NodeName>,
    /// Told after.
    pub post: Vec<NodeName>,
}

impl HookNodes {
    /// The same nodes in both phases.
    pub fn both(nodes: Vec<NodeName>) -> Self {
        HookNodes { pre: nodes.clone(), post: nodes }
    }
}

/// Everything computed once, after locks and checks, and kept with the job (HOOKS.md E4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// The directory prefix, or `None` for an operation without hooks.
    pub hook_prefix: Option<String>,
    /// Without `HOOKS_PHASE`.
    pub env: Env,
    /// Version 2: what post scripts see beside that, the object as the plan leaves it (`POST_NAME`).
    #[serde(default)]
    pub env_post: Env,
    /// The cluster's hook parameters when the job began.
    pub policy: HookPolicy,
    /// The value of `MASTER` in post (differs in OP_MASTER_FAILOVER alone).
    pub master_post: NodeName,
    /// Each node once, offline ones left out (HOOKS.md E5, R6).
    pub nodes: HookNodes,
    /// What is done.
    pub plan: Plan,
}

impl Prepared {
    /// A phase's environment, without what each node adds: only HOOKS_PHASE and MASTER differ between the phases, and
    /// in version 2 post has the state afterwards beside the one before (HOOKS.md E4).
    pub fn env_in(&self, phase: Phase) -> Env {
        let env = self.env.clone().set("HOOKS_PHASE", self.policy.version.phase(phase));
        match phase {
            Phase::Pre | Phase::Failed => env,
            Phase::Post => env.set("MASTER", self.master_post.as_str()).with(self.env_post.clone()),
        }
    }
}
