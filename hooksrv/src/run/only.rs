//! One script of a directory, for a run that an admin asks for.

use muster_core::{hooks::SkipReason, names::nearest};

use super::Plan;

/// Why one script of a directory can't be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotThere {
    /// There is none of that name.
    #[error("there is no script {script} in {directory}{near}")]
    Unknown {
        /// What was asked for.
        script: String,
        /// Where.
        directory: String,
        /// The nearest name, in words; may be empty.
        near: String,
    },
    /// It is passed over.
    #[error("{script} in {directory} is not run: {}", reason.text())]
    Skipped {
        /// What was asked for.
        script: String,
        /// Where.
        directory: String,
        /// Why.
        reason: SkipReason,
    },
    /// The directory can't be read.
    #[error("{0}")]
    Unreadable(String),
}

impl Plan {
    /// Only this script of the directory that was planned.
    ///
    /// # Errors
    /// When it would not have been run.
    pub(crate) fn only(mut self, directory: &str, script: &str) -> Result<Plan, NotThere> {
        if let Some(failure) = self.failure {
            return Err(NotThere::Unreadable(failure));
        }
        let decisions = || self.directories.iter().map(|planned| &planned.decision);
        if !decisions().any(|decision| decision.scripts.iter().any(|known| known.name == script)) {
            let skipped =
                decisions().flat_map(|decision| &decision.skipped).find(|known| known.name == script);
            let (script, directory) = (script.to_owned(), directory.to_owned());
            if let Some(skipped) = skipped {
                return Err(NotThere::Skipped { script, directory, reason: skipped.reason });
            }
            let known = decisions().flat_map(|decision| &decision.scripts).map(|known| known.name.as_str());
            let near = nearest(&script, known.clone()).map(|near| format!("; did you mean {near}?"));
            let near =
                near.unwrap_or_else(|| if known.count() == 0 { "; it has none" } else { "" }.to_owned());
            return Err(NotThere::Unknown { script, directory, near });
        }
        for planned in &mut self.directories {
            planned.decision.scripts.retain(|known| known.name == script);
            planned.decision.skipped.clear();
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use muster_core::hooks::{Phase, Skipped};

    use super::*;
    use crate::{
        DirectoryName,
        run::PlannedDirectory,
        scan::{Decision, Script},
    };

    fn plan(names: &[&str]) -> Plan {
        let script =
            |name: &&str| Script { name: (*name).to_owned(), writable_by_others: false, from_cluster: false };
        let skipped = vec![Skipped { name: "50-off.disabled".to_owned(), reason: SkipReason::Disabled }];
        let decision = Decision { scripts: names.iter().map(script).collect(), skipped };
        let name = DirectoryName::new("node-add", Phase::Pre).unwrap();
        Plan { directories: vec![PlannedDirectory { name, decision, global: None }], ..Plan::default() }
    }

    #[test]
    fn one_script_is_left_and_nothing_is_said_of_the_others() {
        let plan = plan(&["10-a", "20-b"]).only("node-add-pre.d", "20-b").unwrap();
        let decision = &plan.directories[0].decision;
        assert_eq!(decision.scripts.len(), 1);
        assert_eq!((decision.scripts[0].name.as_str(), decision.skipped.len()), ("20-b", 0));
    }

    #[test]
    fn what_is_not_run_is_told_with_the_reason_or_the_nearest_name() {
        let why =
            |names: &[&str], script| plan(names).only("node-add-pre.d", script).unwrap_err().to_string();
        let names = ["10-check", "20-b"];
        assert_eq!(
            why(&names, "10-chekc"),
            "there is no script 10-chekc in node-add-pre.d; did you mean 10-check?"
        );
        assert_eq!(why(&[], "10-a"), "there is no script 10-a in node-add-pre.d; it has none");
        assert_eq!(why(&names, "unlike-any"), "there is no script unlike-any in node-add-pre.d");
        assert_eq!(why(&names, "50-off.disabled"), "50-off.disabled in node-add-pre.d is not run: disabled");
        let broken = Plan { failure: Some("no permission".to_owned()), ..plan(&names) };
        assert_eq!(broken.only("node-add-pre.d", "10-check").unwrap_err().to_string(), "no permission");
    }
}
