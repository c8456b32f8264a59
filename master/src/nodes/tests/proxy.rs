//! A proxy between two unix sockets that can freeze, as a stopped host does, and cut, as a lost one.

use std::path::{Path, PathBuf};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split},
    net::{UnixListener, UnixStream},
    sync::watch,
};

use super::fixture::within;

pub(super) struct Proxy {
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    frozen: bool,
    /// Connections made under a smaller number are closed.
    cuts: u64,
    forwarded: u64,
}

impl Proxy {
    pub(super) fn new(listen: &Path, target: &Path) -> Self {
        let listener = UnixListener::bind(listen).unwrap();
        let state = watch::Sender::new(State::default());
        tokio::spawn(accept(listener, target.to_owned(), state.clone()));
        Proxy { state }
    }

    /// Forwards nothing any more, but keeps connections open and takes new ones.
    pub(super) fn freeze(&self) {
        self.state.send_modify(|state| state.frozen = true);
    }

    /// Closes all connections; new ones are forwarded.
    pub(super) fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Waits until so many more pieces were forwarded.
    pub(super) async fn forwarded(&self, more: u64) {
        let mut state = self.state.subscribe();
        let goal = state.borrow().forwarded + more;
        within(state.wait_for(|state| state.forwarded >= goal)).await.unwrap();
    }
}

async fn accept(listener: UnixListener, target: PathBuf, state: watch::Sender<State>) {
    while let Ok((near, _)) = listener.accept().await {
        let Ok(far) = UnixStream::connect(&target).await else { continue };
        let (near_read, near_write) = split(near);
        let (far_read, far_write) = split(far);
        tokio::spawn(forward(near_read, far_write, state.clone()));
        tokio::spawn(forward(far_read, near_write, state.clone()));
    }
}

async fn forward(mut from: ReadHalf<UnixStream>, mut to: WriteHalf<UnixStream>, state: watch::Sender<State>) {
    let mut watched = state.subscribe();
    let cuts = watched.borrow().cuts;
    let pump = async {
        let mut buffer = vec![0; 16 * 1024];
        let mut thaw = state.subscribe();
        while let Ok(count) = from.read(&mut buffer).await
            && count > 0
        {
            if thaw.wait_for(|state| !state.frozen).await.is_err() {
                return;
            }
            if to.write_all(&buffer[..count]).await.is_err() {
                return;
            }
            state.send_modify(|state| state.forwarded += 1);
        }
    };
    tokio::select! {
        () = pump => {}
        _ = watched.wait_for(|state| state.cuts > cuts) => {}
    }
    let _ = to.shutdown().await;
}
