//! What a node's hook directories hold, and what its scripts do.

use muster_core::hooks::{Captured, HookResult, ScriptOutcome, ScriptResult};

use super::{event::NodeId, random::Random};

/// A script over this is ended, in milliseconds.
const KILL_LIMIT_MS: u64 = 60_000;
/// One grace period on the way to a script's end, in milliseconds.
pub(crate) const GRACE_MS: u64 = 2_000;

/// Scripts of a directory on a node: always the same number within a seed.
pub(crate) fn count(seed: u64, node: NodeId, directory: &str) -> u64 {
    let node = u64::try_from(node).expect("nodes are few");
    let named = directory.bytes().fold(seed ^ node, |sum, byte| sum.rotate_left(7) ^ u64::from(byte));
    match Random::new(named).below(8) {
        0 => 0,
        1 | 2 => 2,
        _ => 1,
    }
}

fn script(index: u64, outcome: ScriptOutcome, duration_ms: u64) -> ScriptResult {
    ScriptResult {
        name: format!("{index}0-sim"),
        outcome,
        duration_ms,
        stdout: Captured::default(),
        stderr: Captured::default(),
        notes: Vec::new(),
    }
}

/// How a run of a directory will go, and how long it takes in milliseconds.
pub(crate) fn fate(random: &mut Random, scripts: u64, faults_on: bool) -> (HookResult, u64) {
    let mut result = HookResult::default();
    let mut total_ms = 0;
    for index in 0..scripts {
        let (outcome, duration_ms) = match random.below(1000) {
            0..40 => (ScriptOutcome::Failed { code: 1 + u8::try_from(random.below(60)).expect("small") }, 5),
            40..60 if faults_on => {
                (ScriptOutcome::TimedOut { limit_ms: KILL_LIMIT_MS }, KILL_LIMIT_MS + GRACE_MS)
            }
            60..70 if faults_on => (ScriptOutcome::Killed { signal: 9 }, 20),
            70..130 => (ScriptOutcome::Passed, random.range(1_000, 40_000)),
            _ => (ScriptOutcome::Passed, random.range(1, 200)),
        };
        total_ms += duration_ms;
        result.scripts.push(script(index, outcome, duration_ms));
    }
    (result, total_ms)
}

/// What a run that was ended reports.
pub(crate) fn ended() -> HookResult {
    HookResult { scripts: vec![script(0, ScriptOutcome::Ended, 1)], ..HookResult::default() }
}
