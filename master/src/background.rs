//! What the master does by itself: tries left-over cleanups again, renews certificates that are due, repairs mirrors.

use std::{sync::Arc, time::Duration};

use muster_core::{
    engine::Input,
    names::NodeName,
    ops::{CertificatesRenew, Op},
};
use muster_proto::v1;

use crate::{
    ca::may_have_data_certificate,
    driver::{Command, Request, SubmitRefusal},
    events, hookset, host_facts,
    master::{Master, Standing},
    mirrors, office,
};

/// How often left-over cleanups are tried again.
const CLEANUP_PERIOD: Duration = Duration::from_secs(30);
/// How often certificates are looked at.
const RENEW_PERIOD: Duration = Duration::from_secs(3600);
/// A leaf certificate lives for 365 days and is renewed at two thirds of that.
const RENEW_DAYS_LEFT: i64 = 122;

/// Starts the periodic work; it ends with the daemon.
pub(crate) fn start(master: &Arc<Master>) {
    let (cleanups, certificates) = (master.clone(), master.clone());
    tokio::spawn(every(CLEANUP_PERIOD, master.clone(), move || {
        let master = cleanups.clone();
        async move { master.answer(Input::Retry).await }
    }));
    tokio::spawn(mirrors::keep(master.clone()));
    tokio::spawn(hookset::keep(master.clone()));
    tokio::spawn(hookset::keep_on_change(master.clone()));
    tokio::spawn(host_facts::keep(master.clone()));
    tokio::spawn(events::keep(master.clone()));
    tokio::spawn(every(RENEW_PERIOD, master.clone(), move || renew_due(certificates.clone())));
}

async fn every<F: Future<Output = ()>>(period: Duration, master: Arc<Master>, work: impl Fn() -> F) {
    let mut ticks = tokio::time::interval(period);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = master.stop.cancelled() => return,
        }
        if matches!(master.standing(), Standing::Active | Standing::Retired { .. }) {
            work().await;
        }
    }
}

/// Renews what is due: the nodes' certificates by a job like an operator's, the master's own here.
async fn renew_due(master: Arc<Master>) {
    // A retired master too goes on answering by TLS who the master is.
    let Some(cluster) = master.view.cluster() else { return };
    let own_due = master.tls.lock().expect("no holder of this lock panics").as_ref().is_some_and(|tls| {
        let now = std::time::SystemTime::now();
        tls.validity().renewal_due(now.into())
    });
    if own_due && let Err(error) = office::renew_own(&master, &cluster) {
        tracing::error!(error = %crate::chain(&error), "could not renew the master's own certificate");
    }
    let due = |name: &&NodeName| master.nodes.state(name).is_some_and(|(state, _)| is_due(name, &state));
    let nodes: Vec<NodeName> = cluster.nodes.keys().filter(due).cloned().collect();
    if nodes.is_empty() || master.standing() != Standing::Active {
        return;
    }
    let op = Op::CertificatesRenew(CertificatesRenew { nodes });
    let reason = "certificates are due for renewal".to_owned();
    let request = Request { reason, ..Request::new(op, "muster-masterd") };
    let submitted = Box::new(|result: Result<u64, SubmitRefusal>| match result {
        Ok(job) => tracing::info!(job, "renewing certificates that are due"),
        Err(error) => tracing::error!(%error, "could not submit the renewal of certificates"),
    });
    if let Err(error) = master.send(Command::Submit(Box::new(request), submitted)).await {
        tracing::warn!(%error, "could not submit the renewal of certificates");
    }
}

/// Whether a node's certificate is in the last third of its life, or its data certificate is, or is missing: a node that
/// was added by an older version has none. A node that has no certificate at all is not renewed but added.
fn is_due(name: &NodeName, state: &v1::NodeState) -> bool {
    let data_due = state.data_certificate_due && may_have_data_certificate(name);
    !state.certificate_fingerprint.is_empty() && (state.certificate_days < RENEW_DAYS_LEFT || data_due)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_renewed_in_the_last_third_of_their_life() {
        for (name, days, fingerprint, data_due, due) in [
            ("node2", 364, "ab", false, false),
            ("node2", 122, "ab", false, false),
            ("node2", 121, "ab", false, true),
            ("node2", -1, "ab", false, true),
            ("node2", 0, "", false, false),
            ("node2", 364, "ab", true, true),
            ("node2", 0, "", true, false),
            // It would be due for ever: its data certificate is never signed.
            ("muster-master", 364, "ab", true, false),
            ("muster-master", 121, "ab", true, true),
        ] {
            let state = v1::NodeState {
                certificate_days: days,
                certificate_fingerprint: fingerprint.to_owned(),
                data_certificate_due: data_due,
                ..v1::NodeState::default()
            };
            let found = is_due(&NodeName::parse(name).unwrap(), &state);
            assert_eq!(found, due, "{name}, {days} days, fingerprint {fingerprint:?}, data {data_due}");
        }
    }
}
