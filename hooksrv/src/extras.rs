//! What a run has beside its own directory: a global directory, and files that are there for the run.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::hooks::{Captured, Env, HookPolicy, Phase, ScriptOutcome, ScriptResult};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::run::DirectoryName;

/// What a script gets before KILL is part of the budget.
const GRACE: Duration = crate::processes::GRACE;

/// A global directory of a run; its scripts are named with the directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GlobalRequest {
    /// Which.
    pub directory: DirectoryName,
    /// Before the operation: it runs before the other directory then, and after it else.
    pub phase: Phase,
    /// Variables that differ from the run's.
    pub env: Env,
    /// What holds there.
    pub policy: HookPolicy,
}

/// What a run has beside its own directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Extras {
    /// A global directory.
    pub global: Option<GlobalRequest>,
    /// Only that one runs.
    pub only_global: bool,
    /// Contents of files by the variable, without prefix, that names them.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Files of a run; gone with this value.
#[derive(Debug, Default)]
pub(crate) struct RunFiles(Vec<PathBuf>);

impl RunFiles {
    /// Makes the files in a directory of the run's own; the variables that name them. Blocks.
    pub(crate) fn make(dir: &Path, files: &BTreeMap<String, Vec<u8>>) -> io::Result<(RunFiles, Env)> {
        let (mut made, mut env) = (RunFiles::default(), Env::new());
        for (variable, content) in files {
            let path = dir.join(format!("file.{}", variable.to_ascii_lowercase()));
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            made.0.push(path.clone());
            file.write_all(content)?;
            env = env.set(variable, path.display().to_string());
        }
        Ok((made, env))
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(%error, path = %path.display(), "a file of a run stays as long as its output");
            }
        }
    }
}

/// A phase's budget on this node: every directory's counts from the start of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    begin: Instant,
    ms: u64,
}

impl Budget {
    /// The budget of a directory, where it has one.
    pub(crate) fn of(policy: &HookPolicy, begin: Instant) -> Option<Budget> {
        policy.budget_ms.map(|ms| Budget { begin, ms })
    }

    /// The moment at which a running script is told to end.
    pub(crate) fn ends_at(&self) -> Instant {
        self.begin + Duration::from_millis(self.ms).saturating_sub(GRACE)
    }

    /// Whether no other script begins.
    pub(crate) fn is_used_up(&self) -> bool {
        Instant::now() >= self.ends_at()
    }

    /// How a script ends whose time is over.
    pub(crate) fn over(&self) -> ScriptOutcome {
        ScriptOutcome::OverBudget { budget_ms: self.ms }
    }

    /// What is said of a script that does not begin.
    pub(crate) fn not_begun(&self, name: &str) -> ScriptResult {
        ScriptResult {
            name: name.to_owned(),
            outcome: ScriptOutcome::NotBegun { budget_ms: self.ms },
            duration_ms: 0,
            stdout: Captured::default(),
            stderr: Captured::default(),
            notes: Vec::new(),
        }
    }
}
