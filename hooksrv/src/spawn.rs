//! Starts a script's process, or a keeper's, by `posix_spawn`, which costs the same however large the daemon is.
//!
//! The only unsafe code of this crate. A fork would copy the page tables of the whole daemon; the standard library
//! takes the quick way only where no session is asked for. So the C library is called here, with everything that
//! HOOKS.md X2, X3, X4 and X6 ask for done by it: session, signals, directory, descriptors. The umask is inherited
//! from the daemon, see [`prepare_process`].

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::Mode;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Proof that the process has the umask that scripts are to have.
#[derive(Debug, Clone, Copy)]
pub struct PreparedProcess(());

/// Sets this process's umask to 077; to be called once, when a daemon starts (HOOKS.md X6).
///
/// `posix_spawn` can't set a umask, so scripts inherit the daemon's. It suits the daemon as well: all its files and
/// its socket are private from the moment they exist.
pub fn prepare_process() -> PreparedProcess {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    PreparedProcess(())
}

/// What is to be started.
pub(crate) struct Program<'a> {
    /// Absolute path of the directory entry; also `argv[0]` (X1).
    pub(crate) path: &'a CStr,
    /// What follows in `argv`; nothing for a script (X1).
    pub(crate) arguments: &'a [CString],
    /// The whole environment, `NAME=value` each (X5).
    pub(crate) env: &'a [CString],
    /// Where it starts; `/` for a script (X2).
    pub(crate) directory: &'a CStr,
    /// Becomes descriptor 1.
    pub(crate) stdout: &'a File,
    /// Becomes descriptor 2.
    pub(crate) stderr: &'a File,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By exit, with this status.
    Code(u8),
    /// By a signal.
    Signal(i32),
}

/// A started process, leader of a session and a group of its own. Reaped in any case: here or in the background.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    reaped: bool,
}

impl Child {
    /// The process, which is also the number of its group and session.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until the process has ended. It stays a zombie, so its number stays taken, until [`Child::reap`].
    pub(crate) async fn exited(&self) -> io::Result<()> {
        exited(self.pidfd.as_fd()).await
    }

    /// The process as a descriptor.
    pub(crate) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Takes the exit status if the process has ended.
    pub(crate) fn reap(&mut self) -> io::Result<Option<Exit>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let Some(status) = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options)? else {
            return Ok(None);
        };
        self.reaped = true;
        Ok(Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Code(u8::try_from(code).expect("an exit status has 8 bits")),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => unreachable!("only ends are waited for, not {status:?}"),
        }))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.reaped || matches!(self.reap(), Ok(Some(_))) {
            return;
        }
        let pid = self.pid;
        let reaper = move || {
            let _ended = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
        };
        if let Err(error) = std::thread::Builder::new().name("reaper".to_owned()).spawn(reaper) {
            tracing::warn!(pid = pid.as_raw_pid(), %error, "a process can't be reaped before this daemon ends");
        }
    }
}

/// Waits until a process has ended, whoever its parent is.
pub(crate) async fn exited(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed, so it stays open and the same while it is registered.
    let watched = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE)? };
    watched.readable().await?.retain_ready();
    Ok(())
}

/// Starts the program. Waits until it is executed, so it is to be called where blocking is allowed.
///
/// # Errors
/// The error of the step that failed; that of the exec where the program itself is the trouble.
pub(crate) fn spawn(program: &Program<'_>) -> io::Result<Child> {
    let actions = FileActions::new(program)?;
    let attributes = Attributes::new()?;
    let pointers = |strings: &[CString]| -> Vec<*mut libc::c_char> {
        strings.iter().map(|string| string.as_ptr().cast_mut()).collect()
    };
    let mut argv = vec![program.path.as_ptr().cast_mut()];
    argv.extend(pointers(program.arguments));
    argv.push(ptr::null_mut());
    let mut envp = pointers(program.env);
    envp.push(ptr::null_mut());
    let mut raw_pid: libc::pid_t = 0;
    // SAFETY: path, argv and envp point to C strings that outlive the call, both arrays end with null, and actions
    // and attributes are initialised. The function writes to none of the strings, whatever its signature says.
    check(unsafe {
        libc::posix_spawn(
            &raw mut raw_pid,
            program.path.as_ptr(),
            &raw const actions.0,
            &raw const attributes.0,
            argv.as_ptr(),
            envp.as_ptr(),
        )
    })?;
    let pid = Pid::from_raw(raw_pid).expect("a started process has a positive number");
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Child { pid, pidfd, reaped: false }),
        Err(error) => {
            // It can't be watched, so it must not run on: out of descriptors, most likely.
            let _gone = rustix::process::kill_process_group(pid, Signal::KILL);
            let _reaped = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            Err(error.into())
        }
    }
}

/// Turns the C library's error number into an error.
fn check(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// What the new process does with its descriptors and directory before the exec.
struct FileActions(libc::posix_spawn_file_actions_t);

impl FileActions {
    fn new(program: &Program<'_>) -> io::Result<Self> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: the pointer is to memory of the right size, which the call initialises when it returns 0.
        check(unsafe { libc::posix_spawn_file_actions_init(raw.as_mut_ptr()) })?;
        // SAFETY: initialised by the call above, which succeeded.
        let mut actions = FileActions(unsafe { raw.assume_init() });
        let this = &raw mut actions.0;
        // SAFETY: `this` is initialised, the strings outlive the call, which copies them, and the descriptors are
        // open during the spawn, since `program` borrows their files.
        unsafe {
            check(libc::posix_spawn_file_actions_addopen(this, 0, c"/dev/null".as_ptr(), libc::O_RDONLY, 0))?;
            check(libc::posix_spawn_file_actions_adddup2(this, program.stdout.as_raw_fd(), 1))?;
            check(libc::posix_spawn_file_actions_adddup2(this, program.stderr.as_raw_fd(), 2))?;
            check(libc::posix_spawn_file_actions_addchdir_np(this, program.directory.as_ptr()))?;
            check(libc::posix_spawn_file_actions_addclosefrom_np(this, 3))?;
        }
        Ok(actions)
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: initialised in `new` and destroyed only here.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

/// Session and signals of the new process.
struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: the pointer is to memory of the right size, which the call initialises when it returns 0.
        check(unsafe { libc::posix_spawnattr_init(raw.as_mut_ptr()) })?;
        // SAFETY: initialised by the call above, which succeeded.
        let mut attributes = Attributes(unsafe { raw.assume_init() });
        let this = &raw mut attributes.0;
        let flags = libc::c_short::try_from(libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK)
            .expect("the flags are small")
            | libc::POSIX_SPAWN_SETSID;
        // SAFETY: a signal set is plain bits, each pattern is one. `sigfillset` would leave out the two signals that
        // the C library keeps for itself, and the script would start with these ignored.
        let (none, all): (libc::sigset_t, libc::sigset_t) = unsafe {
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            ptr::write_bytes(all.as_mut_ptr(), 0xff, 1);
            (MaybeUninit::zeroed().assume_init(), all.assume_init())
        };
        // SAFETY: `this` is initialised and the sets outlive the calls, which copy them.
        unsafe {
            check(libc::posix_spawnattr_setsigmask(this, &raw const none))?;
            check(libc::posix_spawnattr_setsigdefault(this, &raw const all))?;
            check(libc::posix_spawnattr_setflags(this, flags))?;
        }
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new` and destroyed only here.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}
