//! Locks: taken all at once, first come first served by name within a priority, shared or exclusive.
//!
//! Every name has one queue of all who hold it or want it: those who hold it first, then by priority, then in the order
//! they came. An entry is *clear* when no earlier entry of its queue conflicts with it; a job is *ready* when all its
//! entries are clear, and holds its locks from the moment it is granted. So a waiter can't be overtaken by a later one of
//! its priority that wants the same name, and nobody holds one lock while waiting for another: no deadlock. The clear
//! entries of a queue are its first ones: one exclusive, or a run of shared. A release costs what it changes, not the
//! length of the queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a name is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    /// Together with other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// The names that a job needs, each with its mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Locks(BTreeMap<String, LockMode>);

/// The lock that every operation on a part of the cluster holds shared.
const CLUSTER: &str = "cluster";

impl Locks {
    /// The whole cluster, alone.
    pub fn cluster() -> Self {
        Locks(BTreeMap::from([(CLUSTER.to_owned(), LockMode::Exclusive)]))
    }

    /// A part of the cluster; names are added.
    pub fn part() -> Self {
        Locks(BTreeMap::from([(CLUSTER.to_owned(), LockMode::Shared)]))
    }

    /// Adds a name held alone, for example `instance:web1`; wins over shared.
    #[must_use]
    pub fn exclusive(mut self, kind: &str, name: impl std::fmt::Display) -> Self {
        self.0.insert(format!("{kind}:{name}"), LockMode::Exclusive);
        self
    }

    /// Adds a name held together with others.
    #[must_use]
    pub fn shared(mut self, kind: &str, name: impl std::fmt::Display) -> Self {
        self.0.entry(format!("{kind}:{name}")).or_insert(LockMode::Shared);
        self
    }

    /// Whether both can't be held at once.
    pub fn conflicts(&self, other: &Locks) -> bool {
        self.iter().any(|(name, mode)| other.0.get(name).is_some_and(|theirs| conflict(mode, *theirs)))
    }

    /// Names and modes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, LockMode)> {
        self.0.iter().map(|(name, mode)| (name.as_str(), *mode))
    }
}

/// What a waiting job waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The lock's name.
    pub lock: String,
    /// The job that holds it, or waits for it from earlier on.
    pub by: u64,
    /// Whether that job holds it.
    pub held: bool,
}

fn conflict(one: LockMode, other: LockMode) -> bool {
    one == LockMode::Exclusive || other == LockMode::Exclusive
}

#[derive(Debug, Clone)]
struct Entry {
    job: u64,
    mode: LockMode,
    clear: bool,
}

/// Where an entry stands in its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// `None`, and so first, for one that is held.
    waiting: Option<i8>,
    sequence: u64,
}

#[derive(Debug, Clone)]
struct Place {
    rank: Rank,
    locks: Locks,
    /// Names in which the job is not clear yet.
    blocked: usize,
    granted: bool,
}

/// Who holds and who waits.
#[derive(Debug, Clone, Default)]
pub struct LockTable {
    sequence: u64,
    names: BTreeMap<String, BTreeMap<Rank, Entry>>,
    jobs: BTreeMap<u64, Place>,
    /// Jobs that could be granted their locks, by their order.
    ready: BTreeMap<Rank, u64>,
    holders: usize,
}

