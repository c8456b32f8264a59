//! `DIR/env`, which a shell reads to talk to the cluster, and `DIR/bin` with the commands.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;

use super::error::DevclusterError;
use super::layout::Layout;
use super::process::program;

/// The operator's program and the names it is called by.
const GNT_NAMES: [&str; 10] = [
    "gnt",
    "gnt-cluster",
    "gnt-node",
    "gnt-instance",
    "gnt-os",
    "gnt-backup",
    "gnt-job",
    "gnt-hooks",
    "gnt-group",
    "gnt-network",
];
const OTHER_PROGRAMS: [&str; 4] = ["muster-devcluster", "muster-masterd", "muster-noded", "muster-hooksrv"];

/// Writes the file and makes the links.
pub(super) fn write(layout: &Layout) -> Result<(), DevclusterError> {
    let bin = layout.bin();
    fs::create_dir_all(&bin).map_err(DevclusterError::file("make", &bin))?;
    let gnt = GNT_NAMES.iter().map(|name| (*name, "gnt"));
    for (name, target) in gnt.chain(OTHER_PROGRAMS.iter().map(|name| (*name, *name))) {
        let link = bin.join(name);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DevclusterError::File { what: "replace", path: link, source: error });
            }
            Ok(()) | Err(_) => {}
        }
        symlink(program(target)?, &link).map_err(DevclusterError::file("link", link))?;
    }
    let path = layout.dir().join("env");
    fs::write(&path, text(layout)).map_err(DevclusterError::file("write", path))
}

fn text(layout: &Layout) -> String {
    let quoted = |path: &std::path::Path| quote(&path.display().to_string());
    format!(
        "# Read this file into a shell: . {}\n\
         export MUSTER_DIR={}\n\
         export MUSTER_SOCKET={}\n\
         export PATH={}:\"$PATH\"\n",
        quoted(&layout.dir().join("env")),
        quoted(layout.dir()),
        quoted(&layout.master_socket(1)),
        quoted(&layout.bin()),
    )
}

/// A word for the shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        assert_eq!(quote("/tmp/a b"), "'/tmp/a b'");
        assert_eq!(quote("/tmp/it's"), r"'/tmp/it'\''s'");
    }
}
