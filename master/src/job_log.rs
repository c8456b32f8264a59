//! Jobs in the log, under the target `muster.job.timing`, and in the files of `last/`: the last failure's message, and the nodes
//! that the last successful job worked on.
//!
//! A thread of its own writes both, behind the driver: a slow disk delays no job. Its queue is bounded, what does not fit is
//! left out and counted; of several jobs that ended while it wrote, the files have the last.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use muster_core::{engine::Job, names::NodeName, summary};

/// Notes that wait for the thread: with a disk that hangs, the log lacks what comes after.
const NOTES_MAX: usize = 2_000;
/// Notes taken together before files are written.
const GROUP_MAX: usize = 200;
/// A daemon that ends waits no longer for the thread: its disk may hang.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// A lock here is held for moments.
const A_LOCK: &str = "no holder of this lock panics";
/// What `RUST_LOG` calls the lines.
const TARGET: &str = "muster.job.timing";

/// The name of the last failure's file.
const FAILURE: &str = "last-failure-message";
/// The name of the file of nodes.
const UPDATED: &str = "last-updated-nodes";

/// Where jobs are told. Clones share the thread.
#[derive(Clone)]
pub(crate) struct JobLog {
    /// None when it is closed.
    notes: Arc<Mutex<Option<SyncSender<Note>>>>,
    /// Tells when the thread is gone.
    ended: Arc<Mutex<Receiver<()>>>,
    left_out: Arc<AtomicU64>,
}

enum Note {
    Began(Arc<Job>),
    Ended(Arc<Job>),
}

