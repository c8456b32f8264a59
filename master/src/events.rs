//! Hooks of events that are no operation: a changed configuration, a node that asks to join, a node's new facts.
//!
//! Whoever sees an event pushes it and goes on. One task takes them in order, one at a time, and runs `PREFIX-post.d` on the
//! master's own node; what the scripts do is logged by tracing and changes nothing. Nothing is kept over a restart: an
//! event tells of something that can be asked for.
//!
//! To add an event: name it in [`EVENT_POINTS`], which documents it and makes its directory known, and push it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use muster_core::{
    hooks::{Class, Env, NodeAnswer, NodeReport, Phase},
    ops::{EVENT_POINTS, event_env},
};
use tokio::{sync::Notify, time::Instant};
use uuid::Uuid;

use crate::{
    master::{Master, Standing},
    nodes::RunHooks,
};

/// Events of one kind that may wait; more are dropped, and that is logged. Each kind has its own bound, so that none takes
/// the place of another.
const EVENTS_MAX: usize = 256;
/// The kind that anybody can cause who reaches the port: all others go before it.
const STRANGERS: &str = "node-enrol-failed";
/// Events of that kind that may wait.
const STRANGERS_MAX: usize = 16;
/// Between two runs of that kind: somebody who asks without end keeps this host busy with no more than this.
const STRANGERS_PAUSE: Duration = Duration::from_secs(1);
/// Between two runs: events that follow each other closely become one meanwhile, and a burst of commits costs ten calls a
/// second at most.
const PAUSE: Duration = Duration::from_millis(100);
/// A run of an event is no job's.
const NO_JOB: u64 = 0;
/// The lock is held for changes of the queue only.
const POISON: &str = "no holder of this lock panics";

/// Something that scripts are told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    prefix: &'static str,
    env: Env,
    files: BTreeMap<String, String>,
    key: String,
}

impl Event {
    /// An event of one of [`EVENT_POINTS`].
    pub(crate) fn new(prefix: &'static str) -> Self {
        debug_assert!(EVENT_POINTS.iter().any(|point| point.prefix == prefix), "{prefix} is not listed");
        Event { prefix, env: Env::new(), files: BTreeMap::new(), key: String::new() }
    }

    /// Variables of its own, without prefix.
    pub(crate) fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// A file for the scripts: the variable, without prefix, that names it, and its content.
    pub(crate) fn file(mut self, variable: &str, content: String) -> Self {
        self.files.insert(variable.to_owned(), content);
        self
    }

    /// What it is about: one that waits is replaced by a newer one with the same prefix and key.
    pub(crate) fn key(mut self, key: String) -> Self {
        self.key = key;
        self
    }
}

/// Events that wait for their scripts.
#[derive(Debug, Default)]
pub(crate) struct Events {
    waiting: Mutex<VecDeque<Event>>,
    pushed: Notify,
}

impl Events {
    /// Adds an event; never waits.
    pub(crate) fn push(&self, event: Event) {
        let mut waiting = self.waiting.lock().expect(POISON);
        let same = waiting.iter().position(|other| other.prefix == event.prefix && other.key == event.key);
        let of_kind = waiting.iter().filter(|other| other.prefix == event.prefix).count();
        let most = if event.prefix == STRANGERS { STRANGERS_MAX } else { EVENTS_MAX };
        match same {
            Some(index) => waiting[index] = event,
            None if of_kind < most => waiting.push_back(event),
            None => {
                tracing::warn!(event = event.prefix, "too many events wait for their hooks: one is dropped")
            }
        }
        self.pushed.notify_one();
    }

    /// The next one; those of strangers come last, and not before `strangers_from`.
    async fn next(&self, strangers_from: Instant) -> Event {
        loop {
            let pushed = self.pushed.notified();
            let is_time = Instant::now() >= strangers_from;
            if let Some(event) = self.take(is_time) {
                return event;
            }
            tokio::select! {
                () = pushed => {}
                () = tokio::time::sleep_until(strangers_from), if !is_time => {}
            }
        }
    }

