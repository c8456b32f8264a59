//! Which cluster the node belongs to, and the rule by which a call from a master is taken or refused.
//!
//! [`check`] decides; [`Memberships`] keeps the outcome on disk. An epoch, and the serial of a call that is acted on, are
//! durable before the call goes on: whatever happens to this host, a master that lost its office stays out, and a store
//! that is older than what this node has carried out is noticed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use muster_core::names::NodeName;
use muster_proto::{
    transport::{EPOCH_SEEN, FileError, MODE_PRIVATE, write_atomic},
    v1,
};
use serde::{Deserialize, Serialize};
use tonic::Status;
use uuid::Uuid;

/// The format of `node.json`.
const VERSION: u32 = 1;

/// The node's place in its cluster, as `node.json` keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    version: u32,
    /// The cluster.
    pub cluster: Uuid,
    /// The node.
    pub node: Uuid,
    /// The name by which the cluster knows it.
    pub name: NodeName,
    /// The highest epoch of a master that called.
    pub epoch_seen: u64,
    /// The epoch of the last call that was acted on.
    pub serial_epoch: u64,
    /// The highest configuration serial of a call that was acted on in that epoch.
    pub serial_seen: u64,
}

impl Membership {
    /// A new member, by its certificate; `context` is of the call that made it one.
    pub fn new(cluster: Uuid, node: Uuid, name: NodeName, context: Option<&Context>) -> Self {
        let (epoch, serial) = context.map_or((0, 0), |context| (context.epoch, context.serial));
        let (epoch_seen, serial_epoch, serial_seen) = (epoch, epoch, serial);
        Membership { version: VERSION, cluster, node, name, epoch_seen, serial_epoch, serial_seen }
    }
}

/// What every call of a master carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The caller's cluster.
    pub cluster: Uuid,
    /// The caller's epoch, from 1.
    pub epoch: u64,
    /// The serial of the caller's configuration.
    pub serial: u64,
}

impl Context {
    /// Reads a call's context.
    ///
    /// # Errors
    /// INVALID_ARGUMENT when it is missing or has no cluster or epoch.
    pub fn parse(wire: Option<v1::CallContext>) -> Result<Self, Status> {
        let wire = wire.ok_or_else(|| Status::invalid_argument("the call has no context"))?;
        let cluster = wire.cluster_uuid.parse();
        let cluster =
            cluster.map_err(|_| Status::invalid_argument("the cluster's uuid in the context is none"))?;
        if wire.epoch == 0 {
            return Err(Status::invalid_argument("the context has no epoch"));
        }
        Ok(Context { cluster, epoch: wire.epoch, serial: wire.serial })
    }
}

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It asks. Its serial is not recorded: a starting master asks for the serial before it decides whether to serve.
    Ask,
    /// Something is done.
    Act,
}

/// Why a call is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The caller is of another cluster.
    #[error("cluster: this node belongs to cluster {ours}, not to {theirs}")]
    OtherCluster {
        /// This node's.
        ours: Uuid,
        /// The caller's.
        theirs: Uuid,
    },
    /// A newer master has called.
    #[error("epoch: {called} is over, this node has been called in epoch {seen}")]
    Over {
        /// The caller's.
        called: u64,
        /// The newest.
        seen: u64,
    },
    /// The caller claims more than its certificate says.
    #[error("epoch: {called} is above the {certificate} of the caller's certificate")]
    AboveCertificate {
        /// The claim.
        called: u64,
        /// The certificate's.
        certificate: u64,
    },
    /// A call by network to a node that is in no cluster.
    #[error("cluster: this node is in no cluster")]
    NoCluster,
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        let mut status = Status::failed_precondition(refusal.to_string());
        if let Refusal::Over { seen, .. } = refusal {
            // A master that starts over lost commits (`--accept-loss`) must know what to pass.
            status.metadata_mut().insert(EPOCH_SEEN, seen.into());
        }
        status
    }
}

