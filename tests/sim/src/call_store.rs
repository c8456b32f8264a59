//! The storage under a node's call journal: in memory, with crashes at any write and a full disk.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io,
    rc::Rc,
};

use muster_hooksrv::{CallId, CallStore, Part, StoreError};

/// Parts of calls; a clone is the same storage.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryCalls {
    parts: Rc<RefCell<BTreeMap<(CallId, Part), String>>>,
    /// Writes until the node dies in one.
    dies_in: Rc<Cell<Option<u32>>>,
    died: Rc<Cell<bool>>,
    full: Rc<Cell<bool>>,
}

impl MemoryCalls {
    /// The node dies in the n-th write from now on, before or after it.
    pub(crate) fn die_in(&self, writes: u32) {
        self.dies_in.set(Some(writes));
    }

    /// Whether the node has died in a write.
    pub(crate) fn has_died(&self) -> bool {
        self.died.get()
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.full.set(full);
    }

    /// What a new daemon finds: everything but what was never durable.
    pub(crate) fn restart(&self) {
        self.died.set(false);
        self.dies_in.set(None);
        self.parts.borrow_mut().retain(|(_, part), _| *part != Part::Process);
    }

    /// Passes one write; an error when the node is dead.
    fn pass(&self) -> io::Result<()> {
        if let Some(left) = self.dies_in.get() {
            self.dies_in.set(left.checked_sub(1));
            if left == 0 {
                self.died.set(true);
            }
        }
        if self.died.get() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

fn failed(source: io::Error) -> StoreError {
    StoreError::File { verb: "write", path: "simulated journal".into(), source }
}

impl CallStore for MemoryCalls {
    fn records(&self) -> Result<Vec<(CallId, String)>, StoreError> {
        let parts = self.parts.borrow();
        let records = parts.iter().filter(|((_, part), _)| *part == Part::Record);
        Ok(records.map(|((id, _), text)| (id.clone(), text.clone())).collect())
    }

    fn write(&self, id: &CallId, part: Part, text: &str) -> Result<(), StoreError> {
        self.pass().map_err(failed)?;
        if self.full.get() {
            return Err(failed(io::ErrorKind::StorageFull.into()));
        }
        self.parts.borrow_mut().insert((id.clone(), part), text.to_owned());
        self.pass().map_err(failed)
    }

    fn read(&self, id: &CallId, part: Part) -> Result<Option<String>, StoreError> {
        Ok(self.parts.borrow().get(&(id.clone(), part)).cloned())
    }

    fn remove_part(&self, id: &CallId, part: Part) -> Result<(), StoreError> {
        self.pass().map_err(failed)?;
        self.parts.borrow_mut().remove(&(id.clone(), part));
        Ok(())
    }
}
