//! Who calls, in the words of a job's record, and what that caller may submit.

use muster_core::ops::Submitter;
use muster_proto::transport::{IdentityKind, Peer, Role};
use tonic::Status;

/// Longest line of the user database that is looked at, in bytes.
const PASSWD_BYTES_MAX: usize = 16 * 1024;

/// The name that a job's record and `GANETI_JOB_USER` have.
pub(crate) fn user(peer: &Peer, client_name: impl Fn(uuid::Uuid) -> Option<String>) -> String {
    match peer {
        Peer::Unix { uid, .. } => login_name(*uid).unwrap_or_else(|| format!("uid-{uid}")),
        Peer::TlsAnonymous { address } => format!("anonymous at {address}"),
        Peer::Tls { identity, .. } => match &identity.kind {
            IdentityKind::Client { client, .. } => {
                client_name(*client).unwrap_or_else(|| format!("client-{client}"))
            }
            IdentityKind::Node { .. } | IdentityKind::Master { .. } => identity.to_string(),
        },
    }
}

/// Refuses a caller whose role is too small for an operation.
pub(crate) fn check(peer: &Peer, submitter: Submitter, op_id: &str) -> Result<(), Status> {
    let admin = peer.role() == Role::Admin;
    let local = matches!(peer, Peer::Unix { .. });
    match submitter {
        Submitter::Operator => Ok(()),
        Submitter::Admin if admin => Ok(()),
        Submitter::Admin => Err(Status::permission_denied(format!(
            "{op_id} needs the role admin; this caller is {}",
            peer.role()
        ))),
        Submitter::Local if admin && local => Ok(()),
        Submitter::Local => Err(Status::permission_denied(format!(
            "{op_id} must be asked for on the host itself, by root or the daemon's user"
        ))),
    }
}

/// The login name of a user, from the user database.
fn login_name(uid: u32) -> Option<String> {
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut buffer = vec![0; PASSWD_BYTES_MAX];
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are to live buffers of the lengths given; `found` is checked before `entry` is read.
    let code = unsafe {
        libc::getpwuid_r(uid, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    if code != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call succeeded and found an entry, whose name points into `buffer`.
    let name = unsafe { std::ffi::CStr::from_ptr((*found).pw_name) };
    name.to_str().ok().map(str::to_owned)
}
