//! What is printed: results on stdout, everything else on stderr.
//!
//! Rendering is made of pure functions from messages to text or JSON; writing happens here alone.

pub(crate) mod cluster;
pub(crate) mod denial;
pub(crate) mod explain;
pub(crate) mod exports;
pub(crate) mod fields;
pub(crate) mod filter;
pub(crate) mod groups;
pub(crate) mod hook_policy;
pub(crate) mod hook_runs;
pub(crate) mod hook_sets;
pub(crate) mod hooks;
pub(crate) mod host;
pub(crate) mod instances;
pub(crate) mod job_info;
pub(crate) mod jobs;
pub(crate) mod lint;
pub(crate) mod list;
pub(crate) mod networks;
pub(crate) mod node_commands;
pub(crate) mod nodes;
pub(crate) mod oses;
pub(crate) mod progress;
pub(crate) mod scripts;
pub(crate) mod tags;
pub(crate) mod text;
pub(crate) mod words;

use std::io::{self, Write};

use serde_json::Value;

use crate::exit::Failure;

/// Writes a result to stdout; a newline is added where the text ends without.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let newline: &[u8] = if text.is_empty() || text.ends_with('\n') { b"" } else { b"\n" };
    let written =
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(newline)).and_then(|()| out.flush());
    written.map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::Refused(format!("could not write to stdout: {error}"))
    })
}

/// Writes the one JSON document of a command to stdout.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value:#}"))
}

/// Writes a line to stderr. Nobody there to read it is no reason to stop: the job goes on all the same.
pub(crate) fn note(line: &str) {
    let mut err = io::stderr().lock();
    match err.write_all(line.as_bytes()).and_then(|()| err.write_all(b"\n")) {
        Ok(()) | Err(_) => {}
    }
}

/// An array for several things, the thing itself where one was named.
pub(crate) fn one_or_array(mut values: Vec<Value>, named: usize) -> Value {
    if named == 1 && values.len() == 1 { values.remove(0) } else { Value::Array(values) }
}