impl LockTable {
    /// Queues a job for its locks, behind all of its priority; a lower number goes first.
    pub fn request(&mut self, job: u64, priority: i8, locks: Locks) {
        assert!(!self.jobs.contains_key(&job), "job {job} asks for locks twice");
        self.sequence += 1;
        let rank = Rank { waiting: Some(priority), sequence: self.sequence };
        let mut blocked = 0;
        for (name, mode) in locks.iter() {
            let queue = self.names.entry(name.to_owned()).or_default();
            let clear = match (queue.range(..rank).next_back(), mode) {
                (None, _) => true,
                (Some((_, last)), LockMode::Shared) => last.clear && last.mode == LockMode::Shared,
                (Some(_), LockMode::Exclusive) => false,
            };
            blocked += usize::from(!clear);
            queue.insert(rank, Entry { job, mode, clear });
            // Those behind it that it conflicts with, and that nothing held up so far, wait for it now.
            let behind = queue.range_mut(rank..).skip(1).take_while(|(_, entry)| entry.clear);
            for (rank, entry) in behind.filter(|(_, entry)| conflict(mode, entry.mode)) {
                entry.clear = false;
                self.jobs.get_mut(&entry.job).expect("an entry's job has a place").blocked += 1;
                self.ready.remove(rank);
            }
        }
        if blocked == 0 {
            self.ready.insert(rank, job);
        }
        self.jobs.insert(job, Place { rank, locks, blocked, granted: false });
    }

    /// Gives the locks to at most `slots` jobs that nothing holds up any more: by priority, then first come first served.
    pub fn grant(&mut self, slots: usize) -> Vec<u64> {
        let mut granted = Vec::new();
        while granted.len() < slots
            && let Some((rank, job)) = self.ready.pop_first()
        {
            let place = self.jobs.get_mut(&job).expect("a ready job has a place");
            place.granted = true;
            place.rank = Rank { waiting: None, ..rank };
            for (name, _) in place.locks.iter() {
                let queue = self.names.get_mut(name).expect("a job's names have queues");
                let entry = queue.remove(&rank).expect("a job's entry is in its queue");
                queue.insert(place.rank, entry);
            }
            self.holders += 1;
            granted.push(job);
        }
        granted
    }

    /// Gives up what a job holds or waits for.
    pub fn release(&mut self, job: u64) {
        let Some(place) = self.jobs.remove(&job) else { return };
        self.ready.remove(&place.rank);
        self.holders -= usize::from(place.granted);
        for (name, _) in place.locks.iter() {
            let queue = self.names.get_mut(name).expect("a job's names have queues");
            let removed = queue.remove(&place.rank).expect("a job's entry is in its queue");
            for cleared in advance(queue, place.rank, &removed) {
                let waiter = self.jobs.get_mut(&cleared).expect("an entry's job has a place");
                waiter.blocked -= 1;
                if waiter.blocked == 0 {
                    self.ready.insert(waiter.rank, cleared);
                }
            }
            if queue.is_empty() {
                self.names.remove(name);
            }
        }
    }

    /// Whether a job holds its locks or waits for them.
    pub fn knows(&self, job: u64) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Whether a job was granted its locks.
    pub fn holds(&self, job: u64) -> bool {
        self.jobs.get(&job).is_some_and(|place| place.granted)
    }

    /// Number of jobs that hold locks.
    pub fn holders_count(&self) -> usize {
        self.holders
    }

    /// What a waiting job waits for; nothing for one that is ready or granted.
    pub fn waits_for(&self, job: u64) -> Option<Blocked> {
        let place = self.jobs.get(&job)?;
        place.locks.iter().find_map(|(name, mode)| {
            let queue = &self.names[name];
            if queue[&place.rank].clear {
                return None;
            }
            let mut earlier = queue.range(..place.rank).rev();
            let (_, by) = earlier.find(|(_, entry)| conflict(mode, entry.mode) || !entry.clear)?;
            Some(Blocked { lock: name.to_owned(), by: by.job, held: self.holds(by.job) })
        })
    }

    /// All jobs that must give up their locks, or their place before this one, before it can have its own.
    pub fn waits_for_all(&self, job: u64) -> Vec<u64> {
        let Some(place) = self.jobs.get(&job) else { return Vec::new() };
        if place.granted { Vec::new() } else { self.before(&place.locks, place.rank) }
    }

    /// The same for a job that would ask now.
    pub fn would_wait_for(&self, priority: i8, locks: &Locks) -> Vec<u64> {
        self.before(locks, Rank { waiting: Some(priority), sequence: u64::MAX })
    }

