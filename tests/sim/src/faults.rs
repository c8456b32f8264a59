//! What goes wrong from outside: daemons die and freeze, networks are cut, connections break, disks are full.

use super::{
    channel::SILENCE_MS,
    event::{Event, NodeId},
    world::Simulation,
};

impl Simulation {
    /// One thing goes wrong.
    pub(crate) fn fault_acts(&mut self) {
        let node = self.context.random.index(self.nodes.len());
        match self.context.random.below(100) {
            0..22 => self.crash_node(node),
            22..25 => self.crash_machine(node),
            25..40 => {
                // In one of the journal's next writes.
                let writes = u32::try_from(self.context.random.below(8)).expect("small");
                self.nodes[node].die_in(writes);
            }
            40..55 => self.freeze_node(node),
            55..70 => self.cut_node(node),
            70..85 => self.break_link(node, 0),
            85..90 => {
                let full = self.context.random.permille(500);
                self.nodes[node].set_full(full);
            }
            _ => self.kill_master("from outside"),
        }
    }

    fn crash_node(&mut self, node: NodeId) {
        if self.nodes[node].up {
            self.nodes[node].crash(&mut self.context);
            self.see_boot();
        }
    }

    /// A machine other than the master's stops and comes back.
    fn crash_machine(&mut self, node: NodeId) {
        if node == 0 || !self.nodes[node].up {
            return;
        }
        self.context.log(|| format!("node{} loses its power for a moment", node + 1));
        let guests = self.nodes[node].machine_stops(&mut self.context);
        self.guests_lost.extend(guests);
        self.see_boot();
    }

    /// Follows daemons that died: their connections break at once, and most are started again soon.
    pub(crate) fn see_boot(&mut self) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].up || self.boots_seen[node] == self.nodes[node].boot {
                continue;
            }
            self.boots_seen[node] = self.nodes[node].boot;
            self.deaths += 1;
            let delay_ms = self.context.random.range(0, 20);
            self.break_link(node, delay_ms);
            let delay_ms = if self.context.fault(300) {
                self.context.random.range(5_000, 60_000)
            } else {
                self.context.random.range(50, 2_500)
            };
            self.context.after(delay_ms, Event::NodeStarts(node));
        }
    }

    fn freeze_node(&mut self, node: NodeId) {
        if !self.nodes[node].up || self.nodes[node].frozen {
            return;
        }
        self.context.log(|| format!("node{} freezes", node + 1));
        self.nodes[node].freeze(self.context.now());
        self.silence(node);
        let delay_ms = self.context.random.range(200, 50_000);
        self.context.after(delay_ms, Event::Thaws(node));
    }

    fn cut_node(&mut self, node: NodeId) {
        // The master reaches its own host's node by a socket, which nothing cuts.
        if node == 0 || self.nodes[node].cut {
            return;
        }
        self.context.log(|| format!("node{} is cut off", node + 1));
        self.nodes[node].cut = true;
        self.silence(node);
        let delay_ms = self.context.random.range(200, 50_000);
        self.context.after(delay_ms, Event::Heals(node));
    }

    fn silence(&mut self, node: NodeId) {
        let (low, high) = SILENCE_MS;
        let delay_ms = self.context.random.range(low, high);
        self.break_link(node, delay_ms);
    }

    pub(crate) fn node_starts(&mut self, node: NodeId) {
        if !self.nodes[node].up && !self.nodes[node].fenced {
            self.nodes[node].start(&mut self.context);
        }
    }

    pub(crate) fn thaw(&mut self, node: NodeId) {
        if !self.nodes[node].frozen {
            return;
        }
        self.context.log(|| format!("node{} thaws", node + 1));
        self.nodes[node].reachable_since_ms = self.context.now();
        if self.nodes[node].thaw(self.context.now(), self.connections) {
            self.break_link(node, 1);
        }
        for delivery in std::mem::take(&mut self.nodes[node].inbox) {
            self.deliver(delivery);
        }
    }

    pub(crate) fn heal(&mut self, node: NodeId) {
        self.context.log(|| format!("node{} is not cut off", node + 1));
        if self.nodes[node].cut {
            self.nodes[node].reachable_since_ms = self.context.now();
        }
        self.nodes[node].cut = false;
    }

    pub(crate) fn take_power(&mut self, node: NodeId) {
        if self.nodes[node].fenced {
            return;
        }
        self.context.log(|| format!("node{} has no power", node + 1));
        let guests = self.nodes[node].power_off(&mut self.context);
        self.guests_lost.extend(guests);
        self.see_boot();
    }

    pub(crate) fn give_power(&mut self, node: NodeId) {
        if self.nodes[node].fenced {
            self.nodes[node].fenced = false;
            self.context.after(10, Event::NodeStarts(node));
        }
    }

    /// The end of the safety phase: all heals, but for nodes that are marked offline.
    pub(crate) fn heal_all(&mut self) {
        self.context.log(|| "all heals".to_owned());
        self.context.faults_on = false;
        self.zombie = None;
        self.context.retain(|event| !matches!(event, Event::Act | Event::ZombieActs));
        for node in 0..self.nodes.len() {
            self.nodes[node].set_full(false);
            self.nodes[node].heal_journals();
            self.nodes[node].fenced = false;
            self.heal(node);
            self.thaw(node);
            if !self.nodes[node].up {
                self.context.after(100, Event::NodeStarts(node));
            }
        }
        if self.process.is_none() {
            self.context.after(100, Event::MasterStarts);
        }
        self.open_queue();
    }
}
