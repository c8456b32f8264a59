//! `gnt`: the operator's commands. `gnt GROUP VERB ...`, or `gnt-GROUP VERB ...` through a link of that name.
//!
//! `args` parses what is typed, `commands` carries it out through `client` and `follow`, `output` renders.

mod args;
mod client;
mod commands;
mod exit;
mod follow;
mod output;

use std::process::ExitCode;

fn main() -> ExitCode {
    let line = match args::parse(std::env::args_os().collect()) {
        Ok(line) => line,
        // Also --help and --version; the code is 2 for wrong usage.
        Err(error) => error.exit(),
    };
    // One thread: a command waits for one thing at a time, and starts quicker.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(&format!("error: could not start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(commands::run(line)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.text() {
                output::note(&text);
            }
            failure.into()
        }
    }
}
