//! `GANETI_*` variables in a shell script: quoting, comments and here-documents are followed as far as reading needs it.
//! Names that are made at run time (`${!name}`, `eval`) are nobody's readings here.

use super::variables::{Read, Reads};
use crate::hooks::VARIABLE_PREFIX;

/// Where the scanner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    /// Commands; so many brackets are open.
    Commands(u32),
    /// Between double quotes.
    Quoted,
    /// In `$((...))`; so many brackets are open.
    Arithmetic(u32),
}

/// A here-document that begins at the next line.
struct HereDocument {
    end: String,
    is_literal: bool,
    is_indented: bool,
}

struct Scanner<'a> {
    rest: &'a str,
    line: u32,
    contexts: Vec<Context>,
    here: Vec<HereDocument>,
    /// The next character begins a word of a command.
    at_word: bool,
    reads: Reads,
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A variable's name at the start of a text, with its prefix taken off, and what follows.
fn variable(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix(VARIABLE_PREFIX)?;
    let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    Some(rest.split_at(end)).filter(|(name, _)| !name.is_empty())
}

/// Whether the words of a `set` command, or of the `#!` line, ask for an end at unset variables.
fn asks_nounset(words: &str) -> bool {
    let mut is_option_name = false;
    for word in words.split_whitespace() {
        if std::mem::take(&mut is_option_name) && word == "nounset" {
            return true;
        }
        let Some(flags) = word.strip_prefix('-').filter(|flags| !flags.starts_with('-')) else { continue };
        if flags.contains('u') {
            return true;
        }
        is_option_name = flags.ends_with('o');
    }
    false
}

/// `arguments`: those of the shell in the `#!` line.
pub(super) fn reads(text: &str, arguments: &str) -> Reads {
    let mut scanner = Scanner {
        rest: text,
        line: 1,
        contexts: vec![Context::Commands(0)],
        here: Vec::new(),
        at_word: true,
        reads: Reads { ends_at_unset: asks_nounset(arguments), ..Reads::default() },
    };
    while !scanner.rest.is_empty() {
        scanner.step();
    }
    scanner.reads
}

impl<'a> Scanner<'a> {
    /// Passes over so many bytes.
    fn skip(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        let newlines = passed.bytes().filter(|byte| *byte == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(newlines).unwrap_or(u32::MAX));
        self.rest = rest;
    }

    /// Passes over everything up to the first of a character, itself included.
    fn skip_past(&mut self, end: char) {
        let bytes = self.rest.find(end).map_or(self.rest.len(), |at| at + end.len_utf8());
        self.skip(bytes);
    }

    fn context(&mut self) -> &mut Context {
        if self.contexts.is_empty() {
            self.contexts.push(Context::Commands(0));
        }
        self.contexts.last_mut().expect("one was just put there")
    }

    fn step(&mut self) {
        let Some(c) = self.rest.chars().next() else { return };
        match (c, *self.context()) {
            ('\\', _) => {
                let bytes = self.rest.chars().take(2).map(char::len_utf8).sum();
                self.skip(bytes);
                self.at_word = false;
            }
            ('$', context) => self.dollar(context),
            ('"', Context::Quoted) => {
                self.skip(1);
                self.contexts.pop();
            }
            (_, Context::Quoted) => self.skip(c.len_utf8()),
            ('(', Context::Arithmetic(open)) => self.bracket(Context::Arithmetic(open + 1)),
            (')', Context::Arithmetic(open)) if open <= 1 => {
                self.skip(1);
                self.contexts.pop();
            }
            (')', Context::Arithmetic(open)) => self.bracket(Context::Arithmetic(open - 1)),
            (_, Context::Arithmetic(_)) => self.skip(c.len_utf8()),
            (c, Context::Commands(open)) => self.command(c, open),
        }
    }

    fn bracket(&mut self, after: Context) {
        self.skip(1);
        *self.context() = after;
        self.at_word = true;
    }

    fn command(&mut self, c: char, open: u32) {
        match c {
            '\'' => {
                self.skip(1);
                self.skip_past('\'');
                self.at_word = false;
            }
            '"' => {
                self.skip(1);
                self.contexts.push(Context::Quoted);
                self.at_word = false;
            }
            '#' if self.at_word => {
                let bytes = self.rest.find('\n').unwrap_or(self.rest.len());
                self.skip(bytes);
            }
            '\n' => {
                self.skip(1);
                self.at_word = true;
                for document in std::mem::take(&mut self.here) {
                    self.here_document(&document);
                }
            }
            '(' => self.bracket(Context::Commands(open.saturating_add(1))),
            ')' if open == 0 && self.contexts.len() > 1 => {
                self.skip(1);
                self.contexts.pop();
            }
            ')' => self.bracket(Context::Commands(open.saturating_sub(1))),
            '<' if self.rest.starts_with("<<<") => self.skip(3),
            '<' if self.rest.starts_with("<<") => self.here_begins(),
            ' ' | '\t' | ';' | '|' | '&' | '`' => {
                self.skip(1);
                self.at_word = true;
            }
            c => {
                if self.at_word {
                    self.word();
                }
                self.at_word = false;
                self.skip(c.len_utf8());
            }
        }
    }