    fn before(&self, locks: &Locks, rank: Rank) -> Vec<u64> {
        let mut jobs: Vec<u64> = Vec::new();
        for (name, mode) in locks.iter() {
            let earlier = self.names.get(name).into_iter().flat_map(|queue| queue.range(..rank));
            jobs.extend(earlier.filter(|(_, e)| conflict(mode, e.mode) || !e.clear).map(|(_, e)| e.job));
        }
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }

    /// Jobs that hold locks, with them.
    pub fn holders(&self) -> impl Iterator<Item = (u64, &Locks)> {
        self.jobs.iter().filter(|(_, place)| place.granted).map(|(job, place)| (*job, &place.locks))
    }

    /// Invariant: no two holders conflict.
    ///
    /// # Errors
    /// Names the two jobs and the lock.
    pub fn check(&self) -> Result<(), String> {
        let mut seen: BTreeMap<&str, (u64, LockMode)> = BTreeMap::new();
        for (job, locks) in self.holders() {
            for (name, mode) in locks.iter() {
                if let Some((other, theirs)) = seen.insert(name, (job, mode))
                    && conflict(mode, theirs)
                {
                    return Err(format!("jobs {other} and {job} both hold {name}"));
                }
            }
        }
        Ok(())
    }
}

/// Marks what became clear in a queue by a removal; returns those jobs.
fn advance(queue: &mut BTreeMap<Rank, Entry>, rank: Rank, removed: &Entry) -> Vec<u64> {
    let before = queue.range(..rank).next_back().map(|(_, entry)| (entry.mode, entry.clear));
    let mut cleared = Vec::new();
    match (before, removed.mode) {
        // Behind a shared run that is clear, more shared ones join it when an exclusive one gives up.
        (Some((LockMode::Shared, true)), LockMode::Exclusive) => {
            clear_shared(queue.range_mut(rank..), &mut cleared);
        }
        (Some(_), LockMode::Shared | LockMode::Exclusive) => {}
        (None, LockMode::Shared | LockMode::Exclusive) => match queue.values_mut().next() {
            Some(first) if first.mode == LockMode::Exclusive && !first.clear => {
                first.clear = true;
                cleared.push(first.job);
            }
            Some(first) if !first.clear => clear_shared(queue.range_mut(..), &mut cleared),
            Some(_) | None => {}
        },
    }
    cleared
}

