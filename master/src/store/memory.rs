//! A store in memory: the master's before there is a cluster, and the simulator's.

use std::ops::Bound;

use super::{
    batch::{Batch, Records, Store, StoreError, check_epoch},
    keys,
};

/// Keeps records as long as the process lives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryStore {
    records: Records,
    archive: Records,
    commits: u64,
}

impl MemoryStore {
    /// A store with these records.
    pub fn new(records: Records) -> Self {
        Self { records, ..Self::default() }
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
        for key in &batch.archives {
            self.archive.extend(self.records.remove_entry(key));
        }
        self.commits += 1;
        Ok(())
    }

    fn commits(&self) -> u64 {
        self.commits
    }

    fn archived_count(&self) -> u64 {
        u64::try_from(self.archive.len()).unwrap_or(u64::MAX)
    }

    fn archived(&self, key: &str) -> Result<Option<String>, StoreError> {
        Ok(self.archive.get(key).cloned())
    }

    fn archived_keys(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        Ok(self.archive.keys().rev().take(limit).cloned().collect())
    }

    fn archived_after(&self, key: &str, limit: usize) -> Result<Vec<(String, String)>, StoreError> {
        let after = (Bound::Excluded(key.to_owned()), Bound::Unbounded);
        let page = self.archive.range(after).take(limit);
        Ok(page.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}
