//! Follows a job to its end, over restarts of the master.

use std::time::Duration;

use muster_proto::v1::{FollowJobRequest, Job, job_event};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{callback::parent_job, client::Master, exit::Failure, output::progress::Progress};

/// How long a master may be away in one go: long enough for its restart.
pub(crate) const AWAY_LIMIT: Duration = Duration::from_secs(60);
/// The first pause before another try; it doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Follows a job and hands each line of progress to `tell`, none of them twice; ends early when `tell` fails.
pub(crate) async fn follow(
    master: &Master,
    id: u64,
    mut tell: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<Job, Failure> {
    let mut progress = Progress::default();
    let mut away = Away::default();
    let request = FollowJobRequest { id, parent_job: parent_job()?.unwrap_or_default() };
    loop {
        let lost = match follow_once(master, request, &mut progress, &mut away, &mut tell).await {
            Ok(job) => return Ok(job),
            Err(Ended::Status(status)) if connection_lost(&status) => status,
            Err(Ended::Status(status)) => return Err(status.into()),
            Err(Ended::Untold(failure)) => return Err(failure),
        };
        if away.pause().await == Patience::Ended {
            let why = Failure::from(lost).to_string();
            return Err(Failure::Unreachable(format!(
                "{why}; job {id} goes on when the master is back, follow it with: gnt-job watch {id}"
            )));
        }
        if let Some(notice) = away.notice() {
            tell(&notice)?;
        }
        // The master tells everything again from the job's start.
        progress.restart();
    }
}

async fn follow_once(
    master: &Master,
    request: FollowJobRequest,
    progress: &mut Progress,
    away: &mut Away,
    tell: &mut impl FnMut(&str) -> Result<(), Failure>,
) -> Result<Job, Ended> {
    let mut events = crate::client::answer(master.jobs().follow_job(request)).await?;
    while let Some(event) = events.message().await? {
        away.is_back();
        for line in progress.lines(&event) {
            tell(&line)?;
        }
        if let Some(job_event::Event::Done(job)) = event.event {
            return Ok(job);
        }
    }
    Err(Status::unavailable("the master closed the stream before the job's end").into())
}

/// Why a stream ended before its job.
enum Ended {
    Status(Status),
    Untold(Failure),
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        Ended::Status(status)
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Ended::Untold(failure)
    }
}

/// Whether a call may have better luck with the same master a moment later.
pub(crate) fn connection_lost(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
        || matches!(
            status.code(),
            Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Aborted | Code::DeadlineExceeded
        )
}

/// Whether to try again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Yes.
    Left,
    /// The limit has passed.
    Ended,
}

/// How long the master has been away, and how often it was tried.
#[derive(Debug, Default)]
pub(crate) struct Away {
    since: Option<Instant>,
    tries: u32,
}

impl Away {
    /// Waits before the next try, longer each time.
    pub(crate) async fn pause(&mut self) -> Patience {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= AWAY_LIMIT {
            return Patience::Ended;
        }
        let doubled = PAUSE_FIRST.saturating_mul(2_u32.saturating_pow(self.tries.min(10)));
        self.tries += 1;
        tokio::time::sleep(doubled.min(PAUSE_MAX)).await;
        Patience::Left
    }

    /// What is told after the first pause.
    pub(crate) fn notice(&self) -> Option<String> {
        let limit = AWAY_LIMIT.as_secs();
        let first = self.tries == 1;
        first.then(|| format!("warning: the connection to the master is lost, trying again for {limit} s"))
    }

    fn is_back(&mut self) {
        *self = Away::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lost_connection_is_tried_again() {
        for (status, lost) in [
            (Status::unavailable(""), true),
            (Status::cancelled(""), true),
            (Status::not_found("job 9"), false),
            (Status::permission_denied(""), false),
            (Status::failed_precondition("not the master: node2 is"), false),
        ] {
            assert_eq!(connection_lost(&status), lost, "{status:?}");
        }
    }
}