    /// A word begins here: an assignment, `set` with its options, or a test for a variable.
    fn word(&mut self) {
        if let Some((name, after)) = variable(self.rest) {
            if after.starts_with('=') || after.starts_with("+=") {
                self.reads.assigned.insert(name.to_owned());
            }
        } else if let Some(words) = self.rest.strip_prefix("set ") {
            let command = words.split(['\n', ';', '|', '&']).next().unwrap_or_default();
            self.reads.ends_at_unset |= asks_nounset(command);
        } else if let Some((name, _)) = self.rest.strip_prefix("-v ").and_then(variable) {
            self.reads.guarded.insert(name.to_owned());
        }
    }

    fn dollar(&mut self, context: Context) {
        self.at_word = false;
        if self.rest.starts_with("$((") {
            self.skip(3);
            self.contexts.push(Context::Arithmetic(2));
        } else if self.rest.starts_with("$(") {
            self.skip(2);
            self.contexts.push(Context::Commands(0));
            self.at_word = true;
        } else if self.rest.starts_with("$'") && context != Context::Quoted {
            self.skip(2);
            while !self.rest.is_empty() && !self.rest.starts_with('\'') {
                let taken = if self.rest.starts_with('\\') { 2 } else { 1 };
                let bytes = self.rest.chars().take(taken).map(char::len_utf8).sum();
                self.skip(bytes);
            }
            self.skip(usize::from(!self.rest.is_empty()));
        } else {
            let bytes = self.expansion();
            self.skip(bytes);
        }
    }

    /// Notes the reading at a `$`; returns how many bytes are done with.
    fn expansion(&mut self) -> usize {
        let line = self.line;
        let after_dollar = &self.rest[1..];
        if let Some((name, _)) = variable(after_dollar) {
            self.reads.plain.push(Read { name: name.to_owned(), line, is_strict: false });
            return 1 + VARIABLE_PREFIX.len() + name.len();
        }
        let Some(inner) = after_dollar.strip_prefix('{') else {
            // `$#`, `$$` and their like, or a `$` alone.
            let is_special = after_dollar.starts_with(['#', '$', '?', '!', '@', '*', '-']);
            return 1 + usize::from(is_special);
        };
        let (length_of, inner) = inner.strip_prefix('#').map_or((0, inner), |inner| (1, inner));
        let Some((name, operator)) = variable(inner) else { return 2 };
        let meaning = operator.strip_prefix(':').unwrap_or(operator).chars().next();
        match meaning {
            Some('-' | '=' | '+') => drop(self.reads.guarded.insert(name.to_owned())),
            Some(c) => {
                let read = Read { name: name.to_owned(), line, is_strict: c == '?' };
                self.reads.plain.push(read);
            }
            None => {}
        }
        2 + length_of + VARIABLE_PREFIX.len() + name.len()
    }

    fn here_begins(&mut self) {
        let is_indented = self.rest.starts_with("<<-");
        self.skip(2 + usize::from(is_indented));
        let blanks = self.rest.len() - self.rest.trim_start_matches([' ', '\t']).len();
        self.skip(blanks);
        let is_end = |c: char| c.is_whitespace() || [';', '|', '&', ')', '<', '>'].contains(&c);
        let bytes = self.rest.find(is_end).unwrap_or(self.rest.len());
        let word = &self.rest[..bytes];
        let end: String = word.chars().filter(|c| !['\'', '"', '\\'].contains(c)).collect();
        let is_literal = end.len() != word.len();
        self.skip(bytes);
        if !end.is_empty() {
            self.here.push(HereDocument { end, is_literal, is_indented });
        }
    }

    fn here_document(&mut self, document: &HereDocument) {
        while !self.rest.is_empty() {
            let rest: &'a str = self.rest;
            let line = rest.split('\n').next().unwrap_or_default();
            let after = &rest[(line.len() + 1).min(rest.len())..];
            let is_end =
                document.end == if document.is_indented { line.trim_start_matches('\t') } else { line };
            if !is_end && !document.is_literal {
                self.here_line(line);
            }
            self.rest = after;
            self.line = self.line.saturating_add(1);
            if is_end {
                return;
            }
        }
    }

