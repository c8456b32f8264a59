//! Notices that this daemon was frozen, and makes harmless what lay in its connections meanwhile.
//!
//! A daemon that is stopped by a signal, or whose host is suspended, answers nothing, and its master gives it up: calls
//! count as not reached, their jobs end, newer jobs begin. When the daemon goes on, requests of that time still lie in
//! its connections. Whoever comes first, the ticker or a call that is about to act, finds the gap in the ticks and closes
//! all connections from before, and no call may act until a master has said hello: that ends the runs of all jobs that
//! are over.
//!
//! The gap is seen by [`boot_clock`], which goes on while the daemon or its host stands still. The clock of a virtual
//! machine that is paused stands still itself, so a node inside of one does not notice.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use muster_proto::transport::{Connection, Connections, PING_LIMIT, boot_clock};
use tokio::time::{MissedTickBehavior, interval};
use tonic::Status;

use super::Purpose;

/// How often the daemon notes that it runs.
const TICK: Duration = Duration::from_secs(1);
/// A daemon that has not ticked for so long counts as frozen. A master gives a call up after 15 s of silence at the
/// soonest (the limit of a ping, and of a short call's answer): a freeze that it may have taken for an end is always
/// longer than this, also with a tick missing before it.
const FROZEN_AFTER: Duration = Duration::from_secs(10);
const _: () = assert!(
    FROZEN_AFTER.as_secs() + 2 * TICK.as_secs() < PING_LIMIT.as_secs(),
    "a master must not give a node up before the node itself takes its silence for a freeze"
);

/// Tells the time since the host's start.
type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// Whether the daemon was frozen, and what follows.
pub(super) struct FreezeWatch {
    connections: Connections,
    state: Mutex<State>,
}

struct State {
    clock: Clock,
    ticked: Duration,
    standing: Standing,
}

/// Whether calls may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing has happened since the start, or since a master's last hello.
    Fine,
    /// The daemon stood still for so long, and no master has said hello since.
    Frozen(Duration),
}

impl FreezeWatch {
    /// Watches over a daemon's connections; begins now.
    pub(super) fn new(connections: Connections) -> Self {
        Self::with_clock(connections, Box::new(boot_clock))
    }

    fn with_clock(connections: Connections, clock: Clock) -> Self {
        let state = State { ticked: clock(), clock, standing: Standing::Fine };
        FreezeWatch { connections, state: Mutex::new(state) }
    }

    /// Puts another clock in the place of the host's.
    #[cfg(test)]
    pub(super) fn set_clock(&self, clock: impl Fn() -> Duration + Send + Sync + 'static) {
        self.lock().clock = Box::new(clock);
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Ticks for ever.
    pub(super) async fn run(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.begin();
        loop {
            ticks.tick().await;
            self.tick();
        }
    }

    /// What came before the daemon served is no freeze.
    fn begin(&self) {
        let mut state = self.lock();
        state.ticked = (state.clock)();
    }

    fn tick(&self) {
        let mut state = self.lock();
        self.look(&mut state);
        state.ticked = (state.clock)();
    }

    /// Says whether a call may go on. To be asked as the last thing before it acts.
    ///
    /// # Errors
    /// UNAVAILABLE for a call that came by a connection from before a freeze, and for one that acts before a master has
    /// said hello again: the caller connects anew, says hello and repeats the call.
    pub(super) fn check(&self, by: Option<&Connection>, purpose: Purpose) -> Result<(), Status> {
        self.check_with(&mut self.lock(), by, purpose)
    }

    /// A master has said hello: calls may act again.
    ///
    /// # Errors
    /// As [`FreezeWatch::check`], should the daemon have been frozen since the hello came.
    pub(super) fn greeted(&self, by: Option<&Connection>) -> Result<(), Status> {
        let mut state = self.lock();
        self.check_with(&mut state, by, Purpose::Ask)?;
        state.standing = Standing::Fine;
        Ok(())
    }

    fn check_with(&self, state: &mut State, by: Option<&Connection>, purpose: Purpose) -> Result<(), Status> {
        self.look(state);
        if by.is_some_and(Connection::is_closed) {
            return Err(Status::unavailable("the node daemon has closed the connection of this call"));
        }
        match (state.standing, purpose) {
            (Standing::Fine, _) | (Standing::Frozen(_), Purpose::Ask) => Ok(()),
            (Standing::Frozen(gap), Purpose::Act) => Err(Status::unavailable(format!(
                "the node daemon was frozen for {} s and does nothing until its master has greeted it again",
                gap.as_secs()
            ))),
        }
    }

    /// Closes what is from before a freeze.
    fn look(&self, state: &mut State) {
        let now = (state.clock)();
        let gap = now.saturating_sub(state.ticked);
        if gap <= FROZEN_AFTER {
            return;
        }
        // A connection that was opened later than this was opened after the freeze: before it, a tick was due.
        let closed = self.connections.close_opened_before(state.ticked + FROZEN_AFTER);
        tracing::warn!(
            ?gap,
            closed,
            "this daemon was frozen; it does nothing until its master has greeted it again"
        );
        state.standing = Standing::Frozen(gap);
        state.ticked = now;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use tonic::Code;

    use super::*;

    struct Bench {
        now_ms: Arc<AtomicU64>,
        watch: FreezeWatch,
    }

    impl Bench {
        fn new() -> Self {
            let now_ms = Arc::new(AtomicU64::new(1_000_000));
            let clock = now_ms.clone();
            let clock = move || Duration::from_millis(clock.load(Ordering::Relaxed));
            Bench { now_ms, watch: FreezeWatch::with_clock(Connections::default(), Box::new(clock)) }
        }

        fn pass(&self, duration: Duration) {
            self.now_ms.fetch_add(u64::try_from(duration.as_millis()).unwrap(), Ordering::Relaxed);
        }

        fn may_act(&self) -> bool {
            let checked = self.watch.check(None, Purpose::Act);
            if let Err(status) = &checked {
                assert_eq!(status.code(), Code::Unavailable, "what lets a master connect anew");
            }
            checked.is_ok()
        }
    }

    #[test]
    fn a_late_call_sees_the_freeze_also_before_the_ticker_does() {
        let bench = Bench::new();
        bench.watch.tick();
        bench.pass(FROZEN_AFTER + Duration::from_millis(1));
        assert!(!bench.may_act());
        bench.watch.check(None, Purpose::Ask).unwrap();
        bench.watch.tick();
        assert!(!bench.may_act(), "a tick is no greeting");
        bench.watch.greeted(None).unwrap();
        assert!(bench.may_act());
    }

    #[test]
    fn the_ticker_sees_it_too_and_a_busy_host_is_no_freeze() {
        let bench = Bench::new();
        for _ in 0..100 {
            bench.pass(FROZEN_AFTER);
            bench.watch.tick();
        }
        assert!(bench.may_act());
        bench.pass(2 * FROZEN_AFTER);
        bench.watch.tick();
        assert!(!bench.may_act());
    }

    #[test]
    fn a_greeting_counts_only_if_no_freeze_came_after_it() {
        let bench = Bench::new();
        bench.pass(2 * FROZEN_AFTER);
        bench.watch.greeted(None).unwrap();
        assert!(bench.may_act(), "the greeting sees the freeze itself");
        bench.pass(2 * FROZEN_AFTER);
        assert!(!bench.may_act());
    }

    #[test]
    fn a_daemon_that_served_late_was_not_frozen() {
        let bench = Bench::new();
        bench.pass(2 * FROZEN_AFTER);
        bench.watch.begin();
        assert!(bench.may_act());
    }
}
