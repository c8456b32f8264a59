//! What a node reports of a phase: scripts run, scripts skipped, or why there is no report.

use serde::{Deserialize, Serialize};

/// How one script ended; a closed set (HOOKS.md R1, R4, X4, X8, X9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ScriptOutcome {
    /// Exit status 0.
    Passed,
    /// Any other exit status.
    Failed {
        /// The exit status, 1 to 255.
        code: u8,
    },
    /// Death by a signal that was not ours.
    Killed {
        /// The signal's number.
        signal: i32,
    },
    /// Over the kill limit; the whole group was ended (X8).
    TimedOut {
        /// The limit in milliseconds.
        limit_ms: u64,
    },
    /// Ended because the phase's budget was used up; the whole group was ended.
    OverBudget {
        /// The budget in milliseconds.
        budget_ms: u64,
    },
    /// Not begun, because the phase's budget was used up before.
    NotBegun {
        /// The budget in milliseconds.
        budget_ms: u64,
    },
    /// The script could not be started (X9).
    NotExecutable {
        /// Why, naming the interpreter where that is the trouble.
        reason: String,
    },
    /// The output passed its bound and the script was ended (X4).
    OutputTooLarge {
        /// The bound in bytes.
        limit_bytes: u64,
    },
    /// Ended because the job was canceled or its master asked for the end.
    Ended,
    /// Nobody knows: the process that watched it is gone.
    Lost,
}

/// A bounded copy of one output stream; the whole stays on the node (HOOKS.md X4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The first bytes, at most 32 KiB; everything when `cut` is false.
    #[serde(with = "bytes_as_text")]
    pub head: Vec<u8>,
    /// The last bytes, at most 32 KiB; empty when nothing was cut.
    #[serde(with = "bytes_as_text")]
    pub tail: Vec<u8>,
    /// The length of the whole in bytes.
    pub total_bytes: u64,
    /// The file on the node that holds the whole.
    pub path: String,
}

impl Captured {
    /// Whether bytes between head and tail are missing here.
    pub fn cut(&self) -> bool {
        u64::try_from(self.head.len() + self.tail.len()).unwrap_or(u64::MAX) < self.total_bytes
    }

    /// The text for people: invalid UTF-8 and control bytes made visible, a cut noted.
    pub fn visible(&self) -> String {
        if self.cut() {
            let missing = self
                .total_bytes
                .saturating_sub(u64::try_from(self.head.len() + self.tail.len()).unwrap_or(u64::MAX));
            format!("{}\n[cut: {missing} bytes]\n{}", visible(&self.head), visible(&self.tail))
        } else {
            visible(&[&self.head[..], &self.tail[..]].concat())
        }
    }
}

/// Bytes as text: control bytes (but newline and tab) and bytes that are no UTF-8 as `\xNN`.
fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' | '\t' => text.push(c),
                c if c.is_control() => text.push_str(&c.escape_default().to_string()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// One script of a directory and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptResult {
    /// File name in its directory.
    pub name: String,
    /// How it ended.
    pub outcome: ScriptOutcome,
    /// Monotonic time from start to end in milliseconds.
    pub duration_ms: u64,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// Remarks for people: over the warning limit, children left behind, a bad limit line (X7, X8).
    pub notes: Vec<String>,
}

/// Why an entry of a hook directory is not run (HOOKS.md D3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The name has other characters than `a-zA-Z0-9_-`.
    BadName,
    /// The name ends in `.disabled`.
    Disabled,
    /// The daemon's user may not execute it.
    NotExecutable,
    /// It is executable but its filesystem is mounted noexec.
    NoExecMount,
    /// It is a directory.
    Directory,
    /// A link whose target does not exist.
    DanglingLink,
    /// A socket, device or fifo.
    NotAFile,
    /// It is of the cluster's set, and the node has an entry of its own with this name.
    Shadowed,
}

impl SkipReason {
    /// The reason in the words that reports use.
    pub fn text(self) -> &'static str {
        match self {
            SkipReason::BadName => "bad name",
            SkipReason::Disabled => "disabled",
            SkipReason::NotExecutable => "not executable",
            SkipReason::NoExecMount => "no-exec mount",
            SkipReason::Directory => "directory",
            SkipReason::DanglingLink => "dangling link",
            SkipReason::NotAFile => "not a regular file",
            SkipReason::Shadowed => "the cluster's, hidden by the node's own",
        }
    }
}

/// A directory entry that is not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The entry's name, undecodable bytes made visible.
    pub name: String,
    /// Why.
    pub reason: SkipReason,
}

/// Everything a reached node says of one phase.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookResult {
    /// The scripts run, in order.
    pub scripts: Vec<ScriptResult>,
    /// The entries not run.
    pub skipped: Vec<Skipped>,
    /// Set when the node could not run the directory: unreadable, can't spawn, output file not writable (D2, R3).
    pub failure: Option<String>,
    /// The node has seen that no `global-post.d` is there; said by nodes that were asked for a global directory.
    #[serde(default)]
    pub global_post_absent: bool,
}

/// Why a node gave no (whole) answer (HOOKS.md R3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotReached {
    /// In words, certificate trouble named.
    pub reason: String,
}

/// A node's answer, or its absence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeAnswer {
    /// The node ran its directory to the end.
    Answered(HookResult),
    /// Connection refused, limit passed, TLS failed, or lost on the way; scripts reported before the loss are kept.
    NotReached {
        /// Why.
        why: NotReached,
        /// What was received before.
        partial: HookResult,
    },
    /// The run's end is unknown: the node lost track of it (a restart in the middle).
    Lost,
}

/// One node's part in a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The node asked.
    pub node: crate::names::NodeName,
    /// What it said.
    pub answer: NodeAnswer,
    /// Time from call to answer in milliseconds, as the master measured it.
    pub duration_ms: u64,
}

/// Bytes in JSON: UTF-8 as it is, other bytes by the `\xNN` form (display only; the node keeps the bytes).
mod bytes_as_text {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&super::visible(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Ok(String::deserialize(from)?.into_bytes())
    }
}