impl JobLog {
    /// Starts the thread; `directory` is where the files go, and made when there is one. Without a store there are none: a
    /// denied init leaves nothing on disk.
    ///
    /// # Errors
    /// When the thread can't be made.
    pub(crate) fn start(store: PathBuf, directory: PathBuf, master: NodeName) -> io::Result<Self> {
        let (notes, waiting) = sync_channel(NOTES_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let counted = left_out.clone();
        let places = Places { store, directory };
        let (ends, ended) = sync_channel(1);
        let write = move || {
            write_all(&waiting, &places, &master, &counted);
            // Who closes the log may have given up.
            ends.try_send(()).unwrap_or_default();
        };
        thread::Builder::new().name("job-log".to_owned()).spawn(write)?;
        Ok(Self::new(notes, ended, left_out))
    }

    fn new(notes: SyncSender<Note>, ended: Receiver<()>, left_out: Arc<AtomicU64>) -> Self {
        JobLog { notes: Arc::new(Mutex::new(Some(notes))), ended: Arc::new(Mutex::new(ended)), left_out }
    }

    /// Waits until all that was told is written, or for a moment. Blocks.
    pub(crate) fn close(&self) {
        drop(self.notes.lock().expect(A_LOCK).take());
        if self.ended.lock().expect(A_LOCK).recv_timeout(CLOSE_LIMIT).is_err() {
            tracing::warn!("the last jobs' lines and files are perhaps not written: the disk takes long");
        }
    }

    /// A job has changed. Never waits.
    pub(crate) fn changed(&self, before: Option<&Job>, now: &Arc<Job>) {
        let has_begun = |job: &Job| job.started_ms.is_some();
        let is_done = before.is_some_and(Job::done);
        if now.done() && !is_done {
            if !before.is_some_and(has_begun) {
                self.note(Note::Began(now.clone()));
            }
            self.note(Note::Ended(now.clone()));
        } else if has_begun(now) && !before.is_some_and(has_begun) {
            self.note(Note::Began(now.clone()));
        }
    }

    fn note(&self, note: Note) {
        let notes = self.notes.lock().expect(A_LOCK);
        if notes.as_ref().is_none_or(|notes| notes.try_send(note).is_err()) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Where things are.
struct Places {
    store: PathBuf,
    directory: PathBuf,
}

/// The files that jobs lead to; of each the last.
#[derive(Default)]
struct Files {
    failure: Option<String>,
    updated: Option<String>,
}

impl Files {
    fn take(&mut self, job: &Job, master: &NodeName) {
        self.failure = summary::failure_text(job).or(self.failure.take());
        self.updated = summary::updated_nodes_text(job, master).or(self.updated.take());
    }

    fn write(self, places: &Places) {
        let directory = &places.directory;
        if !places.store.exists() {
            return;
        }
        for (name, text) in [(FAILURE, self.failure), (UPDATED, self.updated)] {
            let Some(text) = text else { continue };
            if let Err(error) = replace(directory, name, &text) {
                tracing::warn!(%error, path = %directory.join(name).display(), "a file on the last job was not written");
            }
        }
    }
}

/// Writes until all who tell of jobs are gone.
fn write_all(waiting: &Receiver<Note>, places: &Places, master: &NodeName, left_out: &AtomicU64) {
    while let Ok(first) = waiting.recv() {
        let mut files = Files::default();
        for note in std::iter::once(first).chain(waiting.try_iter().take(GROUP_MAX)) {
            match note {
                Note::Began(job) => tracing::info!(target: TARGET, "{}", summary::start_line(&job)),
                Note::Ended(job) => {
                    for line in summary::timing_lines(&job) {
                        tracing::info!(target: TARGET, "{line}");
                    }
                    tracing::info!(target: TARGET, "{}", summary::end_line(&job));
                    files.take(&job, master);
                }
            }
        }
        files.write(places);
        let left_out = left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            tracing::warn!(left_out, "jobs came faster than they could be logged; some lines are left out");
        }
    }
}

/// Puts a text in a file's place by one rename; what was there is kept beside it. At each moment the file is there, whole.
fn replace(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let file = |suffix: &str| directory.join(format!("{name}{suffix}"));
    let (new, path, kept, old) = (file(".new"), file(""), file(".old.new"), file(".old"));
    for left in [&new, &kept] {
        remove(left)?;
    }
    let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    written.write_all(text.as_bytes())?;
    // A name whose content is not there yet would be an empty file after a crash of the host.
    written.sync_all()?;
    match fs::hard_link(&path, &kept) {
        Ok(()) => fs::rename(&kept, &old)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::rename(&new, &path)?;
    File::open(directory)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::read_to_string;

    use muster_core::{
        engine::{ErrorKind, JobError, Outcome, Phase},
        names::InstanceName,
        ops::{InstanceStart, Op, examples},
    };

    use super::*;

    fn job(id: u64, outcome: Option<Outcome>) -> Arc<Job> {
        let instance = InstanceName::parse("db1").unwrap();
        let mut job =
            Job::new(examples::submission(id, Op::InstanceStart(InstanceStart { instance, force: false })));
        job.started_ms = Some(1_796_000_000_000);
        if let Some(outcome) = outcome {
            job.phase = Phase::Done { outcome, prepared: None };
        }
        Arc::new(job)
    }

    fn failed(id: u64) -> Arc<Job> {
        let message = format!("message of {id}");
        job(id, Some(Outcome::Error(JobError { kind: ErrorKind::Failed, message, objections: Vec::new() })))
    }

    #[test]
    fn a_job_is_told_of_once_when_it_begins_and_once_when_it_ends() {
        let (notes, waiting) = sync_channel(100);
        let log = JobLog::new(notes, sync_channel(1).1, Arc::default());
        let (queued, begun, done) = (Job::new(job(1, None).submission.clone()), job(1, None), failed(1));
        let told = |before: Option<&Job>, now: &Arc<Job>| {
            log.changed(before, now);
            let words = waiting.try_iter().map(|note| match note {
                Note::Began(_) => "began",
                Note::Ended(_) => "ended",
            });
            words.collect::<Vec<_>>()
        };
        assert_eq!(told(None, &Arc::new(queued.clone())), [""; 0]);
        assert_eq!(told(Some(&queued), &begun), ["began"]);
        assert_eq!(told(Some(&begun), &begun), [""; 0]);
        assert_eq!(told(Some(&begun), &done), ["ended"]);
        assert_eq!(told(Some(&done), &done), [""; 0]);
        assert_eq!(told(None, &done), ["began", "ended"], "in one flush");
    }

    #[test]
    fn what_does_not_fit_is_counted_and_nobody_waits() {
        let (notes, _waiting) = sync_channel(1);
        let log = JobLog::new(notes, sync_channel(1).1, Arc::default());
        for id in 0..5 {
            log.changed(Some(&job(id, None)), &failed(id));
        }
        assert_eq!(log.left_out.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn files_are_replaced_and_the_one_before_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("last");
        let path = directory.join(FAILURE);
        for id in 1..=3 {
            // What a crash left does not disturb.
            if directory.exists() {
                fs::write(directory.join(format!("{FAILURE}.new")), "half").unwrap();
                fs::write(directory.join(format!("{FAILURE}.old.new")), "half").unwrap();
            }
            replace(&directory, FAILURE, &format!("text {id}\n")).unwrap();
            assert_eq!(read_to_string(&path).unwrap(), format!("text {id}\n"));
        }
        assert_eq!(read_to_string(directory.join(format!("{FAILURE}.old"))).unwrap(), "text 2\n");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
    }

    #[test]
    fn the_last_of_several_jobs_has_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("last");
        let store = folder.path().join("cluster.db");
        let start =
            || JobLog::start(store.clone(), directory.clone(), NodeName::parse("node1").unwrap()).unwrap();
        fs::write(&store, "").unwrap();
        let log = start();
        for id in 1..=4 {
            log.changed(None, &failed(id));
        }
        log.changed(None, &job(5, Some(Outcome::Success)));
        log.close();
        let failure = read_to_string(directory.join(FAILURE)).unwrap();
        assert!(failure.starts_with("# job 4: ") && failure.contains("message of 4"), "{failure}");
        let updated = read_to_string(directory.join(UPDATED)).unwrap();
        assert!(updated.contains("# job 5: ") && updated.contains("\nMUSTER_NODE_IDS=()\n"), "{updated}");
        log.changed(None, &failed(6));
        assert_eq!(log.left_out.load(Ordering::Relaxed), 2, "it is closed");
    }
}
