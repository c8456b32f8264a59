//! Unix sockets: making one safely, and who the process at the other end is.
use std::{
    ffi::{CStr, CString, c_char},
    fs, io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, RawFd},
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
    ptr,
};

use tokio::net::{UnixListener, UnixStream};

use super::{gate::Caller, roles::Role};

/// The kernel's limit for a socket's path, the ending zero not counted.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// The group that may open the master's socket.
pub(crate) const GROUP_SOCKET: &CStr = c"muster";
/// Members are operators on the master's socket.
pub(crate) const GROUP_OPERATOR: &CStr = c"muster-operator";
/// Members are readers on the master's socket.
pub(crate) const GROUP_READER: &CStr = c"muster-reader";
/// Supplementary groups that Linux allows a process.
const GROUPS_MAX: usize = 65_536;
/// A group's entry with all its members.
const GROUP_ENTRY_BYTES_MAX: usize = 1024 * 1024;

/// Whose socket it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketPolicy {
    /// The master's: root and the daemon's user are admin, two groups give roles.
    Master,
    /// A node daemon's: root and the daemon's user are the master.
    Node,
}

/// Why a socket could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The path does not fit into the kernel's address structure.
    #[error(transparent)]
    Path(#[from] SocketPathTooLong),
    /// Another daemon answers there.
    #[error("{0} is served by a running daemon")]
    InUse(PathBuf),
    /// Something that isn't a socket is there.
    #[error("{0} exists and is not a socket")]
    NotSocket(PathBuf),
    /// The system refused it.
    #[error("could not make the socket {path}")]
    Make {
        /// The socket.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The path does not fit into the kernel's address structure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the socket path {path} has {bytes} bytes; at most {SOCKET_PATH_BYTES_MAX} are possible")]
pub struct SocketPathTooLong {
    /// The path.
    pub path: PathBuf,
    /// Its length.
    pub bytes: usize,
}

/// Refuses a path that no socket can have.
pub(crate) fn check_path(path: &Path) -> Result<(), SocketPathTooLong> {
    let bytes = path.as_os_str().as_bytes().len();
    match bytes <= SOCKET_PATH_BYTES_MAX {
        true => Ok(()),
        false => Err(SocketPathTooLong { path: path.to_owned(), bytes }),
    }
}

/// Makes a socket with this mode, belonging to group `muster` where that group exists and the daemon may give it.
///
/// A socket that nobody serves any more is replaced. Must be called within a tokio runtime.
pub fn bind_unix(path: &Path, mode: u32) -> Result<UnixListener, SocketError> {
    check_path(path)?;
    let make = |source| SocketError::Make { path: path.to_owned(), source };
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(make)?;
    // Until here the umask decided who can connect; what a caller may do is decided by its credentials anyway.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(make)?;
    if let Some(gid) = group_id(GROUP_SOCKET).map_err(make)?
        && let Err(error) = std::os::unix::fs::chown(path, None, Some(gid))
    {
        tracing::info!(path = %path.display(), %error, "the socket keeps the daemon's own group");
    }
    Ok(listener)
}

fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let make = |source| SocketError::Make { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(make(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(SocketError::NotSocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    // Only a refusal shows that nobody listens: a stopped or busy daemon is still accepted for, or makes us wait.
    let probe = rustix::net::socket_with(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC,
        None,
    );
    let probe = probe.map_err(|error| make(error.into()))?;
    let address = rustix::net::SocketAddrUnix::new(path).map_err(|error| make(error.into()))?;
    match rustix::net::connect(&probe, &address) {
        Err(rustix::io::Errno::CONNREFUSED) => fs::remove_file(path).map_err(make),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Ok(()) | Err(rustix::io::Errno::AGAIN) => Err(SocketError::InUse(path.to_owned())),
        Err(error) => Err(make(error.into())),
    }
}

/// Who is at the other end, and what its user may do here.
pub(crate) async fn caller_of(stream: &UnixStream, policy: SocketPolicy) -> io::Result<Caller> {
    let credentials = stream.peer_cred()?;
    let (uid, gid, pid) = (credentials.uid(), credentials.gid(), credentials.pid());
    let own = rustix::process::geteuid().as_raw();
    let trusted = uid == 0 || uid == own;
    let role = match policy {
        SocketPolicy::Node if trusted => Role::Master,
        SocketPolicy::Node => Role::None,
        SocketPolicy::Master if trusted => Role::Admin,
        SocketPolicy::Master => {
            let mut groups = peer_groups(stream.as_raw_fd())?;
            groups.push(gid);
            // The group database may be a network service: not on a runtime thread.
            tokio::task::spawn_blocking(move || {
                Ok::<_, io::Error>(role_by_groups(
                    &groups,
                    group_id(GROUP_OPERATOR)?,
                    group_id(GROUP_READER)?,
                ))
            })
            .await??
        }
    };
    Ok(Caller::Unix { uid, gid, pid, role })
}

/// The role of a process in these groups; `None` for a group that doesn't exist on this host.
fn role_by_groups(groups: &[u32], operator: Option<u32>, reader: Option<u32>) -> Role {
    let member = |gid: Option<u32>| gid.is_some_and(|gid| groups.contains(&gid));
    match (member(operator), member(reader)) {
        (true, _) => Role::Operator,
        (false, true) => Role::Reader,
        (false, false) => Role::None,
    }
}

/// The supplementary groups that the process at the other end had when it connected.
fn peer_groups(socket: RawFd) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let size = size_of::<libc::gid_t>() * groups.len();
        let mut length = libc::socklen_t::try_from(size).expect("at most 256 KiB");
        // SAFETY: the pointer and length describe `groups`, which outlives the call and into which any bytes may be
        // written; `length` outlives the call too.
        let failed = unsafe {
            libc::getsockopt(
                socket,
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                ptr::from_mut(&mut length),
            )
        } != 0;
        let error = io::Error::last_os_error();
        if failed && error.raw_os_error() != Some(libc::ERANGE) {
            return Err(error);
        }
        let count = usize::try_from(length).expect("at most 256 KiB") / size_of::<libc::gid_t>();
        if !failed {
            groups.truncate(count);
            return Ok(groups);
        }
        // The kernel told how many there are.
        if count <= groups.len() || count > GROUPS_MAX {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

/// The number of a group; `None` if there is no such group.
fn group_id(name: &CStr) -> io::Result<Option<u32>> {
    let name = CString::from(name);
    let mut buffer: Vec<c_char> = vec![0; 4096];
    loop {
        let mut group = MaybeUninit::<libc::group>::uninit();
        let mut found: *mut libc::group = ptr::null_mut();
        // SAFETY: all pointers are to live values of the right type, the buffer's length is the one given, and the
        // entry's strings, which point into the buffer, are not looked at.
        let code = unsafe {
            libc::getgrnam_r(
                name.as_ptr(),
                group.as_mut_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
                ptr::from_mut(&mut found),
            )
        };
        match code {
            0 if found.is_null() => return Ok(None),
            // SAFETY: getgrnam_r found an entry, so it has filled `group`.
            0 => return Ok(Some(unsafe { group.assume_init() }.gr_gid)),
            libc::ERANGE if buffer.len() < GROUP_ENTRY_BYTES_MAX => buffer.resize(buffer.len() * 4, 0),
            // What the manual page says some systems answer for a name that isn't there.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_looked_up_by_name() {
        assert_eq!(group_id(c"root").unwrap(), Some(0));
        assert_eq!(group_id(c"no-such-group-here").unwrap(), None);
    }

    #[tokio::test]
    async fn the_other_ends_groups_are_those_of_its_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(|gid| gid.as_raw()).collect();
        let mut groups = peer_groups(one.as_raw_fd()).unwrap();
        own.sort_unstable();
        groups.sort_unstable();
        assert_eq!(groups, own);
    }

    #[test]
    fn the_groups_of_other_users_give_their_roles() {
        for (groups, operator, reader, role) in [
            (&[100, 7, 8][..], Some(7), Some(8), Role::Operator),
            (&[100, 8], Some(7), Some(8), Role::Reader),
            (&[100], Some(7), Some(8), Role::None),
            (&[100, 7], None, None, Role::None),
            (&[], Some(7), Some(8), Role::None),
        ] {
            assert_eq!(role_by_groups(groups, operator, reader), role, "{groups:?}");
        }
    }

    #[tokio::test]
    async fn only_a_socket_that_nobody_serves_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.sock");
        let first = bind_unix(&path, 0o660).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert!(matches!(bind_unix(&path, 0o660), Err(SocketError::InUse(_))));
        drop(first);
        bind_unix(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let file = folder.path().join("file");
        fs::write(&file, "precious").unwrap();
        assert!(matches!(bind_unix(&file, 0o600), Err(SocketError::NotSocket(_))));
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_path_over_the_kernels_limit_is_named_with_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let fits = SOCKET_PATH_BYTES_MAX - folder.path().as_os_str().len() - 1;
        bind_unix(&folder.path().join("s".repeat(fits)), 0o600).unwrap();
        let path = folder.path().join("s".repeat(fits + 1));
        let text = bind_unix(&path, 0o600).unwrap_err().to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains("107"), "{text}");
    }
}