    fn take(&self, with_strangers: bool) -> Option<Event> {
        let mut waiting = self.waiting.lock().expect(POISON);
        let known = waiting.iter().position(|event| event.prefix != STRANGERS);
        let index = known.or((with_strangers && !waiting.is_empty()).then_some(0));
        waiting.remove(index?)
    }
}

/// Runs the scripts of events, until the daemon stops.
pub(crate) async fn keep(master: Arc<Master>) {
    let mut strangers_from = Instant::now();
    loop {
        tokio::time::sleep(PAUSE).await;
        let event = tokio::select! {
            () = master.stop.cancelled() => return,
            event = master.events.next(strangers_from) => event,
        };
        let is_strangers = event.prefix == STRANGERS;
        tokio::select! {
            () = master.stop.cancelled() => return,
            () = run(&master, event) => {}
        }
        if is_strangers {
            strangers_from = Instant::now() + STRANGERS_PAUSE;
        }
    }
}

async fn run(master: &Master, event: Event) {
    let (Standing::Active, Some(cluster)) = (master.standing(), master.view().cluster()) else { return };
    let policy = cluster.hooks.of(&Phase::Post.directory(event.prefix));
    let run = RunHooks {
        call_id: format!("event-{}/post/1", Uuid::new_v4().simple()),
        job: NO_JOB,
        phase: Phase::Post,
        prefix: event.prefix.to_owned(),
        env: event_env(event.prefix, &cluster, event.env),
        policy: policy.clone(),
        probe: false,
        global: None,
        files: event.files,
    };
    let report = master.nodes().run_hooks(&master.config.name, &run, None).await;
    tell(event.prefix, &report, |outcome| policy.class(outcome));
}

fn tell(event: &str, report: &NodeReport, class: impl Fn(&muster_core::hooks::ScriptOutcome) -> Class) {
    for script in report.scripts() {
        let line = script.line(&report.node);
        match class(&script.outcome) {
            Class::Success => tracing::info!(event, "{line}"),
            Class::Warning | Class::Error => {
                let said = script.stderr.visible();
                tracing::warn!(event, said = said.trim_end(), "{line}");
            }
        }
    }
    match &report.answer {
        NodeAnswer::Answered(result) => {
            if let Some(failure) = &result.failure {
                tracing::warn!(event, failure, "hooks of an event were not run");
            }
        }
        NodeAnswer::NotReached { why, .. } => {
            tracing::warn!(event, reason = why.reason, "the own node was not reached for hooks of an event");
        }
        NodeAnswer::Lost => tracing::warn!(event, "what hooks of an event did is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(node: &str, value: &str) -> Event {
        Event::new("node-facts").env(Env::new().set("NODE_NAME", value)).key(node.to_owned())
    }

    #[tokio::test]
    async fn events_of_the_same_thing_become_one_and_keep_their_place() {
        let events = Events::default();
        for event in [facts("a", "1"), facts("b", "2"), facts("a", "3"), Event::new("config-update")] {
            events.push(event);
        }
        assert_eq!(events.next(Instant::now()).await, facts("a", "3"));
        assert_eq!(events.next(Instant::now()).await, facts("b", "2"));
        assert_eq!(events.next(Instant::now()).await, Event::new("config-update"));
        assert!(events.waiting.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn strangers_take_nobodys_place_and_have_their_pause() {
        let events = Events::default();
        let stranger = |number: usize| Event::new(STRANGERS).key(number.to_string());
        for number in 0..EVENTS_MAX {
            events.push(stranger(number));
        }
        assert_eq!(events.waiting.lock().unwrap().len(), STRANGERS_MAX);
        events.push(Event::new("config-update"));
        let from = Instant::now() + STRANGERS_PAUSE;
        assert_eq!(events.next(from).await, Event::new("config-update"));
        assert_eq!(events.next(from).await, stranger(0));
        assert!(Instant::now() >= from);
    }

    #[tokio::test]
    async fn what_is_too_much_is_dropped_and_what_waits_stays() {
        let events = Events::default();
        for number in 0..EVENTS_MAX + 3 {
            events.push(facts(&number.to_string(), ""));
        }
        let waiting = events.waiting.lock().unwrap();
        assert_eq!(waiting.len(), EVENTS_MAX);
        assert_eq!(waiting[0], facts("0", ""));
    }
}
