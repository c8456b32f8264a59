//! The journal of calls: what a node was asked to do, before it does it, and what it answered.
//!
//! Plain synchronous code, generic over its storage and without a clock, for hook runs and backend calls alike.
//!
//! ```text
//! (unknown) --begin--> Begun --answer--> Answered
//!     |                  | process of the daemon ends
//!     |                  v
//!     |                Lost --begin again, if the caller may repeat it--> Begun
//!     |                     --resume, if its work outlived the daemon--> Begun
//!     +--withdraw--> Withdrawn
//! ```
//!
//! A repeat of a call gets the first answer; the same id with other content is refused; an id that was said to be
//! unknown never starts afterwards, however late its request arrives.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::call_id::{CallId, RequestDigest};
use crate::call_store::{CallStore, Part, StoreError};
use crate::processes::ProcessId;

/// Format of the records.
const RECORD_VERSION: u32 = 1;
/// Ended calls are forgotten after this: no master asks for one so late.
const ENDED_AGE_MS_MAX: u64 = 7 * 24 * 3_600_000;
/// Beyond this many ended calls the oldest are forgotten; as many as a master can have queued.
const ENDED_CALLS_MAX: usize = 10_000;
/// Beyond this many bytes of answers the oldest are forgotten.
const ANSWERS_BYTES_MAX: u64 = 256 << 20;
/// The journal is looked over for old calls after this many have ended.
const PRUNE_AFTER_ENDED: u32 = 100;

/// A call as it arrives.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// Digest of its content.
    pub digest: RequestDigest,
    /// The job it is part of.
    pub job: u64,
    /// Where its processes write, if anywhere: what still writes there after a crash is ended.
    pub output_dir: Option<PathBuf>,
    /// What a repeat does when the first run was lost.
    pub on_lost: OnLost,
}

/// What a repeat of a lost call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLost {
    /// It is told that the call is lost (hooks: they may have had effects).
    Tell,
    /// It does the work again (backend calls: they may come twice).
    Repeat,
}

/// What the journal knows of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// It was begun, or taken up again, by this process and has no answer yet.
    Begun,
    /// It was begun and nobody will answer it.
    Lost,
    /// It was answered.
    Answered(String),
    /// It was said to be unknown and may not start any more.
    Withdrawn,
}

/// What follows from a begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// The call is journaled and to be carried out.
    New,
    /// It is not to be carried out.
    Known(Known),
}

/// A call that an earlier process began and did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostCall {
    /// Its id.
    pub id: CallId,
    /// The last process it was seen to start.
    pub process: Option<ProcessId>,
    /// Where its processes write.
    pub output_dir: Option<PathBuf>,
    /// Its job; none where the record is damaged, and the call can't be taken up again.
    pub job: Option<u64>,
}

/// Why the journal does not take a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The id stands for another request.
    #[error("call {id} was made before with other content")]
    OtherContent {
        /// The id.
        id: CallId,
    },
    /// The storage failed.
    #[error("could not use the call journal")]
    Store(#[from] StoreError),
    /// There is nothing to answer.
    #[error("call {id} is not begun")]
    NotBegun {
        /// The id.
        id: CallId,
    },
}

/// What is written of a call. The answer is a part of its own, so that opening the journal reads no answers.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    at_ms: u64,
    job: u64,
    /// None where the id was never seen with content.
    digest: Option<RequestDigest>,
    output_dir: Option<PathBuf>,
    state: RecordState,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordState {
    Begun,
    Answered { bytes: u64 },
    Withdrawn,
}

/// What is kept in memory of a call.
#[derive(Debug)]
struct Entry {
    digest: Option<RequestDigest>,
    job: u64,
    at_ms: u64,
    output_dir: Option<PathBuf>,
    state: EntryState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryState {
    Begun,
    Lost,
    Answered { bytes: u64 },
    Withdrawn,
}

/// The journal.
#[derive(Debug)]
pub struct Journal<S> {
    store: S,
    entries: BTreeMap<CallId, Entry>,
    ended_since_prune: u32,
}

impl<S: CallStore> Journal<S> {
    /// Opens the journal; calls that are begun in it are lost, since their process is gone.
    ///
    /// # Errors
    /// When the storage can't be read. A damaged record makes its call a lost one.
    pub fn open(store: S) -> Result<Self, JournalError> {
        let mut entries = BTreeMap::new();
        for (id, text) in store.records()? {
            let entry = entry_of(&text).unwrap_or_else(|why| {
                tracing::warn!(call = %id, %why, "a damaged record in the call journal: the call counts as lost");
                Entry { digest: None, job: 0, at_ms: 0, output_dir: None, state: EntryState::Lost }
            });
            entries.insert(id, entry);
        }
        Ok(Journal { store, entries, ended_since_prune: 0 })
    }