fn clear_shared<'a>(entries: impl Iterator<Item = (&'a Rank, &'a mut Entry)>, cleared: &mut Vec<u64>) {
    for (_, entry) in entries.take_while(|(_, entry)| entry.mode == LockMode::Shared && !entry.clear) {
        entry.clear = true;
        cleared.push(entry.job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(name: &str) -> Locks {
        Locks::part().exclusive("instance", name)
    }

    fn table(requests: Vec<Locks>) -> LockTable {
        let mut table = LockTable::default();
        for (index, locks) in requests.into_iter().enumerate() {
            table.request(u64::try_from(index).unwrap() + 1, 0, locks);
        }
        table
    }

    #[test]
    fn disjoint_names_side_by_side_equal_names_in_turn() {
        let mut table = table(vec![instance("a"), instance("b"), instance("a")]);
        assert_eq!(table.grant(9), vec![1, 2]);
        let blocked = table.waits_for(3).unwrap();
        assert_eq!((blocked.lock.as_str(), blocked.by, blocked.held), ("instance:a", 1, true));
        table.release(1);
        assert_eq!(table.grant(9), vec![3]);
        table.check().unwrap();
    }

    #[test]
    fn a_waiter_is_not_overtaken() {
        let mut table = table(vec![instance("a"), Locks::cluster(), instance("b")]);
        assert_eq!(table.grant(9), vec![1], "3 came after 2, which wants everything");
        table.release(1);
        assert_eq!(table.grant(9), vec![2]);
        table.release(2);
        assert_eq!(table.grant(9), vec![3]);
    }

    #[test]
    fn a_waiter_can_give_up() {
        let mut table = table(vec![instance("a"), Locks::cluster(), instance("b"), instance("c")]);
        assert_eq!(table.grant(9), vec![1]);
        table.release(2);
        assert_eq!(table.grant(9), vec![3, 4]);
    }

    #[test]
    fn shared_holders_share() {
        let node = |mode: LockMode| match mode {
            LockMode::Shared => Locks::part().shared("node", "n"),
            LockMode::Exclusive => Locks::part().exclusive("node", "n"),
        };
        let mut table = table(vec![
            node(LockMode::Shared),
            node(LockMode::Shared),
            node(LockMode::Exclusive),
            node(LockMode::Shared),
        ]);
        assert_eq!(table.grant(9), vec![1, 2]);
        table.release(1);
        assert_eq!(table.grant(9), Vec::<u64>::new());
        table.release(2);
        assert_eq!(table.grant(9), vec![3]);
        assert_eq!(table.waits_for(4).unwrap().by, 3);
    }

    #[test]
    fn slots_bound_a_grant() {
        let mut table = table((0..5).map(|i| instance(&i.to_string())).collect());
        assert_eq!(table.grant(2), vec![1, 2]);
        assert_eq!(table.grant(2), vec![3, 4]);
        assert_eq!(table.waits_for(5), None, "it waits for a slot, not for a lock");
    }

    #[test]
    fn priority_goes_before_those_who_wait_and_not_before_those_who_hold() {
        let mut table = table(vec![instance("a"), instance("a"), instance("b")]);
        assert_eq!(table.grant(1), vec![1]);
        table.request(9, -10, instance("a"));
        table.request(8, 10, instance("c"));
        assert_eq!(table.waits_for(9).unwrap().by, 1);
        assert_eq!(table.waits_for(2).unwrap().by, 9);
        table.request(7, -1, instance("b"));
        assert_eq!(table.grant(1), vec![7], "a free slot goes to the first by priority");
        table.release(1);
        assert_eq!(table.grant(9), vec![9, 8]);
        assert_eq!(table.waits_for_all(2), vec![9]);
        assert_eq!(table.would_wait_for(0, &instance("a")), vec![2, 9]);
        assert_eq!(table.would_wait_for(-20, &instance("a")), vec![9]);
    }

    /// Against a model that decides each grant by looking at all requests that go before.
    #[test]
    fn random_requests_agree_with_a_plain_model() {
        let mut random: u64 = 7;
        let mut draw = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let mut table = LockTable::default();
        // In the order in which they go: who holds first, then by priority, then as they came.
        let mut model: Vec<((bool, u64, u64), Locks)> = Vec::new();
        for job in 0..3000 {
            let mut locks = if draw(20) == 0 { Locks::cluster() } else { Locks::part() };
            for _ in 0..draw(3) {
                let name = draw(4);
                locks = if draw(2) == 0 { locks.shared("n", name) } else { locks.exclusive("n", name) };
            }
            let priority = draw(3);
            table.request(job, i8::try_from(priority).unwrap(), locks.clone());
            model.push(((true, priority, job), locks));
            model.sort_by_key(|(order, _)| *order);
            if model.len() > 12 {
                let gone = usize::try_from(draw(12)).unwrap();
                table.release(model.remove(gone).0.2);
            }
            let mut expected = Vec::new();
            let slots = usize::try_from(draw(3)).unwrap();
            for index in 0..model.len() {
                let free = model[..index].iter().all(|(_, earlier)| !model[index].1.conflicts(earlier));
                if free && model[index].0.0 && expected.len() < slots {
                    expected.push(model[index].0.2);
                }
            }
            for (order, _) in model.iter_mut().filter(|(order, _)| expected.contains(&order.2)) {
                *order = (false, 0, order.2);
            }
            model.sort_by_key(|(order, _)| *order);
            assert_eq!(table.grant(slots), expected);
            table.check().unwrap();
        }
    }
}
