//! Questions that tests put to a master by gRPC, where a command's text would be ambiguous.

use std::path::Path;

use muster_proto::v1;
use muster_proto::v1::job_service_client::JobServiceClient;
use muster_proto::v1::query_service_client::QueryServiceClient;
use muster_tests::rpc;

use crate::cluster::{Cluster, wait_until};

/// A job of a test ends within this.
const JOB_LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

impl Cluster {
    /// The cluster as the master describes it.
    pub(crate) fn info(&self) -> v1::ClusterInfo {
        cluster_info(&self.socket())
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> Vec<v1::NodeInfo> {
        let answer = rpc::ask(&self.socket(), |channel| async move {
            QueryServiceClient::new(channel).list_nodes(v1::ListNodesRequest::default()).await
        });
        answer.unwrap().into_inner().nodes
    }

    /// All instances.
    pub(crate) fn instances(&self) -> Vec<v1::InstanceInfo> {
        let answer = rpc::ask(&self.socket(), |channel| async move {
            QueryServiceClient::new(channel).list_instances(v1::ListInstancesRequest::default()).await
        });
        answer.unwrap().into_inner().instances
    }

    /// One instance.
    #[track_caller]
    pub(crate) fn instance(&self, name: &str) -> v1::InstanceInfo {
        let all = self.instances();
        all.into_iter().find(|instance| instance.name == name).expect("the instance is there")
    }

    /// All exports.
    pub(crate) fn exports(&self) -> Vec<v1::ExportInfo> {
        let answer = rpc::ask(&self.socket(), |channel| async move {
            QueryServiceClient::new(channel).list_exports(v1::ListExportsRequest::default()).await
        });
        answer.unwrap().into_inner().exports
    }

    /// All jobs, without their reports.
    pub(crate) fn jobs(&self) -> Vec<v1::Job> {
        jobs(&self.socket())
    }

    /// One job with everything.
    pub(crate) fn job(&self, id: u64) -> v1::Job {
        job(&self.socket(), id)
    }

    /// The job with the highest id, with everything.
    #[track_caller]
    pub(crate) fn last_job(&self) -> v1::Job {
        let id = self.jobs().iter().map(|job| job.id).max().expect("there is a job");
        self.job(id)
    }

    /// The job when it has ended.
    #[track_caller]
    pub(crate) fn job_end(&self, id: u64) -> v1::Job {
        let mut last = self.job(id);
        let ended = wait_until(JOB_LIMIT, || {
            last = self.job(id);
            is_ended(&last)
        });
        assert!(ended, "job {id} is not over after {JOB_LIMIT:?}: {last:#?}");
        last
    }
}

/// The cluster as the master behind a socket describes it.
pub(crate) fn cluster_info(socket: &Path) -> v1::ClusterInfo {
    let answer = rpc::ask(socket, |channel| async move {
        QueryServiceClient::new(channel).get_cluster(v1::GetClusterRequest {}).await
    });
    answer.unwrap().into_inner()
}

/// All jobs of the master behind a socket.
pub(crate) fn jobs(socket: &Path) -> Vec<v1::Job> {
    let answer = rpc::ask(socket, |channel| async move {
        JobServiceClient::new(channel).list_jobs(v1::ListJobsRequest { active: false }).await
    });
    answer.unwrap().into_inner().jobs
}

/// One job of the master behind a socket.
pub(crate) fn job(socket: &Path, id: u64) -> v1::Job {
    let answer = rpc::ask(socket, |channel| async move {
        JobServiceClient::new(channel).get_job(v1::GetJobRequest { id }).await
    });
    answer.unwrap().into_inner()
}

/// Whether a job's status is final.
pub(crate) fn is_ended(job: &v1::Job) -> bool {
    matches!(job.status(), v1::JobStatus::Success | v1::JobStatus::Error | v1::JobStatus::Canceled)
}

/// The texts of a job's warnings.
pub(crate) fn warnings(job: &v1::Job) -> Vec<String> {
    let of_level = job.log.iter().filter(|line| line.level() == v1::LogLevel::Warning);
    of_level.map(|line| line.text.clone()).collect()
}