/// Decides on a call. `certificate` is the epoch in the caller's certificate, `None` on the unix socket. Gives the
/// membership as it must be on disk before the call goes on.
///
/// # Errors
/// When the call must not be taken.
pub fn check(
    membership: &Membership,
    context: &Context,
    certificate: Option<u64>,
    purpose: Purpose,
) -> Result<Membership, Refusal> {
    let called = context.epoch;
    if membership.cluster != context.cluster {
        return Err(Refusal::OtherCluster { ours: membership.cluster, theirs: context.cluster });
    }
    if called < membership.epoch_seen {
        return Err(Refusal::Over { called, seen: membership.epoch_seen });
    }
    if let Some(certificate) = certificate.filter(|certificate| called > *certificate) {
        return Err(Refusal::AboveCertificate { called, certificate });
    }
    let mut next = Membership { epoch_seen: called, ..membership.clone() };
    match purpose {
        Purpose::Ask => {}
        // A newer master that acts has decided on its store, be it older (`--accept-loss`): its serial counts from now on.
        Purpose::Act if called > membership.serial_epoch => {
            next.serial_epoch = called;
            next.serial_seen = context.serial;
        }
        Purpose::Act => next.serial_seen = membership.serial_seen.max(context.serial),
    }
    Ok(next)
}

