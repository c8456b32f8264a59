//! The unix sockets: their modes, and the credentials of the process at the other end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use muster_proto::transport::connect_unix;
use tokio::runtime::Builder;

use super::doors::{Empty, HEALTH, call, outcome_of};
use crate::cluster::Cluster;

/// A user and group without any rights on most systems; no entry in a database is needed.
const STRANGER: libc::c_long = 65534;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Connects and asks for the daemon's health.
fn ask(socket: &Path, path: &str) -> String {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match connect_unix(socket).await {
            Err(error) => format!("connect: {error}"),
            Ok(channel) => outcome_of(&call(&channel, path, Empty {}).await),
        }
    })
}

/// Makes this thread, and no other one of the process, another user's.
fn become_a_stranger() {
    let no_groups = std::ptr::null::<libc::gid_t>();
    // SAFETY: the system calls take numbers and, for no groups, an address that is not read. Called directly they change
    // the calling thread alone, which the kernel provides for; nothing in this thread relies on its former rights.
    let done = unsafe {
        libc::syscall(libc::SYS_setgroups, 0, no_groups) == 0
            && libc::syscall(libc::SYS_setresgid, STRANGER, STRANGER, STRANGER) == 0
            && libc::syscall(libc::SYS_setresuid, STRANGER, STRANGER, STRANGER) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}

fn ask_as_a_stranger(socket: &Path, path: &'static str) -> String {
    let socket = socket.to_owned();
    let asked = std::thread::spawn(move || {
        become_a_stranger();
        ask(&socket, path)
    });
    asked.join().unwrap()
}

#[test]
fn the_sockets_are_for_their_own_users_only() {
    // The test's own directory is nobody else's: so that it is not what refuses a stranger, it is opened.
    let cluster = Cluster::with_prepared(&["--nodes", "2"], |cluster| {
        fs::set_permissions(cluster.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    });
    let (master, node) = (cluster.socket(), cluster.node_dir(1).join("run/node.sock"));
    assert_eq!((mode(&master), mode(&node)), (0o660, 0o600));
    assert_eq!(mode(&cluster.node_dir(2).join("run/node.sock")), 0o600);
    for socket in [&master, &node] {
        assert_eq!(ask(socket, HEALTH), "answered");
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run by root: that another user is refused is not shown");
        return;
    }

    for socket in [&master, &node] {
        let outcome = ask_as_a_stranger(socket, HEALTH);
        assert!(outcome.ends_with("this user may not open the socket"), "{outcome}");
        // Where the mode lets anybody in, the credentials still don't.
        fs::set_permissions(socket, fs::Permissions::from_mode(0o666)).unwrap();
        for path in [
            HEALTH,
            "/muster.v1.JobService/ListJobs",
            "/muster.v1.EnrolmentService/Collect",
            "/muster.v1.AgentService/Leave",
        ] {
            let outcome = ask_as_a_stranger(socket, path);
            let refused = format!("PermissionDenied: user {STRANGER} has no role on this socket");
            assert!(outcome.starts_with(&refused), "{path}: {outcome}");
        }
    }
}
