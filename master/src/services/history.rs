//! The search behind `gnt-hooks history`: the jobs that are shown and those in the archive, the newest first, within bounds of
//! rows, jobs and time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use muster_core::{
    engine::Job,
    history::{HistoryFilter, HookRun, hook_runs},
    names::{NodeName, nearest},
};
use muster_proto::{convert::hook_runs::history_filter, v1};
use tokio::sync::Semaphore;
use tonic::Status;

use super::{hook_runs::blocking, waiting::turn};
use crate::{
    master::Master,
    store::{ArchivedJobs, StoreError},
};

/// Rows where nothing is said.
const ROWS_DEFAULT: usize = 100;
/// Most rows of an answer.
const ROWS_MAX: usize = 10_000;
/// Jobs that one search reads.
const JOBS_MAX: usize = 50_000;
/// How long one search reads: it uses a processor that the master may need.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Longest remark of a row, in characters; the whole is in the job.
const DETAIL_CHARS_MAX: usize = 300;
/// Searches at once; others wait.
static SEARCHES: Semaphore = Semaphore::const_new(2);

/// Answers a search.
pub(super) async fn search(
    master: &Arc<Master>,
    request: v1::ListHookRunsRequest,
) -> Result<v1::ListHookRunsResponse, Status> {
    let filter = history_filter(&request).map_err(|error| Status::invalid_argument(crate::chain(&error)))?;
    let limit = match usize::try_from(request.limit).unwrap_or(ROWS_MAX) {
        0 => ROWS_DEFAULT,
        limit if limit > ROWS_MAX => {
            return Err(Status::invalid_argument(format!("at most {ROWS_MAX} rows can be asked for")));
        }
        limit => limit,
    };
    let node = filter.node.clone();
    let _turn = turn(&SEARCHES).await?;
    let mut live: Vec<Arc<Job>> = master.view().jobs().into_iter().map(|view| view.job).collect();
    live.reverse();
    let store = master.config.store();
    let (found, passed_over) = blocking(move || {
        let mut archive = ArchivedJobs::open(&store).map_err(unreadable)?;
        let bounds = Bounds { rows: limit, jobs: JOBS_MAX, until: Instant::now() + TIME_MAX };
        let jobs = NewestFirst { live: live.into_iter(), next_live: None, next_archived: None };
        let next = || archive.next_job().map(|job| job.map(Arc::new));
        let found = find(jobs, next, &filter, &bounds).map_err(unreadable)?;
        Ok((found, archive.passed_over()))
    })
    .await?;
    let unknown =
        if found.runs.is_empty() { node.and_then(|node| unknown_node(master, &node)) } else { None };
    let damaged = (passed_over > 0).then(|| {
        format!("{passed_over} records of archived jobs can't be read and are left out; the master's log names them")
    });
    Ok(v1::ListHookRunsResponse {
        runs: found.runs.into_iter().map(Into::into).collect(),
        stopped: found.stopped,
        notes: unknown.into_iter().chain(damaged).collect(),
    })
}

fn unreadable(error: StoreError) -> Status {
    Status::data_loss(crate::chain(&error))
}

/// A node that is not there may have a history; a typing error has none.
fn unknown_node(master: &Master, node: &NodeName) -> Option<String> {
    let cluster = master.view().cluster()?;
    if cluster.nodes.contains_key(node) {
        return None;
    }
    let near = nearest(node.as_str(), cluster.nodes.keys().map(NodeName::as_str));
    let near = near.map(|near| format!("; the nearest name is {near}")).unwrap_or_default();
    Some(format!("there is no node {node} now{near}"))
}

/// What ends a search.
struct Bounds {
    rows: usize,
    jobs: usize,
    until: Instant,
}

/// What was found, and why there may be more.
#[derive(Debug, Default, PartialEq)]
struct Found {
    runs: Vec<HookRun>,
    stopped: Option<String>,
}

/// Jobs that are shown and jobs of the archive as one row of falling numbers, each once.
struct NewestFirst<L: Iterator<Item = Arc<Job>>> {
    live: L,
    next_live: Option<Arc<Job>>,
    next_archived: Option<Arc<Job>>,
}

impl<L: Iterator<Item = Arc<Job>>> NewestFirst<L> {
    fn next<E>(
        &mut self,
        archived: &mut impl FnMut() -> Result<Option<Arc<Job>>, E>,
    ) -> Result<Option<Arc<Job>>, E> {
        if self.next_live.is_none() {
            self.next_live = self.live.next();
        }
        if self.next_archived.is_none() {
            self.next_archived = archived()?;
        }
        let id = |job: &Option<Arc<Job>>| job.as_ref().map(|job| job.id());
        let (live, archived) = (id(&self.next_live), id(&self.next_archived));
        if live == archived {
            // Archived between the two looks.
            self.next_archived = None;
        }
        // A job is more than none.
        Ok(if live >= archived { self.next_live.take() } else { self.next_archived.take() })
    }
}

