//! Says in words why a script could not be executed, and names its interpreter (HOOKS.md X9).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How much of the first line is looked at; the kernel itself takes 255 bytes.
const FIRST_LINE_BYTES_MAX: u64 = 256;
/// The ELF segment type that names the dynamic loader.
const ELF_SEGMENT_INTERPRETER: u32 = 3;
/// Most program headers that are looked at; real programs have about ten.
const ELF_SEGMENTS_MAX: u64 = 64;

/// The reason for a failed exec of an existing file.
pub(crate) fn reason(path: &Path, error: &io::Error) -> String {
    let what = match first_line(path) {
        Ok(line) if line.starts_with(b"#!") => {
            let interpreter = script_interpreter(&line);
            let shown = interpreter.escape_ascii();
            match error.raw_os_error() {
                Some(libc::ENOENT) if interpreter.ends_with(b"\r") => {
                    format!("interpreter \"{shown}\" not found (the line ends with a carriage return)")
                }
                Some(libc::ENOENT) => format!("interpreter \"{shown}\" not found"),
                Some(libc::EACCES) => format!("interpreter \"{shown}\" may not be executed"),
                Some(libc::ENOEXEC) => format!("interpreter \"{shown}\" has a wrong format"),
                _ => format!("it could not be executed by interpreter \"{shown}\""),
            }
        }
        Ok(line) if line.starts_with(b"\x7fELF") => match (error.raw_os_error(), elf_loader(path)) {
            (Some(libc::ENOENT), Some(loader)) => {
                format!("interpreter \"{}\" not found", loader.escape_ascii())
            }
            (Some(libc::ENOEXEC), _) => "the program's format is wrong for this machine".to_owned(),
            _ => "the program could not be executed".to_owned(),
        },
        Ok(_) if error.raw_os_error() == Some(libc::ENOEXEC) => {
            "no program, and its first line names no interpreter by #!".to_owned()
        }
        Ok(_) | Err(_) => "it could not be executed".to_owned(),
    };
    format!("{what}: {error}")
}

/// The first bytes of a file, to the end of its first line.
fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    File::open(path)?.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut line)?;
    if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
        line.truncate(end);
    }
    Ok(line)
}

/// The interpreter of a `#!` line, as the kernel reads it: up to the first blank.
fn script_interpreter(line: &[u8]) -> &[u8] {
    let rest = line[2..].trim_ascii_start();
    rest.split(|byte| *byte == b' ' || *byte == b'\t').next().unwrap_or_default()
}

/// The dynamic loader that a 64-bit little-endian ELF program names.
fn elf_loader(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let bytes = |offset: u64, count: usize| {
        let mut buffer = vec![0; count];
        file.read_exact_at(&mut buffer, offset).ok().map(|()| buffer)
    };
    let u16_at = |offset| Some(u64::from(u16::from_le_bytes(bytes(offset, 2)?.try_into().ok()?)));
    let u64_at = |offset| Some(u64::from_le_bytes(bytes(offset, 8)?.try_into().ok()?));
    if bytes(4, 2)? != [2, 1] {
        return None;
    }
    let (table, entry_bytes, entries) = (u64_at(32)?, u16_at(54)?, u16_at(56)?);
    for index in 0..entries.min(ELF_SEGMENTS_MAX) {
        let header = table.checked_add(index * entry_bytes)?;
        if u32::from_le_bytes(bytes(header, 4)?.try_into().ok()?) == ELF_SEGMENT_INTERPRETER {
            let length = usize::try_from(u64_at(header + 32)?.min(4096)).ok()?;
            let mut name = bytes(u64_at(header + 8)?, length)?;
            name.retain(|byte| *byte != 0);
            return Some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x9_interpreters_are_read_as_the_kernel_reads_them() {
        for (line, interpreter) in [
            ("#!/bin/sh", "/bin/sh"),
            ("#! /usr/bin/env python3", "/usr/bin/env"),
            ("#!/bin/sh\t-e", "/bin/sh"),
            ("#!/bin/sh\r", "/bin/sh\r"),
            ("#!", ""),
        ] {
            assert_eq!(script_interpreter(line.as_bytes()), interpreter.as_bytes(), "{line:?}");
        }
    }

    #[test]
    fn x9_the_loader_of_a_native_program_is_found() {
        let loader = elf_loader(&std::env::current_exe().unwrap()).expect("tests are linked dynamically");
        assert!(loader.starts_with(b"/lib"), "{}", loader.escape_ascii());
    }
}
