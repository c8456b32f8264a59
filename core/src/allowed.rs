//! What admins may do on nodes beyond operations: the programs that `gnt-cluster command` may run, and the files that
//! `gnt-cluster copyfile` may write. Nothing, unless the cluster's parameters list it.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The longest pattern or path, in bytes.
pub const ALLOWED_BYTES_MAX: usize = 1024;
/// Patterns, and files, of a cluster.
pub const ALLOWED_ITEMS_MAX: usize = 256;
/// What stands for any one argument.
const ANY: &str = "*";

/// The text is no pattern of a command, or no path of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {why}")]
pub struct AllowedError {
    text: String,
    why: &'static str,
}

fn wrong(text: &str, why: &'static str) -> AllowedError {
    AllowedError { text: text.chars().take(80).collect(), why }
}

/// A path from the root whose parts are all names: as it is written is where it leads, links aside.
fn check_path(path: &str) -> Result<(), &'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Err("does not start with /") };
    if path.len() > ALLOWED_BYTES_MAX {
        return Err("is longer than 1024 bytes");
    }
    if path.contains(char::is_control) {
        return Err("holds a control character");
    }
    if rest.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("has an empty part, or one of dots only");
    }
    Ok(())
}

/// A command line that is allowed: an absolute program, then its arguments as they must be, `*` for any one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommandPattern(Vec<String>);

impl CommandPattern {
    /// Whether a command line is allowed by this pattern.
    pub fn matches(&self, argv: &[String]) -> bool {
        let fits = |(index, (wanted, given)): (usize, (&String, &String))| {
            wanted == given || (index > 0 && wanted == ANY)
        };
        self.0.len() == argv.len() && self.0.iter().zip(argv).enumerate().all(fits)
    }
}

impl FromStr for CommandPattern {
    type Err = AllowedError;

    fn from_str(text: &str) -> Result<Self, AllowedError> {
        let words: Vec<String> = text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let Some(program) = words.first() else { return Err(wrong(text, "names no program")) };
        check_path(program).map_err(|why| wrong(text, why))?;
        if program.contains('*') {
            return Err(wrong(text, "has a * in the program's place: each program must be named"));
        }
        if text.len() > ALLOWED_BYTES_MAX {
            return Err(wrong(text, "is longer than 1024 bytes"));
        }
        if text.contains(char::is_control) {
            return Err(wrong(text, "holds a control character"));
        }
        Ok(CommandPattern(words))
    }
}

impl fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl TryFrom<String> for CommandPattern {
    type Error = AllowedError;
    fn try_from(text: String) -> Result<Self, AllowedError> {
        text.parse()
    }
}

impl From<CommandPattern> for String {
    fn from(pattern: CommandPattern) -> String {
        pattern.to_string()
    }
}

/// The absolute path of a file that may be written on nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilePath(String);

