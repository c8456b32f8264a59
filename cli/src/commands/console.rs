//! `gnt-instance console`: the guest's serial console on this terminal, or between pipes.

use std::io::{self, IsTerminal, Read, Write};

use muster_proto::v1::{ConsoleOutput, InstanceConsoleInput, instance_console_input::Input};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{
    args::ConnectionFlags,
    client::{Master, answer},
    exit::Failure,
    output::note,
    terminal::{Escape, RawTerminal},
};

/// Bytes read from stdin at once.
const INPUT_BYTES: usize = 4096;
/// Messages to the master that may wait: the guest takes what is typed only as fast as its serial line.
const INPUTS_WAITING_MAX: usize = 16;

/// Connects, and goes on until the guest's side ends or the operator leaves.
pub(super) async fn run(connection: &ConnectionFlags, instance: String) -> Result<(), Failure> {
    let master = Master::connect(connection).await?;
    let (inputs, waiting) = mpsc::channel(INPUTS_WAITING_MAX);
    let first = InstanceConsoleInput { input: Some(Input::Instance(instance.clone())) };
    inputs.try_send(first).expect("a new channel has room and its receiver is held here");
    let output = answer(master.queries().instance_console(ReceiverStream::new(waiting))).await?;
    let on_terminal = io::stdin().is_terminal();
    if on_terminal {
        note(&format!("console of {instance}: Ctrl-] and then q leaves it"));
    }
    let shown = {
        let _raw = if on_terminal { Some(RawTerminal::switch().map_err(no_terminal)?) } else { None };
        let (leave, left) = oneshot::channel();
        let typing = inputs.clone();
        std::thread::spawn(move || type_all(&typing, on_terminal.then(Escape::default), leave));
        // The sender that is held here keeps the stream open when stdin has ended.
        let shown = show(output, left, on_terminal).await;
        drop(inputs);
        shown
    };
    if on_terminal {
        note(&format!("\nleft the console of {instance}"));
    }
    shown
}

fn no_terminal(error: io::Error) -> Failure {
    Failure::Refused(format!("the terminal can't be switched: {error}"))
}

/// Shows what the guest says until one side ends; a signal that ends the command leaves the terminal in order, too.
async fn show(
    mut output: Streaming<ConsoleOutput>,
    mut left: oneshot::Receiver<()>,
    on_terminal: bool,
) -> Result<(), Failure> {
    let no_signals = |error| Failure::Refused(format!("could not listen for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let mut may_leave = on_terminal;
    loop {
        tokio::select! {
            message = output.message() => match message? {
                Some(ConsoleOutput { data }) => write(&data)?,
                None => return Ok(()),
            },
            asked = &mut left, if may_leave => match asked {
                Ok(()) => return Ok(()),
                // The terminal's input ended without a wish.
                Err(_) => may_leave = false,
            },
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Err(Failure::Told),
            _ = hangup.recv() => return Err(Failure::Told),
        }
    }
}

fn write(data: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(data).and_then(|()| out.flush()).map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::Refused(format!("could not write to stdout: {error}"))
    })
}

/// Sends what is typed, in a thread of its own: a read that waits can't be ended, and ends with the process.
fn type_all(inputs: &mpsc::Sender<InstanceConsoleInput>, escape: Option<Escape>, leave: oneshot::Sender<()>) {
    let mut escape = escape;
    let mut stdin = io::stdin().lock();
    let mut buffer = [0; INPUT_BYTES];
    loop {
        let length = match stdin.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let (data, left) = match &mut escape {
            Some(escape) => escape.pass(&buffer[..length]),
            None => (buffer[..length].to_vec(), false),
        };
        let message = InstanceConsoleInput { input: Some(Input::Data(data)) };
        if inputs.blocking_send(message).is_err() {
            return;
        }
        if left {
            // Nobody listens when the guest's side has just ended.
            let _ = leave.send(());
            return;
        }
    }
}
