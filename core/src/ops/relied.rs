//! Copies that a job relies on: the primary is asked what their mirrors do before the job goes on.
//!
//! The configuration learns of a mirror that broke off only after its node has told the master, a moment later, or not at
//! all while one of the two is down. Whoever is about to boot from a copy can't wait for that. Where the primary can't be
//! asked, the node that has the copies says at least whether it has served them all the time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    calls::{MirrorStatus, Output},
    edit::Edit,
    names::InstanceName,
};

/// Who is asked about copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Witness {
    /// The node that sees the writes.
    #[default]
    Primary,
    /// The node that serves the copies.
    Server,
}

/// Copies that must hold what their disks hold, or held when their guest ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relied {
    /// The instance.
    pub instance: InstanceName,
    /// By the copy's uuid: which it is, in words.
    pub copies: BTreeMap<Uuid, String>,
    /// The guest was up: its node must know all of them. One that was down may have been down since before that node had it,
    /// and then the configuration is all that there is.
    pub known: bool,
    /// Who is asked.
    #[serde(default)]
    pub witness: Witness,
    /// What can be done about it.
    pub advice: String,
}

impl Relied {
    /// Why the job can't go on, in words, and what the configuration is to say.
    pub(crate) fn refuses(&self, told: &Output) -> Option<(String, Edit)> {
        let wrong = self.copies.iter().filter_map(|(copy, name)| {
            let what = match told.mirrors.get(copy) {
                Some(MirrorStatus::Ready) => return None,
                Some(MirrorStatus::Broken | MirrorStatus::Syncing) | None
                    if self.witness == Witness::Server =>
                {
                    "may miss writes: what serves it to the old primary has ended"
                }
                Some(MirrorStatus::Broken) => "misses writes: its mirror broke off",
                Some(MirrorStatus::Syncing) => "is being written over",
                None if self.known => "has no mirror that its node knows of",
                None => return None,
            };
            Some((*copy, format!("{name} {what}")))
        });
        let wrong: BTreeMap<Uuid, String> = wrong.collect();
        if wrong.is_empty() {
            return None;
        }
        let status = |copy: &Uuid| told.mirrors.get(copy).copied().unwrap_or(MirrorStatus::Broken);
        let mirrors = wrong.keys().map(|copy| (*copy, status(copy))).collect();
        let words: Vec<String> = wrong.into_values().collect();
        let message = format!("{} ({})", words.join("; "), self.advice);
        Some((message, Edit::CopiesSettle { instance: self.instance.clone(), mirrors }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_sync_is_relied_on() {
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let refused = |known: bool, mirrors: &[(Uuid, MirrorStatus)]| {
            let relied = Relied {
                instance: InstanceName::parse("web1").unwrap(),
                copies: [(one, "one".to_owned()), (two, "two".to_owned())].into(),
                known,
                witness: Witness::Primary,
                advice: "wait".to_owned(),
            };
            let told = Output { mirrors: mirrors.iter().copied().collect(), ..Output::default() };
            let (message, edit) = relied.refuses(&told)?;
            let Edit::CopiesSettle { mirrors, .. } = edit else { panic!("{edit:?}") };
            Some((message, mirrors.into_iter().collect::<Vec<_>>()))
        };
        use MirrorStatus::{Broken, Ready, Syncing};
        assert_eq!(refused(true, &[(one, Ready), (two, Ready)]), None);
        assert_eq!(refused(false, &[(one, Ready)]), None);
        let missing = "two has no mirror that its node knows of (wait)".to_owned();
        assert_eq!(refused(true, &[(one, Ready)]), Some((missing, vec![(two, Broken)])));
        let both = "one is being written over; two misses writes: its mirror broke off (wait)".to_owned();
        let states = vec![(one, Syncing), (two, Broken)];
        assert_eq!(refused(false, &states), Some((both, states)));
    }
}
