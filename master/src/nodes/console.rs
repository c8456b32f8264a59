//! A guest's console on its node: input goes there, output comes back.

use futures::{Stream, StreamExt, stream};
use muster_proto::v1::{self, console_input::Input};
use tokio::time::timeout;
use tonic::Streaming;
use uuid::Uuid;

use super::{
    client::{NodeClient, Tries},
    limits::words,
    trouble::CallError,
};

impl NodeClient {
    /// Opens a guest's console. It is not opened again when the connection is lost: what was typed could come twice.
    ///
    /// # Errors
    /// When the node is not reached or refuses.
    pub async fn console(
        &self,
        instance: Uuid,
        typed: impl Stream<Item = Vec<u8>> + Send + 'static,
    ) -> Result<Streaming<v1::ConsoleOutput>, CallError> {
        let limit = self.inner.shared.limits().unary;
        let link = self.ready(&mut Tries::new(false)).await?;
        let start = v1::ConsoleStart {
            context: Some(self.inner.shared.context()),
            instance_uuid: instance.to_string(),
        };
        let inputs = stream::once(async { Input::Start(start) }).chain(typed.map(Input::Data));
        let mut node = link.node();
        let opened = node.console(inputs.map(|input| v1::ConsoleInput { input: Some(input) }));
        let silent = |_| CallError::NotReached(format!("no answer within {}", words(limit)));
        let output = timeout(limit, opened).await.map_err(silent)?;
        let output = output.map_err(|status| self.inner.shared.error(&status))?;
        link.answered();
        Ok(output.into_inner())
    }
}
