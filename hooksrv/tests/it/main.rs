//! Hook running shown rule by rule, with real scripts in temporary directories.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test that uses them")]

mod calls;
mod crash;
mod extras;
mod keeper;
mod running;
mod scanning;
mod support;
mod surroundings;