impl FilePath {
    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FilePath {
    type Err = AllowedError;

    fn from_str(text: &str) -> Result<Self, AllowedError> {
        check_path(text).map_err(|why| wrong(text, why))?;
        Ok(FilePath(text.to_owned()))
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for FilePath {
    type Error = AllowedError;
    fn try_from(text: String) -> Result<Self, AllowedError> {
        text.parse()
    }
}

impl From<FilePath> for String {
    fn from(path: FilePath) -> String {
        path.0
    }
}

/// All that is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allowed {
    /// Command lines.
    pub commands: BTreeSet<CommandPattern>,
    /// Files.
    pub files: BTreeSet<FilePath>,
}

impl Allowed {
    /// Whether a command line may be run.
    pub fn command(&self, argv: &[String]) -> bool {
        self.commands.iter().any(|pattern| pattern.matches(argv))
    }

    /// Whether a file may be written.
    pub fn file(&self, path: &FilePath) -> bool {
        self.files.contains(path)
    }
}

/// A change of what is allowed; what is in none of the lists stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllowedChange {
    /// Command lines that are allowed from now on.
    pub allow_commands: Vec<CommandPattern>,
    /// Command lines that are no more.
    pub disallow_commands: Vec<CommandPattern>,
    /// Files that may be written from now on.
    pub allow_files: Vec<FilePath>,
    /// Files that may not be written any more.
    pub disallow_files: Vec<FilePath>,
}

impl AllowedChange {
    /// What is allowed after the change.
    ///
    /// # Errors
    /// When something is taken away that is not there, or there would be too much; in words for the operator.
    pub fn apply(&self, before: &Allowed) -> Result<Allowed, String> {
        let mut after = before.clone();
        for pattern in &self.disallow_commands {
            if !after.commands.remove(pattern) {
                return Err(format!("the command \"{pattern}\" is not among those that are allowed"));
            }
        }
        for path in &self.disallow_files {
            if !after.files.remove(path) {
                return Err(format!("the file {path} is not among those that are allowed"));
            }
        }
        after.commands.extend(self.allow_commands.iter().cloned());
        after.files.extend(self.allow_files.iter().cloned());
        if after.commands.len().max(after.files.len()) > ALLOWED_ITEMS_MAX {
            return Err(format!("at most {ALLOWED_ITEMS_MAX} commands and as many files can be allowed"));
        }
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(line: &str) -> Vec<String> {
        line.split('|').map(str::to_owned).collect()
    }

    #[test]
    fn a_pattern_allows_its_own_program_with_as_many_arguments() {
        let pattern: CommandPattern = "/bin/echo  -n *".parse().unwrap();
        assert_eq!(pattern.to_string(), "/bin/echo -n *");
        for (line, allowed) in [
            ("/bin/echo|-n|x", true),
            ("/bin/echo|-n|a b; rm -rf /", true),
            ("/bin/echo|-n|", true),
            ("/bin/echo|-n", false),
            ("/bin/echo|-n|x|y", false),
            ("/bin/echo|-e|x", false),
            ("/bin/../bin/echo|-n|x", false),
            ("echo|-n|x", false),
        ] {
            assert_eq!(pattern.matches(&argv(line)), allowed, "{line}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", " ", "echo", "* x", "/bin/*", "/bin/../sh", "/bin//sh", "/bin/sh\t-c", "/bin/sh\n"] {
            assert!(text.parse::<CommandPattern>().is_err(), "{text:?}");
        }
        for text in ["", "/", "etc/hosts", "/etc/", "/etc/../etc/hosts", "/etc/./hosts", "/etc/a\nb"] {
            assert!(text.parse::<FilePath>().is_err(), "{text:?}");
        }
        assert!(format!("/{}", "x".repeat(ALLOWED_BYTES_MAX)).parse::<FilePath>().is_err());
    }

    #[test]
    fn nothing_is_allowed_that_is_not_listed() {
        let mut change = AllowedChange {
            allow_commands: vec!["/bin/true".parse().unwrap()],
            allow_files: vec!["/etc/motd".parse().unwrap()],
            ..AllowedChange::default()
        };
        let path: FilePath = "/etc/motd".parse().unwrap();
        assert!(!Allowed::default().command(&argv("/bin/true")) && !Allowed::default().file(&path));
        let allowed = change.apply(&Allowed::default()).unwrap();
        assert!(allowed.command(&argv("/bin/true")) && allowed.file(&path));
        assert!(!allowed.command(&[]));
        (change.disallow_commands, change.allow_commands) = (change.allow_commands, Vec::new());
        let after = change.apply(&allowed).unwrap();
        assert!(!after.command(&argv("/bin/true")) && after.file(&path));
        assert!(change.apply(&after).unwrap_err().contains("/bin/true"));
        let text = serde_json::to_string(&allowed).unwrap();
        assert_eq!(serde_json::from_str::<Allowed>(&text).unwrap(), allowed);
    }
}
