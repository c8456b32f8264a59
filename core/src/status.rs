//! An instance's run state as its nodes see it, against the state wanted.

/// What the primary node says of an instance's guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestSeen {
    /// There is none.
    Absent,
    /// It runs.
    Running,
    /// It is stopped in the middle.
    Paused,
    /// Its own system shut it down.
    ShutDown,
    /// It ended, and neither its system nor the node ended it.
    Crashed,
}

/// What is known of an instance's guest at the moment.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Whether the primary is marked offline.
    pub primary_offline: bool,
    /// Whether the primary's state is known.
    pub primary_known: bool,
    /// What the primary says.
    pub on_primary: GuestSeen,
    /// Whether the guest runs on another node.
    pub elsewhere: bool,
}

/// The status that lists show, in Ganeti's words.
pub fn instance_status(up_wanted: bool, seen: Seen) -> &'static str {
    if seen.elsewhere {
        return "ERROR_wrongnode";
    }
    if seen.primary_offline {
        return "ERROR_nodeoffline";
    }
    if !seen.primary_known {
        return "ERROR_nodedown";
    }
    match seen.on_primary {
        GuestSeen::Running | GuestSeen::Paused if !up_wanted => "ERROR_up",
        GuestSeen::Running => "running",
        GuestSeen::Paused => "paused",
        // How it ended does not matter any more once it is wanted down.
        GuestSeen::Absent | GuestSeen::ShutDown | GuestSeen::Crashed if !up_wanted => "ADMIN_down",
        GuestSeen::Absent => "ERROR_down",
        GuestSeen::ShutDown => "USER_down",
        GuestSeen::Crashed => "ERROR_crashed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_has_its_word() {
        let known = Seen {
            primary_offline: false,
            primary_known: true,
            on_primary: GuestSeen::Absent,
            elsewhere: false,
        };
        for (on_primary, wanted_up, wanted_down) in [
            (GuestSeen::Absent, "ERROR_down", "ADMIN_down"),
            (GuestSeen::Running, "running", "ERROR_up"),
            (GuestSeen::Paused, "paused", "ERROR_up"),
            (GuestSeen::ShutDown, "USER_down", "ADMIN_down"),
            (GuestSeen::Crashed, "ERROR_crashed", "ADMIN_down"),
        ] {
            let seen = Seen { on_primary, ..known };
            assert_eq!(instance_status(true, seen), wanted_up);
            assert_eq!(instance_status(false, seen), wanted_down);
            for up in [true, false] {
                assert_eq!(instance_status(up, Seen { elsewhere: true, ..seen }), "ERROR_wrongnode");
                assert_eq!(instance_status(up, Seen { primary_offline: true, ..seen }), "ERROR_nodeoffline");
                assert_eq!(instance_status(up, Seen { primary_known: false, ..seen }), "ERROR_nodedown");
            }
        }
    }
}