    /// The calls that are lost, with what is known of their processes.
    pub fn lost(&self) -> Vec<LostCall> {
        let lost = self.entries.iter().filter(|(_, entry)| entry.state == EntryState::Lost);
        lost.map(|(id, entry)| LostCall {
            id: id.clone(),
            process: self.recorded_process(id),
            output_dir: entry.output_dir.clone(),
            job: entry.digest.is_some().then_some(entry.job),
        })
        .collect()
    }

    fn recorded_process(&self, id: &CallId) -> Option<ProcessId> {
        serde_json::from_str(&self.store.read(id, Part::Process).ok()??).ok()
    }

    /// What is known of a call, with its content checked where that is given; `None` if nothing is.
    ///
    /// # Errors
    /// When the content differs or the storage fails.
    pub fn find(&self, id: &CallId, digest: Option<&RequestDigest>) -> Result<Option<Known>, JournalError> {
        let Some(entry) = self.entries.get(id) else {
            return Ok(None);
        };
        if let (Some(first), Some(given)) = (&entry.digest, digest)
            && first != given
        {
            return Err(JournalError::OtherContent { id: id.clone() });
        }
        Ok(Some(match entry.state {
            EntryState::Begun => Known::Begun,
            EntryState::Lost => Known::Lost,
            EntryState::Withdrawn => Known::Withdrawn,
            EntryState::Answered { .. } => match self.store.read(id, Part::Answer)? {
                Some(answer) => Known::Answered(answer),
                None => Known::Lost,
            },
        }))
    }

    /// Journals a call that is to be carried out now, unless something is known of it. Durable when it returns.
    ///
    /// # Errors
    /// When the content differs or the storage fails; nothing is to be carried out then.
    pub fn begin(&mut self, call: &Call, now_ms: u64) -> Result<Begin, JournalError> {
        match self.find(&call.id, Some(&call.digest))? {
            None => {}
            Some(Known::Lost) if call.on_lost == OnLost::Repeat => {}
            Some(known) => return Ok(Begin::Known(known)),
        }
        // The process of a lost run must not be taken for one of this run.
        self.store.remove_part(&call.id, Part::Process)?;
        self.write(
            &call.id,
            Entry {
                digest: Some(call.digest.clone()),
                job: call.job,
                at_ms: now_ms,
                output_dir: call.output_dir.clone(),
                state: EntryState::Begun,
            },
        )?;
        Ok(Begin::New)
    }

    /// Journals the answer of a begun call. Durable when it returns, and to be given only then.
    ///
    /// # Errors
    /// When the call is not begun or the storage fails.
    pub fn answer(&mut self, id: &CallId, answer: &str, now_ms: u64) -> Result<(), JournalError> {
        let Some(Entry { state: EntryState::Begun, digest, job, output_dir, .. }) = self.entries.get(id)
        else {
            return Err(JournalError::NotBegun { id: id.clone() });
        };
        let bytes = u64::try_from(answer.len()).unwrap_or(u64::MAX);
        let state = EntryState::Answered { bytes };
        let entry =
            Entry { digest: digest.clone(), job: *job, at_ms: now_ms, output_dir: output_dir.clone(), state };
        self.store.write(id, Part::Answer, answer)?;
        self.write(id, entry)?;
        self.store.remove_part(id, Part::Process)?;
        self.count_ended(now_ms)
    }

    /// Prunes when enough calls have ended since the last time.
    fn count_ended(&mut self, now_ms: u64) -> Result<(), JournalError> {
        self.ended_since_prune += 1;
        if self.ended_since_prune >= PRUNE_AFTER_ENDED { self.prune(now_ms) } else { Ok(()) }
    }

    /// Notes that a begun call will have no answer.
    pub fn lose(&mut self, id: &CallId) {
        if let Some(entry) = self.entries.get_mut(id)
            && entry.state == EntryState::Begun
        {
            entry.state = EntryState::Lost;
        }
    }

