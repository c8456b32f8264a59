//! The environment of hook scripts (HOOKS.md E1-E5): built once, kept with the job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The phase's value of `HOOKS_PHASE` before the operation.
pub const PHASE_PRE: &str = "PRE";
/// The phase's value of `HOOKS_PHASE` after the operation.
pub const PHASE_POST: &str = "POST";
/// The phase's value of `HOOKS_PHASE` after an operation that was denied or failed.
pub const PHASE_FAILED: &str = "FAILED";
/// `PATH` of every script (HOOKS.md X5).
pub const SCRIPT_PATH: &str = "/sbin:/bin:/usr/sbin:/usr/bin";
/// What stands before every variable's name (HOOKS.md E1).
pub const VARIABLE_PREFIX: &str = "GANETI_";
/// Longest environment string, name and value and the sign between, in bytes; the kernel's bound is 128 KiB.
const STRING_BYTES_MAX: usize = 128 * 1024 - 1;

/// Most bytes of all strings together: half of what the kernel takes under the usual limit of 8 MiB for a stack, so that
/// there is room for what nodes add.
const ENV_BYTES_MAX: usize = 1024 * 1024;

/// Before or after the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Authorisation and checks.
    Pre,
    /// Logging, after the commit.
    Post,
    /// Logging, after an operation that was denied or failed.
    Failed,
}

impl Phase {
    /// The directory of a prefix: `node-add` gives `node-add-pre.d` (HOOKS.md D1).
    pub fn directory(self, prefix: &str) -> String {
        match self {
            Phase::Pre => format!("{prefix}-pre.d"),
            Phase::Post => format!("{prefix}-post.d"),
            Phase::Failed => format!("{prefix}-failed.d"),
        }
    }
}

/// Why a value can't be handed to scripts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// The kernel would refuse the string at exec.
    #[error("GANETI_{name} would be {bytes} bytes long; the limit is 128 KiB")]
    TooLong {
        /// The variable, without its prefix.
        name: String,
        /// Length of the whole string.
        bytes: usize,
    },
    /// The kernel would refuse them together.
    #[error(
        "the variables for scripts would be {bytes} bytes long together; the limit is 1 MiB (the longest is GANETI_{name})"
    )]
    TooLarge {
        /// The longest variable, without its prefix.
        name: String,
        /// Length of all strings.
        bytes: usize,
    },
    /// NUL can't stand in an environment string (HOOKS.md E3).
    #[error("the value of GANETI_{name} holds a NUL byte")]
    Nul {
        /// The variable, without its prefix.
        name: String,
    },
}

/// Variables of a hook run, their names without the `GANETI_` prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// An environment without variables.
    pub fn new() -> Self {
        Env::default()
    }

    /// Sets a variable; the name is without prefix.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Sets a flag of HOOKS.md E2: `True` or absent.
    #[must_use]
    pub fn flag(self, name: &str, given: bool) -> Self {
        if given { self.set(name, "True") } else { self }
    }

    /// Sets a boolean that is always there: `True` or `False` (E1).
    #[must_use]
    pub fn boolean(self, name: &str, value: bool) -> Self {
        self.set(name, if value { "True" } else { "False" })
    }

    /// Sets a variable that is absent when there is no value (E2).
    #[must_use]
    pub fn optional(self, name: &str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    /// Sets a list: one blank between, empty for none (E1).
    #[must_use]
    pub fn list<T: std::fmt::Display>(self, name: &str, items: &[T]) -> Self {
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        self.set(name, items.join(" "))
    }

    /// All of another environment's variables on top of these.
    #[must_use]
    pub fn with(mut self, other: Env) -> Self {
        self.0.extend(other.0);
        self
    }

    /// What a node adds for all of its scripts: itself, and where its facts are, if that is known.
    #[must_use]
    pub fn on_node(self, name: &str, data_dir: Option<&str>) -> Self {
        let kind = if self.get("MASTER") == Some(name) { "MASTER" } else { "NODE" };
        self.set("HOST_NAME", name).set("HOST_TYPE", kind).optional("DATA_DIR", data_dir)
    }

    /// What a node adds for one script: its own kill limit, in whole seconds, rounded up.
    #[must_use]
    pub fn for_script(self, kill_ms: u64) -> Self {
        self.set("HOOK_KILL_TIMEOUT_S", kill_ms.div_ceil(1000).to_string())
    }

    /// The value of a variable, its name without prefix.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Names (without prefix) and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Checks that the kernel will take every string (refused at check, not at exec).
    ///
    /// # Errors
    /// When a value holds NUL or is too long, the first such being named, or when all are too long together.
    pub fn validate(&self) -> Result<(), EnvError> {
        let length = |name: &str, value: &str| VARIABLE_PREFIX.len() + name.len() + 1 + value.len();
        for (name, value) in &self.0 {
            let bytes = length(name, value);
            if bytes > STRING_BYTES_MAX {
                return Err(EnvError::TooLong { name: name.clone(), bytes });
            }
            if value.contains('\0') {
                return Err(EnvError::Nul { name: name.clone() });
            }
        }
        // Each ends with a NUL.
        let bytes = self.0.iter().map(|(name, value)| length(name, value) + 1).sum();
        let longest = self.0.iter().max_by_key(|(name, value)| length(name, value));
        match longest {
            Some((name, _)) if bytes > ENV_BYTES_MAX => Err(EnvError::TooLarge { name: name.clone(), bytes }),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_would_refuse_is_refused_by_name_and_size() {
        let part = "x".repeat(STRING_BYTES_MAX / 2);
        let of = |parts: usize| {
            (0..parts).fold(Env::new(), |env, part_no| env.set(&format!("P{part_no}"), &*part))
        };
        assert_eq!(of(15).validate(), Ok(()));
        let why = of(17).validate().unwrap_err().to_string();
        assert!(why.contains("bytes long together; the limit is 1 MiB (the longest is GANETI_P16)"), "{why}");
        let long = Env::new().set("LONG", "x".repeat(STRING_BYTES_MAX)).validate().unwrap_err();
        assert!(matches!(long, EnvError::TooLong { .. }), "{long}");
        let nul = Env::new().set("NUL", "a\0b").validate().unwrap_err();
        assert!(matches!(nul, EnvError::Nul { .. }), "{nul}");
    }
}
