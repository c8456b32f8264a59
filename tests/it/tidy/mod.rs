//! Checks of this repository that no compiler makes: layout, directions of dependencies, sizes, words, and that every rule has its
//! test. Lists of exceptions may only get shorter.

mod files;
pub(crate) mod hook_reference;
mod layout;
mod operations;
mod rules_shown;
mod sources;