    /// Takes a lost call up again: its work outlived the process that began it and will be answered after all. False
    /// where the call is not lost, or its record is damaged.
    pub fn resume(&mut self, id: &CallId) -> bool {
        match self.entries.get_mut(id) {
            Some(entry) if entry.state == EntryState::Lost && entry.digest.is_some() => {
                entry.state = EntryState::Begun;
                true
            }
            Some(_) | None => false,
        }
    }

    /// What is known of an id; where nothing is, that is recorded first, and the id never starts afterwards.
    ///
    /// # Errors
    /// When the storage fails: nothing may be answered then.
    pub fn ask(&mut self, id: &CallId, now_ms: u64) -> Result<Known, JournalError> {
        if let Some(known) = self.find(id, None)? {
            return Ok(known);
        }
        let state = EntryState::Withdrawn;
        self.write(id, Entry { digest: None, job: 0, at_ms: now_ms, output_dir: None, state })?;
        self.count_ended(now_ms)?;
        Ok(Known::Withdrawn)
    }

    /// Sees to it that a call never begins: neither one that is not known, nor again one that was lost. What else is known
    /// of it stays as it is.
    ///
    /// # Errors
    /// When the storage fails: the call may begin then.
    pub fn withdraw(&mut self, id: &CallId, now_ms: u64) -> Result<Known, JournalError> {
        let known = self.ask(id, now_ms)?;
        if known != Known::Lost {
            return Ok(known);
        }
        let lost = self.entries.get(id);
        let (digest, job) = lost.map_or((None, 0), |entry| (entry.digest.clone(), entry.job));
        let state = EntryState::Withdrawn;
        self.write(id, Entry { digest, job, at_ms: now_ms, output_dir: None, state })?;
        Ok(Known::Withdrawn)
    }

    /// Forgets ended calls that are too old or too many; begun ones stay.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn prune(&mut self, now_ms: u64) -> Result<(), JournalError> {
        self.ended_since_prune = 0;
        let mut ended: Vec<(u64, CallId, u64)> = Vec::new();
        for (id, entry) in &self.entries {
            match entry.state {
                EntryState::Begun => {}
                EntryState::Lost | EntryState::Withdrawn => ended.push((entry.at_ms, id.clone(), 0)),
                EntryState::Answered { bytes } => ended.push((entry.at_ms, id.clone(), bytes)),
            }
        }
        ended.sort();
        let mut count = ended.len();
        let mut bytes: u64 = ended.iter().map(|(_, _, bytes)| bytes).sum();
        for (at_ms, id, answer_bytes) in ended {
            let is_old = now_ms.saturating_sub(at_ms) > ENDED_AGE_MS_MAX;
            if !is_old && count <= ENDED_CALLS_MAX && bytes <= ANSWERS_BYTES_MAX {
                continue;
            }
            self.remove(&id)?;
            count -= 1;
            bytes -= answer_bytes;
        }
        Ok(())
    }

    /// Forgets every call that is not begun: the node left its cluster, and another counts its jobs anew.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        let ended = self.entries.iter().filter(|(_, entry)| entry.state != EntryState::Begun);
        let ids: Vec<CallId> = ended.map(|(id, _)| id.clone()).collect();
        ids.iter().try_for_each(|id| self.remove(id))
    }

    fn remove(&mut self, id: &CallId) -> Result<(), JournalError> {
        self.store.remove(id)?;
        self.entries.remove(id);
        Ok(())
    }

    fn write(&mut self, id: &CallId, entry: Entry) -> Result<(), JournalError> {
        let record = Record {
            version: RECORD_VERSION,
            at_ms: entry.at_ms,
            job: entry.job,
            digest: entry.digest.clone(),
            output_dir: entry.output_dir.clone(),
            state: match entry.state {
                EntryState::Begun | EntryState::Lost => RecordState::Begun,
                EntryState::Answered { bytes } => RecordState::Answered { bytes },
                EntryState::Withdrawn => RecordState::Withdrawn,
            },
        };
        let text = serde_json::to_string(&record).map_err(StoreError::Encode)?;
        self.store.write(id, Part::Record, &text)?;
        self.entries.insert(id.clone(), entry);
        Ok(())
    }
}