    /// Expansions in a line of a here-document, where quotes mean nothing.
    fn here_line(&mut self, line: &'a str) {
        self.rest = line;
        while let Some(at) = self.rest.find(['$', '\\']) {
            self.rest = &self.rest[at..];
            let bytes = if self.rest.starts_with('\\') {
                self.rest.chars().take(2).map(char::len_utf8).sum()
            } else {
                self.expansion()
            };
            self.rest = &self.rest[bytes..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, plain: &[(&str, u32)], guarded: &[&str]) {
        let found = reads(text, "");
        let read: Vec<(&str, u32)> = found.plain.iter().map(|r| (r.name.as_str(), r.line)).collect();
        assert_eq!(read, plain, "{text}");
        assert!(found.guarded.iter().eq(guarded), "{text}: {:?}", found.guarded);
    }

    #[test]
    fn forms_of_reading() {
        check(
            "echo $GANETI_A ${GANETI_B} \"${GANETI_C%x}\" ${#GANETI_D}\n",
            &[("A", 1), ("B", 1), ("C", 1), ("D", 1)],
            &[],
        );
        check("x=${GANETI_A-} y=${GANETI_B:-z} ${GANETI_C:+c} ${GANETI_D=d}", &[], &["A", "B", "C", "D"]);
        check("echo \"${GANETI_A:-$GANETI_B}\"", &[("B", 1)], &["A"]);
        check("[[ -v GANETI_A ]] && echo \"$GANETI_A\"", &[("A", 1)], &["A"]);
        check(
            "\n\necho $(echo $((1 << GANETI_A)) \"$GANETI_B\")\necho $GANETI_C",
            &[("B", 3), ("C", 4)],
            &[],
        );
    }

    #[test]
    fn what_is_no_reading() {
        check("echo '$GANETI_A' \\$GANETI_B \"\\${GANETI_C}\" # $GANETI_D\n", &[], &[]);
        check("# it's $GANETI_A\necho \"it's $GANETI_B\" 'a'\n", &[("B", 2)], &[]);
        check("n=GANETI_NIC${i}_MAC; echo ${!n} ${!GANETI_*}\n", &[], &[]);
        check("echo $# $GANETI_A", &[("A", 1)], &[]);
        check("echo $'it\\'s' $GANETI_A", &[("A", 1)], &[]);
        check("echo $HOME ${x#GANETI_} $GANETI_ GANETI_A", &[], &[]);
        check("echo \"$(printf '%s' '$GANETI_A' \"it's\")\" $GANETI_B", &[("B", 1)], &[]);
    }

    #[test]
    fn here_documents() {
        check("cat <<E\nit's $GANETI_A\nE\necho '$GANETI_B' $GANETI_C", &[("A", 2), ("C", 4)], &[]);
        check("cat <<'E'\n$GANETI_A\nE\necho $GANETI_B", &[("B", 4)], &[]);
        check("cat <<-\\E >x\n\t$GANETI_A\n\tE\necho $GANETI_B", &[("B", 4)], &[]);
        check("read x <<<$GANETI_A\necho $GANETI_B", &[("A", 1), ("B", 2)], &[]);
        check("cat <<E", &[], &[]);
    }

    #[test]
    fn assignments_and_set() {
        let found = reads("export GANETI_A=x\nGANETI_B+=y\necho x=GANETI_C=\n", "");
        assert!(found.assigned.iter().eq(["A", "B"]), "{:?}", found.assigned);
        for (text, arguments, ends) in [
            ("set -u", "", true),
            ("set -eu\n", "", true),
            ("set -euo pipefail", "", true),
            ("set -e -o nounset; x", "", true),
            ("x; set -o pipefail", "", false),
            ("set -e\n# set -u", "", false),
            ("echo 'set -u'", "", false),
            ("set -- -e", "", false),
            ("", "-eu", true),
            ("", "-e", false),
        ] {
            assert_eq!(reads(text, arguments).ends_at_unset, ends, "{text:?} {arguments:?}");
        }
    }

    #[test]
    fn any_text_is_read_to_its_end() {
        for text in [
            "\"",
            "'",
            "$",
            "${",
            "$(",
            "$((",
            "<<",
            "\\",
            "$'",
            "<<-",
            "a)b)",
            "\"$(\"",
            "${#",
            "`",
            "é$é\\é",
        ] {
            reads(text, "");
        }
    }
}
