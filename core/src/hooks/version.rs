//! The versions of the interface between the cluster and its scripts: which a cluster speaks is one of its parameters.

use serde::{Deserialize, Serialize};

use super::{PHASE_FAILED, PHASE_POST, PHASE_PRE, Phase};

/// The file beside the other facts on each node (`GANETI_DATA_DIR`) that says the cluster's version.
pub const HOOKS_VERSION_FILE: &str = "ssconf_hooks_version";

/// A version of the interface; a job keeps the one that it began with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HooksVersion {
    /// Version 1, the specification of HOOKS.md's table of operations.
    #[default]
    #[serde(rename = "1")]
    V1,
    /// Version 2, as scripts written for Ganeti 2 and 3 expect it.
    #[serde(rename = "2")]
    V2,
}

impl HooksVersion {
    /// Both, the older first.
    pub const ALL: [HooksVersion; 2] = [HooksVersion::V1, HooksVersion::V2];

    /// The value of `HOOKS_VERSION`.
    pub fn value(self) -> &'static str {
        match self {
            HooksVersion::V1 => "1",
            HooksVersion::V2 => "2",
        }
    }

    /// Parses that value.
    pub fn parse(text: &str) -> Option<Self> {
        HooksVersion::ALL.into_iter().find(|version| version.value() == text)
    }

    /// Whether scripts of an operation's own directory for a phase are told what only the job knows when its work is done.
    /// In version 1 the phases differ in nothing but their name (HOOKS.md E4).
    pub fn tells_of_job(self, phase: Phase) -> bool {
        match phase {
            Phase::Pre => false,
            Phase::Post => self == HooksVersion::V2,
            Phase::Failed => true,
        }
    }

    /// The value of `HOOKS_PHASE`: version 2 prints it in lower case.
    pub fn phase(self, phase: Phase) -> &'static str {
        match (self, phase) {
            (HooksVersion::V1, Phase::Pre) => PHASE_PRE,
            (HooksVersion::V1, Phase::Post) => PHASE_POST,
            (HooksVersion::V1, Phase::Failed) => PHASE_FAILED,
            (HooksVersion::V2, Phase::Pre) => "pre",
            (HooksVersion::V2, Phase::Post) => "post",
            (HooksVersion::V2, Phase::Failed) => "failed",
        }
    }
}

impl std::fmt::Display for HooksVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_survives_its_texts() {
        for version in HooksVersion::ALL {
            assert_eq!(HooksVersion::parse(version.value()), Some(version));
            let record = serde_json::to_string(&version).unwrap();
            assert_eq!(record, format!("\"{version}\""));
            assert_eq!(serde_json::from_str::<HooksVersion>(&record).unwrap(), version);
        }
        assert_eq!(HooksVersion::parse("3"), None);
        assert_eq!(HooksVersion::default(), HooksVersion::V1);
    }
}