/// The entry of a record written by an earlier process.
fn entry_of(text: &str) -> Result<Entry, String> {
    let record: Record = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if record.version != RECORD_VERSION {
        return Err(format!("version {} is not known", record.version));
    }
    Ok(Entry {
        digest: record.digest,
        job: record.job,
        at_ms: record.at_ms,
        output_dir: record.output_dir,
        state: match record.state {
            RecordState::Begun => EntryState::Lost,
            RecordState::Answered { bytes } => EntryState::Answered { bytes },
            RecordState::Withdrawn => EntryState::Withdrawn,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_store::FileStore;

    struct Node {
        dir: tempfile::TempDir,
    }

    impl Node {
        fn new() -> Self {
            Node { dir: tempfile::tempdir().unwrap() }
        }

        /// The journal as a daemon finds it that starts now, whatever happened to the one before.
        fn open(&self) -> Journal<FileStore> {
            Journal::open(FileStore::open(self.dir.path()).unwrap()).unwrap()
        }

        fn files(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.dir.path()).unwrap();
            let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    fn id(text: &str) -> CallId {
        CallId::parse(text).unwrap()
    }

    fn call(text: &str, content: &str) -> Call {
        let digest = RequestDigest::of(content.as_bytes());
        Call { id: id(text), digest, job: 17, output_dir: None, on_lost: OnLost::Tell }
    }

    #[test]
    fn a_repeat_gets_the_first_answer_also_after_a_restart() {
        let node = Node::new();
        let call = call("17/pre/1", "x");
        let mut journal = node.open();
        assert_eq!(journal.begin(&call, 1).unwrap(), Begin::New);
        assert_eq!(journal.begin(&call, 2).unwrap(), Begin::Known(Known::Begun));
        journal.answer(&call.id, "\"first\"", 3).unwrap();
        let answered = Begin::Known(Known::Answered("\"first\"".to_owned()));
        assert_eq!(journal.begin(&call, 4).unwrap(), answered);
        assert_eq!(node.open().begin(&call, 5).unwrap(), answered);
        assert!(matches!(journal.answer(&call.id, "second", 6), Err(JournalError::NotBegun { .. })));
    }

    #[test]
    fn the_same_id_with_other_content_is_refused_in_every_state() {
        let node = Node::new();
        let mut journal = node.open();
        let refused = |journal: &mut Journal<FileStore>| {
            let refusal = journal.begin(&call("17/pre/1", "y"), 9);
            assert!(matches!(refusal, Err(JournalError::OtherContent { .. })), "{refusal:?}");
        };
        journal.begin(&call("17/pre/1", "x"), 1).unwrap();
        refused(&mut journal);
        refused(&mut node.open());
        journal.answer(&id("17/pre/1"), "1", 2).unwrap();
        refused(&mut journal);
        refused(&mut node.open());
    }

    #[test]
    fn a_begun_call_is_lost_after_a_restart_and_only_told_so() {
        let node = Node::new();
        let call = Call { output_dir: Some("/out/17.pre.1".into()), ..call("17/pre/1", "x") };
        let process = ProcessId { pid: 7, start_ticks: 8, boot_id: "b".to_owned() };
        node.open().begin(&call, 1).unwrap();
        let store = FileStore::open(node.dir.path()).unwrap();
        store.write(&call.id, Part::Process, &serde_json::to_string(&process).unwrap()).unwrap();

        let mut journal = node.open();
        let lost = LostCall {
            id: call.id.clone(),
            process: Some(process),
            output_dir: call.output_dir.clone(),
            job: Some(17),
        };
        assert_eq!(journal.lost(), [lost]);
        assert_eq!(journal.begin(&call, 2).unwrap(), Begin::Known(Known::Lost));
        assert_eq!(journal.ask(&call.id, 2).unwrap(), Known::Lost);
        assert!(matches!(journal.answer(&call.id, "1", 3), Err(JournalError::NotBegun { .. })));
    }

    #[test]
    fn a_lost_call_whose_work_goes_on_is_begun_again_and_answered() {
        let node = Node::new();
        let call = call("17/pre/1", "x");
        node.open().begin(&call, 1).unwrap();
        let mut journal = node.open();
        assert!(journal.resume(&call.id));
        assert!(!journal.resume(&call.id), "it is not lost any more");
        assert_eq!(journal.begin(&call, 2).unwrap(), Begin::Known(Known::Begun));
        assert_eq!(journal.lost(), []);
        journal.answer(&call.id, "1", 3).unwrap();
        assert_eq!(node.open().begin(&call, 4).unwrap(), Begin::Known(Known::Answered("1".to_owned())));
        assert!(!node.open().resume(&call.id));
    }

    #[test]
    fn a_lost_call_that_may_come_twice_is_done_again() {
        let node = Node::new();
        let call = Call { on_lost: OnLost::Repeat, ..call("17/3/1", "x") };
        node.open().begin(&call, 1).unwrap();
        let mut journal = node.open();
        assert_eq!(journal.begin(&call, 2).unwrap(), Begin::New);
        journal.answer(&call.id, "1", 3).unwrap();
        assert_eq!(journal.begin(&call, 4).unwrap(), Begin::Known(Known::Answered("1".to_owned())));
    }

    #[test]
    fn an_id_said_to_be_unknown_never_starts() {
        let node = Node::new();
        let call = call("17/pre/1", "x");
        let mut journal = node.open();
        assert_eq!(journal.ask(&call.id, 1).unwrap(), Known::Withdrawn);
        assert_eq!(journal.begin(&call, 2).unwrap(), Begin::Known(Known::Withdrawn));
        assert_eq!(node.open().begin(&call, 3).unwrap(), Begin::Known(Known::Withdrawn));
    }

    #[test]
    fn a_lost_call_that_is_withdrawn_is_not_done_again() {
        let node = Node::new();
        let lost = Call { on_lost: OnLost::Repeat, ..call("17/0/1", "x") };
        let answered = call("17/1/1", "x");
        let mut journal = node.open();
        journal.begin(&lost, 1).unwrap();
        journal.begin(&answered, 1).unwrap();
        journal.answer(&answered.id, "1", 1).unwrap();
        assert_eq!(journal.withdraw(&lost.id, 2).unwrap(), Known::Begun, "it goes on");
        let mut journal = node.open();
        assert_eq!(journal.withdraw(&lost.id, 3).unwrap(), Known::Withdrawn);
        assert_eq!(journal.withdraw(&answered.id, 3).unwrap(), Known::Answered("1".to_owned()));
        assert_eq!(journal.withdraw(&id("17/2/1"), 3).unwrap(), Known::Withdrawn);
        for mut journal in [journal, node.open()] {
            assert_eq!(journal.begin(&lost, 4).unwrap(), Begin::Known(Known::Withdrawn));
        }
    }

    #[test]
    fn a_damaged_record_counts_as_lost() {
        for damage in ["", "{", "{\"version\":1}", "null"] {
            let node = Node::new();
            let call = call("17/pre/1", "x");
            node.open().begin(&call, 1).unwrap();
            std::fs::write(node.dir.path().join("17.pre.1.call"), damage).unwrap();
            assert_eq!(node.open().begin(&call, 2).unwrap(), Begin::Known(Known::Lost), "{damage:?}");
            assert!(!node.open().resume(&call.id), "{damage:?}");
            assert_eq!(node.open().lost()[0].job, None, "{damage:?}");
        }
    }

    #[test]
    fn an_answer_without_its_record_is_lost_not_answered() {
        // The daemon died between the two writes of `answer`.
        let node = Node::new();
        let call = call("17/pre/1", "x");
        node.open().begin(&call, 1).unwrap();
        FileStore::open(node.dir.path()).unwrap().write(&call.id, Part::Answer, "1").unwrap();
        assert_eq!(node.open().begin(&call, 2).unwrap(), Begin::Known(Known::Lost));
    }

    #[test]
    fn old_calls_are_forgotten_and_begun_ones_never() {
        let node = Node::new();
        let mut journal = node.open();
        journal.begin(&call("1/pre/1", "x"), 0).unwrap();
        journal.answer(&id("1/pre/1"), "1", 0).unwrap();
        journal.begin(&call("2/pre/1", "x"), 0).unwrap();
        journal.ask(&id("3/pre/1"), 0).unwrap();
        journal.begin(&call("4/pre/1", "x"), 0).unwrap();
        journal.answer(&id("4/pre/1"), "1", 1).unwrap();
        journal.prune(ENDED_AGE_MS_MAX + 1).unwrap();
        assert_eq!(node.files(), ["2.pre.1.call", "4.pre.1.answer", "4.pre.1.call"]);
    }

    #[test]
    fn clearing_forgets_all_but_what_runs() {
        let node = Node::new();
        let mut journal = node.open();
        journal.begin(&call("1/pre/1", "x"), 0).unwrap();
        journal.answer(&id("1/pre/1"), "1", 0).unwrap();
        journal.begin(&call("2/pre/1", "x"), 0).unwrap();
        journal.clear().unwrap();
        assert_eq!(journal.begin(&call("1/pre/1", "other"), 1).unwrap(), Begin::New);
        assert_eq!(journal.begin(&call("2/pre/1", "x"), 1).unwrap(), Begin::Known(Known::Begun));
    }
}