/// Why the membership could not be read or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// The file can't be written.
    #[error("could not keep the node's membership")]
    Write(#[from] FileError),
    /// The file can't be read.
    #[error("could not read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file can't be removed.
    #[error("could not remove {}", .path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file does not say what it must.
    #[error("{} is damaged", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The file was written by a newer version.
    #[error("{} has version {version}, which is newer than this program", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

/// Why a call can't go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// The rule.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// This host.
    #[error(transparent)]
    Keep(#[from] MembershipError),
}

impl From<AdmitError> for Status {
    fn from(error: AdmitError) -> Status {
        match error {
            AdmitError::Refused(refusal) => refusal.into(),
            AdmitError::Keep(error) => Status::internal(super::words(&error)),
        }
    }
}

/// What is known now, and how much of it is on disk: states are numbered.
#[derive(Debug)]
struct Known {
    membership: Option<Membership>,
    number: u64,
    number_durable: u64,
}

/// The membership in memory and on disk. Calls that come at once share one write.
#[derive(Debug)]
pub struct Memberships {
    path: PathBuf,
    known: Mutex<Known>,
    /// Held while the file is written.
    file: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memberships {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// When it can't be read or is damaged.
    pub fn open(path: PathBuf) -> Result<Self, MembershipError> {
        let membership = read(&path)?;
        let known = Mutex::new(Known { membership, number: 0, number_durable: 0 });
        Ok(Memberships { path, known, file: Mutex::new(()) })
    }

    /// The membership, if the node is in a cluster.
    pub fn get(&self) -> Option<Membership> {
        lock(&self.known).membership.clone()
    }

    /// Takes or refuses a call. What it raises is on disk when this returns; blocks for that.
    ///
    /// A node that is in no cluster takes every call from its own host (`certificate` is `None`): the cluster that is
    /// being made there must leave nothing behind if its pre hooks deny it.
    ///
    /// # Errors
    /// When the rule refuses the call, or the disk fails.
    pub fn admit(
        &self,
        context: &Context,
        certificate: Option<u64>,
        purpose: Purpose,
    ) -> Result<(), AdmitError> {
        let number = {
            let mut known = lock(&self.known);
            let Some(membership) = &known.membership else {
                return if certificate.is_none() { Ok(()) } else { Err(Refusal::NoCluster.into()) };
            };
            let next = check(membership, context, certificate, purpose)?;
            if next != *membership {
                known.membership = Some(next);
                known.number += 1;
            }
            known.number
        };
        Ok(self.flush(number)?)
    }

    /// Whether a call's epoch is still the newest: for calls that go on for long.
    pub fn is_current(&self, context: &Context) -> bool {
        match &lock(&self.known).membership {
            Some(membership) => {
                membership.cluster == context.cluster && membership.epoch_seen <= context.epoch
            }
            None => true,
        }
    }

    /// Keeps the name by which the cluster knows this node.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn rename(&self, name: NodeName) -> Result<(), MembershipError> {
        let number = {
            let mut known = lock(&self.known);
            let Some(membership) = known.membership.as_mut().filter(|membership| membership.name != name)
            else {
                return Ok(());
            };
            membership.name = name;
            known.number += 1;
            known.number
        };
        self.flush(number)
    }

    /// Makes the node a member.
    ///
    /// # Errors
    /// When the disk fails; the node is none then.
    pub fn enter(&self, membership: Membership) -> Result<(), MembershipError> {
        let _file = lock(&self.file);
        write(&self.path, &membership)?;
        let mut known = lock(&self.known);
        known.membership = Some(membership);
        known.number += 1;
        known.number_durable = known.number;
        Ok(())
    }

    /// The node is no member any more.
    ///
    /// # Errors
    /// When the disk fails; the node still is one then.
    pub fn leave(&self) -> Result<(), MembershipError> {
        let _file = lock(&self.file);
        super::files::remove(&self.path)
            .map_err(|source| MembershipError::Remove { path: self.path.clone(), source })?;
        let mut known = lock(&self.known);
        known.membership = None;
        known.number += 1;
        known.number_durable = known.number;
        Ok(())
    }

    /// Returns when state `number` is on disk.
    fn flush(&self, number: u64) -> Result<(), MembershipError> {
        if lock(&self.known).number_durable >= number {
            return Ok(());
        }
        let _file = lock(&self.file);
        let (membership, newest) = {
            let known = lock(&self.known);
            if known.number_durable >= number {
                // Another call's write took this one along.
                return Ok(());
            }
            (known.membership.clone(), known.number)
        };
        if let Some(membership) = membership {
            write(&self.path, &membership)?;
        }
        lock(&self.known).number_durable = newest;
        Ok(())
    }
}

fn write(path: &Path, membership: &Membership) -> Result<(), MembershipError> {
    let text = serde_json::to_vec_pretty(membership).expect("plain data has a JSON form");
    Ok(write_atomic(path, &text, MODE_PRIVATE)?)
}

fn read(path: &Path) -> Result<Option<Membership>, MembershipError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(MembershipError::Read { path: path.to_owned(), source }),
    };
    let damaged = |source| MembershipError::Damaged { path: path.to_owned(), source };
    let membership: Membership = serde_json::from_slice(&text).map_err(damaged)?;
    if membership.version > VERSION {
        return Err(MembershipError::Newer { path: path.to_owned(), version: membership.version });
    }
    Ok(Some(membership))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn member(epoch_seen: u64, serial_epoch: u64, serial_seen: u64) -> Membership {
        let name = NodeName::parse("node1").unwrap();
        let new = Membership::new(OURS, Uuid::from_u128(9), name, None);
        Membership { epoch_seen, serial_epoch, serial_seen, ..new }
    }

    fn call(epoch: u64, serial: u64) -> Context {
        Context { cluster: OURS, epoch, serial }
    }

    #[test]
    fn the_newest_master_is_heard_and_no_other() {
        let over = |called| Err(Refusal::Over { called, seen: 5 });
        let above = |called| Err(Refusal::AboveCertificate { called, certificate: 6 });
        for (epoch, certificate, expected) in [
            (4, None, over(4)),
            (4, Some(6), over(4)),
            (4, Some(3), over(4)),
            (5, None, Ok(5)),
            (5, Some(6), Ok(5)),
            (6, Some(6), Ok(6)),
            (7, Some(6), above(7)),
            (7, None, Ok(7)),
            (u64::MAX, Some(6), above(u64::MAX)),
        ] {
            for purpose in [Purpose::Ask, Purpose::Act] {
                let next = check(&member(5, 5, 1), &call(epoch, 1), certificate, purpose);
                assert_eq!(next.map(|next| next.epoch_seen), expected, "{epoch} {certificate:?} {purpose:?}");
            }
        }
        let other = Context { cluster: OTHER, ..call(5, 1) };
        let refusal = check(&member(5, 5, 1), &other, None, Purpose::Ask);
        assert_eq!(refusal, Err(Refusal::OtherCluster { ours: OURS, theirs: OTHER }));
    }

    #[test]
    fn the_serial_of_what_was_done_is_kept() {
        for (purpose, epoch, serial, expected) in [
            (Purpose::Act, 5, 11, (5, 11)),
            (Purpose::Act, 5, 9, (5, 10)),
            (Purpose::Ask, 5, 11, (5, 10)),
            // A master that starts with an older store and asks changes nothing ...
            (Purpose::Ask, 6, 3, (5, 10)),
            // ... until it acts.
            (Purpose::Act, 6, 3, (6, 3)),
            (Purpose::Act, 6, 12, (6, 12)),
        ] {
            let next = check(&member(5, 5, 10), &call(epoch, serial), None, purpose).unwrap();
            assert_eq!((next.serial_epoch, next.serial_seen), expected, "{purpose:?} {epoch} {serial}");
        }
    }

    #[test]
    fn what_was_seen_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.json");
        let open = || Memberships::open(path.clone()).unwrap();
        assert_eq!(open().get(), None);
        open().enter(member(1, 1, 1)).unwrap();
        open().admit(&call(3, 7), Some(3), Purpose::Act).unwrap();
        assert_eq!(open().get(), Some(member(3, 3, 7)));
        let refused = open().admit(&call(2, 8), Some(3), Purpose::Act);
        assert!(matches!(refused, Err(AdmitError::Refused(Refusal::Over { called: 2, seen: 3 }))));
        open().rename(NodeName::parse("node2").unwrap()).unwrap();
        assert_eq!(open().get().unwrap().name.as_str(), "node2");
        open().leave().unwrap();
        assert_eq!(open().get(), None);
    }

    #[test]
    fn a_call_goes_on_only_when_what_it_raised_is_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.json");
        let members = Memberships::open(path.clone()).unwrap();
        members.enter(member(1, 1, 0)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (members, path) = (&members, &path);
                scope.spawn(move || {
                    for serial in (thread..400).step_by(8) {
                        members.admit(&call(1, serial), None, Purpose::Act).unwrap();
                        let kept = read(path).unwrap().unwrap();
                        assert!(
                            kept.serial_seen >= serial,
                            "{} on disk, {serial} acted on",
                            kept.serial_seen
                        );
                    }
                });
            }
        });
    }

    #[test]
    fn a_disk_that_fails_holds_the_call_and_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("node");
        fs::create_dir(&inner).unwrap();
        let members = Memberships::open(inner.join("node.json")).unwrap();
        members.enter(member(1, 1, 0)).unwrap();
        fs::rename(&inner, folder.path().join("away")).unwrap();
        for _ in 0..2 {
            let held = members.admit(&call(2, 0), None, Purpose::Act);
            assert!(matches!(held, Err(AdmitError::Keep(_))), "{held:?}");
        }
        fs::rename(folder.path().join("away"), &inner).unwrap();
        members.admit(&call(2, 0), None, Purpose::Act).unwrap();
        assert_eq!(read(&inner.join("node.json")).unwrap().unwrap().epoch_seen, 2);
    }

    #[test]
    fn a_node_in_no_cluster_hears_its_own_host_only_and_keeps_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let members = Memberships::open(folder.path().join("node.json")).unwrap();
        for cluster in [OURS, OTHER] {
            members.admit(&Context { cluster, ..call(1, 1) }, None, Purpose::Act).unwrap();
        }
        let refused = members.admit(&call(1, 1), Some(1), Purpose::Ask);
        assert!(matches!(refused, Err(AdmitError::Refused(Refusal::NoCluster))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn damage_and_newer_versions_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.json");
        fs::write(&path, "{").unwrap();
        assert!(matches!(Memberships::open(path.clone()), Err(MembershipError::Damaged { .. })));
        write(&path, &Membership { version: 2, ..member(1, 1, 1) }).unwrap();
        assert!(matches!(Memberships::open(path), Err(MembershipError::Newer { version: 2, .. })));
    }
}
