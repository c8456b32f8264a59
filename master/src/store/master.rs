//! The master's store: in memory until there is a cluster, then a file, until the cluster is gone.
//!
//! So a denied `init` leaves nothing on disk. The commit that first holds the cluster's record makes the file, with
//! all that was in memory; the commit that deletes that record removes it, archive included, and only jobs stay, in
//! memory.

use std::path::{Path, PathBuf};

use super::{
    batch::{Batch, Records, Store, StoreError},
    files::{DirectoryLock, directory_of, remove_database, remove_leftovers},
    keys,
    memory::MemoryStore,
    sqlite::SqliteStore,
};

/// The master's store.
pub struct MasterStore {
    path: PathBuf,
    state: State,
    /// Two masters on one directory would each think the other's file theirs, in memory as well.
    _lock: DirectoryLock,
}

enum State {
    Memory(MemoryStore),
    File(SqliteStore),
}

impl MasterStore {
    /// Opens the file, or begins in memory where there is none. The file's directory is made and locked.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let lock = DirectoryLock::take(directory_of(path))?;
        remove_leftovers(path)?;
        let there = path.try_exists();
        let there =
            there.map_err(|source| StoreError::File { what: "look for", path: path.to_owned(), source })?;
        let state = if there { open_file(path)? } else { State::Memory(MemoryStore::default()) };
        Ok(Self { path: path.to_owned(), state, _lock: lock })
    }

    /// Whether commits are durable: from the cluster's making to its end.
    pub fn is_durable(&self) -> bool {
        match self.state {
            State::Memory(_) => false,
            State::File(_) => true,
        }
    }

    /// The file, also while there is none.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cluster's making: what was in memory becomes a file.
    fn commit_making(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let mut memory = match &self.state {
            State::Memory(memory) => memory.clone(),
            State::File(file) => MemoryStore::new(file.load()?),
        };
        memory.commit(batch)?;
        let mut file = SqliteStore::create(&self.path, &memory.load()?)?;
        if memory.archived_count() > 0 {
            // Jobs from before the cluster; they were in this process's memory only, and a crash takes no more than that.
            file.commit(&Batch::archiving(memory.archived_after("", usize::MAX)?))?;
        }
        self.state = State::File(file);
        Ok(())
    }

    /// The cluster's end: the file goes, the jobs stay in memory.
    fn commit_ending(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let kept = |key: &String| {
            key.starts_with(keys::JOB)
                || key == keys::NEXT_JOB
                || batch.puts.iter().any(|(put, _)| put == key)
        };
        let gone = self.load()?.into_keys().filter(|key| !kept(key));
        let batch = Batch { deletes: gone.chain(batch.deletes.iter().cloned()).collect(), ..batch.clone() };
        // First in the file: if this process dies before the file is removed, the next one finds no cluster in it.
        self.commit_here(&batch)?;
        let memory = State::Memory(MemoryStore::new(self.load()?));
        if let State::File(file) = std::mem::replace(&mut self.state, memory) {
            file.close()?;
            remove_database(&self.path)?;
        }
        Ok(())
    }

    fn commit_here(&mut self, batch: &Batch) -> Result<(), StoreError> {
        match &mut self.state {
            State::Memory(memory) => memory.commit(batch),
            State::File(file) => file.commit(batch),
        }
    }
}

impl Store for MasterStore {
    fn load(&self) -> Result<Records, StoreError> {
        match &self.state {
            State::Memory(memory) => memory.load(),
            State::File(file) => file.load(),
        }
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let has_cluster = batch.puts.iter().any(|(key, _)| key == keys::CLUSTER);
        if has_cluster && !self.is_durable() {
            self.commit_making(batch)
        } else if !has_cluster && batch.deletes.iter().any(|key| key == keys::CLUSTER) {
            self.commit_ending(batch)
        } else {
            self.commit_here(batch)
        }
    }

    fn commits(&self) -> u64 {
        match &self.state {
            State::Memory(memory) => memory.commits(),
            State::File(file) => file.commits(),
        }
    }

    fn archived_count(&self) -> u64 {
        match &self.state {
            State::Memory(memory) => memory.archived_count(),
            State::File(file) => file.archived_count(),
        }
    }

    fn archived(&self, key: &str) -> Result<Option<String>, StoreError> {
        match &self.state {
            State::Memory(memory) => memory.archived(key),
            State::File(file) => file.archived(key),
        }
    }

    fn archived_keys(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        match &self.state {
            State::Memory(memory) => memory.archived_keys(limit),
            State::File(file) => file.archived_keys(limit),
        }
    }

    fn archived_after(&self, key: &str, limit: usize) -> Result<Vec<(String, String)>, StoreError> {
        match &self.state {
            State::Memory(memory) => memory.archived_after(key, limit),
            State::File(file) => file.archived_after(key, limit),
        }
    }
}

/// A file without a cluster is what a crash left of a cluster that was destroyed.
fn open_file(path: &Path) -> Result<State, StoreError> {
    let file = SqliteStore::open(path)?;
    if file.load()?.contains_key(keys::CLUSTER) {
        return Ok(State::File(file));
    }
    tracing::info!(path = %path.display(), "the store of a destroyed cluster is removed");
    file.close()?;
    remove_database(path)?;
    Ok(State::Memory(MemoryStore::default()))
}
