//! `gnt-instance console`: the stream of a guest's node, handed on. It ends with either side.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use muster_core::{model::Instance, names::nearest};
use muster_proto::v1::{self, instance_console_input::Input};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};
use tonic::{Code, Status, Streaming};

use crate::{master::Master, nodes::CallError};

/// Consoles that are open at once: each holds a stream to the client and one to the node.
pub(crate) const CONSOLES_MAX: usize = 100;
/// A client names the instance with its first message; one that says nothing for so long is given up.
const FIRST_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of one message: a terminal sends keys, a pipe up to a few pages.
const INPUT_BYTES_MAX: usize = 64 * 1024;

/// What the client gets.
pub(super) type Output = Pin<Box<dyn Stream<Item = Result<v1::ConsoleOutput, Status>> + Send>>;

/// Opens the console that the client's first message names.
pub(super) async fn open(
    master: &Arc<Master>,
    mut inputs: Streaming<v1::InstanceConsoleInput>,
) -> Result<Output, Status> {
    let permit = master.consoles.clone().try_acquire_owned().map_err(|_| {
        Status::resource_exhausted(format!("{CONSOLES_MAX} consoles are open already; try again later"))
    })?;
    let first = timeout(FIRST_LIMIT, inputs.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no instance was named in time"))??;
    let Some(v1::InstanceConsoleInput { input: Some(Input::Instance(name)) }) = first else {
        return Err(Status::invalid_argument("the first message names the instance"));
    };
    let instance = find(master, &name)?;
    let node = master.nodes().node(&instance.primary).map_err(|error| refused(&instance, error))?;
    let output = node.console(instance.uuid, typed(inputs)).await;
    let output = output.map_err(|error| refused(&instance, error))?;
    tracing::info!(instance = %instance.name, node = %instance.primary, "a console is open");
    let stopped = master.stop.clone().cancelled_owned();
    Ok(Box::pin(output.take_until(stopped).map(held_by(permit))))
}

fn find(master: &Master, name: &str) -> Result<Instance, Status> {
    let cluster = master.cluster()?;
    let found = cluster.instances.iter().find(|(known, _)| known.as_str() == name);
    let (_, instance) = found.ok_or_else(|| {
        let known = cluster.instances.keys().map(|known| known.as_str());
        let near = nearest(name, known).map(|near| format!("; the nearest name is {near}"));
        Status::not_found(format!("there is no instance {name}{}", near.unwrap_or_default()))
    })?;
    if cluster.nodes.get(&instance.primary).is_some_and(|node| node.offline) {
        let text = format!("the primary node {} of {name} is marked offline", instance.primary);
        return Err(Status::failed_precondition(text));
    }
    Ok(instance.clone())
}

/// What the client types, until it ends its side or sends what is no input: the node sees the end of the stream then.
fn typed(inputs: Streaming<v1::InstanceConsoleInput>) -> impl Stream<Item = Vec<u8>> + Send {
    stream::unfold(inputs, |mut inputs| async move {
        match inputs.message().await {
            Ok(Some(v1::InstanceConsoleInput { input: Some(Input::Data(data)) }))
                if data.len() <= INPUT_BYTES_MAX =>
            {
                Some((data, inputs))
            }
            Ok(_) | Err(_) => None,
        }
    })
}

/// Keeps the permit as long as the stream lives.
fn held_by(
    permit: OwnedSemaphorePermit,
) -> impl FnMut(Result<v1::ConsoleOutput, Status>) -> Result<v1::ConsoleOutput, Status> {
    move |output| {
        let _held = &permit;
        output.map_err(|status| Status::new(status.code(), status.message()))
    }
}

fn refused(instance: &Instance, error: CallError) -> Status {
    let text = format!("{} on {}: {error}", instance.name, instance.primary);
    match error {
        // Unavailable would say that the master can't be reached.
        CallError::NotReached(_) | CallError::OfficeLost(_) => Status::failed_precondition(text),
        CallError::Refused { code: Code::Ok | Code::Unknown | Code::Unavailable, .. } => {
            Status::internal(text)
        }
        CallError::Refused { code, .. } => Status::new(code, text),
    }
}
