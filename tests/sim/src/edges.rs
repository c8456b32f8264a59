//! Time and ids of a simulated master.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use muster_core::engine::Now;
use muster_master::driver::{Clock, Ids};
use uuid::Uuid;

use super::random::Random;

/// The simulation's time at its begin, ms since 1970.
const WALL_MS: u64 = 1_900_000_000_000;

/// The simulation's clock as a process sees it: its monotonic clock begins with it.
pub(crate) struct SimClock {
    pub(crate) now: Rc<Cell<u64>>,
    pub(crate) started_ms: u64,
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        Now { wall_ms: WALL_MS + self.now.get(), mono_ms: self.now.get() - self.started_ms }
    }
}

/// Ids from the seed.
#[derive(Clone)]
pub(crate) struct SimIds {
    random: Rc<RefCell<Random>>,
    /// A mutation: so few ids that they repeat.
    few: bool,
}

impl SimIds {
    pub(crate) fn new(seed: u64, few: bool) -> Self {
        SimIds { random: Rc::new(RefCell::new(Random::new(seed))), few }
    }

    fn number(&self) -> u64 {
        let number = self.random.borrow_mut().number();
        if self.few { number % 8 } else { number }
    }
}

impl Ids for SimIds {
    fn uuid(&mut self) -> Uuid {
        Uuid::from_u128((0xa5 << 120) | (u128::from(self.number()) << 16))
    }

    fn mac(&mut self) -> String {
        // Of the whole range: a drawn address that is taken is refused.
        let number = self.random.borrow_mut().number();
        format!("aa:00:00:{:02x}:{:02x}:{:02x}", number & 0xff, (number >> 8) & 0xff, (number >> 16) & 0xff)
    }
}