fn find<L: Iterator<Item = Arc<Job>>, E>(
    mut jobs: NewestFirst<L>,
    mut archived: impl FnMut() -> Result<Option<Arc<Job>>, E>,
    filter: &HistoryFilter,
    bounds: &Bounds,
) -> Result<Found, E> {
    let mut found = Found::default();
    let mut read = 0;
    while let Some(job) = jobs.next(&mut archived)? {
        if read >= bounds.jobs || Instant::now() >= bounds.until {
            found.stopped = Some(format!("the search stopped after {read} jobs, before job {}", job.id()));
            break;
        }
        read += 1;
        if filter.since_ms.is_some_and(|since| job.ended_ms.is_some_and(|ended| job.done() && ended < since))
        {
            continue;
        }
        let runs = hook_runs(&job).into_iter().rev().filter(|run| filter.takes(run)).map(shortened);
        found.runs.extend(runs.take(bounds.rows + 1 - found.runs.len()));
        if found.runs.len() > bounds.rows {
            found.runs.truncate(bounds.rows);
            found.stopped = Some(format!("the newest {} are shown; there are more (--limit)", bounds.rows));
            break;
        }
    }
    Ok(found)
}

fn shortened(run: HookRun) -> HookRun {
    match run.detail.char_indices().nth(DETAIL_CHARS_MAX) {
        Some((end, _)) => HookRun { detail: format!("{}...", &run.detail[..end]), ..run },
        None => run,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use muster_core::{
        hooks::{HookResult, NodeAnswer, NodeReport},
        names::ClusterName,
        ops::{ClusterDestroy, Op, examples},
    };

    use super::*;

    /// A job whose one node failed with these words.
    fn job(id: u64, words: &str) -> Arc<Job> {
        let mut job = Job::new(examples::submission(
            id,
            Op::ClusterDestroy(ClusterDestroy { name: ClusterName::parse("dev").unwrap() }),
        ));
        job.started_ms = Some(id * 1_000);
        let result = HookResult { failure: Some(words.to_owned()), ..HookResult::default() };
        let node = NodeName::parse("node1").unwrap();
        job.pre.push(NodeReport { node, answer: NodeAnswer::Answered(result), duration_ms: 1 });
        Arc::new(job)
    }

    fn search(
        live: &[u64],
        archived: &[u64],
        filter: &HistoryFilter,
        bounds: &Bounds,
    ) -> (Vec<u64>, Option<String>) {
        let live: Vec<Arc<Job>> = live.iter().map(|id| job(*id, "no")).collect();
        let jobs = NewestFirst { live: live.into_iter(), next_live: None, next_archived: None };
        let mut archived = archived.iter();
        let next = || Ok::<_, Infallible>(archived.next().map(|id| job(*id, "no")));
        let found = find(jobs, next, filter, bounds).unwrap();
        (found.runs.iter().map(|run| run.job).collect(), found.stopped)
    }

    fn bounds(rows: usize) -> Bounds {
        Bounds { rows, jobs: 100, until: Instant::now() + Duration::from_secs(600) }
    }

    #[test]
    fn jobs_of_both_places_come_newest_first_and_once() {
        let all = HistoryFilter::default();
        let found = search(&[9, 5, 4], &[7, 5, 3], &all, &bounds(10));
        assert_eq!(found, (vec![9, 7, 5, 4, 3], None));
        assert_eq!(
            search(&[], &[2, 1], &all, &bounds(2)),
            (vec![2, 1], None),
            "as many as wanted, and no more"
        );
        assert_eq!(search(&[], &[], &all, &bounds(2)), (vec![], None));
        let since = HistoryFilter { since_ms: Some(4_500), ..all };
        assert_eq!(search(&[9, 5, 4], &[7, 3], &since, &bounds(10)).0, [9, 7, 5]);
    }

    #[test]
    fn a_search_that_stopped_says_so() {
        let all = HistoryFilter::default();
        let (ids, stopped) = search(&[9, 5], &[7, 3], &all, &bounds(3));
        assert_eq!((ids, stopped.unwrap().contains("there are more")), (vec![9, 7, 5], true));
        let (ids, stopped) = search(&[9, 5], &[7, 3], &all, &Bounds { jobs: 2, ..bounds(10) });
        assert_eq!(
            (ids, stopped.unwrap()),
            (vec![9, 7], "the search stopped after 2 jobs, before job 5".to_owned())
        );
        let (ids, stopped) = search(&[9], &[], &all, &Bounds { until: Instant::now(), ..bounds(10) });
        assert_eq!((ids, stopped.unwrap().contains("after 0 jobs")), (vec![], true));
    }

    #[test]
    fn remarks_are_short() {
        let run = hook_runs(&job(1, &"é".repeat(400))).remove(0);
        assert_eq!(shortened(run).detail, format!("{}...", "é".repeat(DETAIL_CHARS_MAX)));
    }
}
