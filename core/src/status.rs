//! An instance's run state as its nodes see it, against the state wanted.

use crate::names::NodeName;

/// What is known of an instance's guest at the moment.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The instance's primary node.
    pub primary: &'a NodeName,
    /// Whether the primary is marked offline.
    pub primary_offline: bool,
    /// Whether the primary's state is known.
    pub primary_known: bool,
    /// Nodes on which the guest runs.
    pub running_on: &'a [NodeName],
}

/// The status that lists show, in Ganeti's words.
pub fn instance_status(up_wanted: bool, seen: Seen<'_>) -> &'static str {
    let on_primary = seen.running_on.contains(seen.primary);
    if seen.running_on.iter().any(|node| node != seen.primary) {
        return "ERROR_wrongnode";
    }
    if seen.primary_offline {
        return "ERROR_nodeoffline";
    }
    if !seen.primary_known {
        return "ERROR_nodedown";
    }
    match (up_wanted, on_primary) {
        (true, true) => "running",
        (true, false) => "ERROR_down",
        (false, true) => "ERROR_up",
        (false, false) => "ADMIN_down",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_has_its_word() {
        let (a, b) = (NodeName::parse("a").unwrap(), NodeName::parse("b").unwrap());
        let check = |up, offline, known, on: &[NodeName], expected| {
            let seen = Seen { primary: &a, primary_offline: offline, primary_known: known, running_on: on };
            assert_eq!(instance_status(up, seen), expected);
        };
        check(true, false, true, std::slice::from_ref(&a), "running");
        check(true, false, true, &[], "ERROR_down");
        check(false, false, true, std::slice::from_ref(&a), "ERROR_up");
        check(false, false, true, &[], "ADMIN_down");
        check(true, false, true, &[b], "ERROR_wrongnode");
        check(true, true, true, &[], "ERROR_nodeoffline");
        check(true, false, false, &[], "ERROR_nodedown");
    }
}
