//! The master's store: in memory until there is a cluster, then a file, until the cluster is gone.
//!
//! So a denied `init` leaves nothing on disk. The commit that first holds the cluster's record makes the file, with
//! all that was in memory; the commit that deletes that record removes it, and only jobs stay, in memory.

use std::path::{Path, PathBuf};

use super::{
    batch::{Batch, Records, Store, StoreError},
    files::{DirectoryLock, directory_of, remove_database},
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

    /// Writes a copy of the store as it is now to another file. Refused where there is no cluster.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        match &self.state {
            State::File(file) => file.backup(to),
            State::Memory(_) => Err(StoreError::File {
                what: "copy",
                path: self.path.clone(),
                source: std::io::ErrorKind::NotFound.into(),
            }),
        }
    }

    /// The cluster's making: what was in memory becomes a file.
    fn commit_making(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let mut memory = MemoryStore::new(self.load()?);
        memory.commit(batch)?;
        self.state = State::File(SqliteStore::create(&self.path, &memory.load()?)?);
        Ok(())
    }

    /// The cluster's end: the file goes, the jobs stay in memory.
    fn commit_ending(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let kept = |key: &String| key.starts_with(keys::JOB) || batch.puts.iter().any(|(put, _)| put == key);
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
