//! A store in memory: the master's before there is a cluster, and the simulator's.

use super::{
    batch::{Batch, Records, Store, StoreError, check_epoch},
    keys,
};

/// Keeps records as long as the process lives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryStore {
    records: Records,
    commits: u64,
}

impl MemoryStore {
    /// A store with these records.
    pub fn new(records: Records) -> Self {
        Self { records, commits: 0 }
    }
}

impl Store for MemoryStore {
    fn load(&self) -> Result<Records, StoreError> {
        Ok(self.records.clone())
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        check_epoch(batch, self.records.get(keys::EPOCH).map(String::as_str))?;
        for key in &batch.deletes {
            self.records.remove(key);
        }
        self.records.extend(batch.puts.iter().cloned());
        self.commits += 1;
        Ok(())
    }

    fn commits(&self) -> u64 {
        self.commits
    }
}
