//! Jobs that a job's commit asks for: their numbers and fresh values are drawn in the same breath, so that one flush makes all
//! of it durable.

use muster_core::{
    engine::{FollowUps, Input},
    ops::{FRESH_UUIDS, Fresh},
};

use super::{Clock, Driver, Ids};
use crate::store::Store;

impl<S: Store, C: Clock, I: Ids> Driver<S, C, I> {
    pub(super) fn submit_follow_ups(&mut self, asked: FollowUps) {
        let parent = asked.job;
        let submission = self.engine.job(parent).map(|job| &job.submission).expect("a job that asks exists");
        let (ids, next_job) = (&mut self.ids, &mut self.next_job);
        let now_ms = self.clock.now().wall_ms;
        let submissions = asked.submissions(submission, || {
            let fresh = Fresh {
                uuids: (0..FRESH_UUIDS).map(|_| ids.uuid()).collect(),
                mac: ids.mac(),
                now_ms,
                ..Fresh::default()
            };
            let id = *next_job;
            *next_job += 1;
            (id, ids.uuid(), fresh)
        });
        self.input(Input::FollowUps(parent, submissions));
    }
}
