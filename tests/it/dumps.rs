//! Scripts that write down how they were run, and what they wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::cluster::Cluster;

/// How a script was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dump {
    /// Node whose hook directory it was in.
    pub(crate) node: String,
    /// For example `node-add-pre.d`.
    pub(crate) directory: String,
    pub(crate) script: String,
    /// Arguments after the script's own path.
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
}

/// Name of the dumping script.
pub(crate) const DUMP: &str = "00-dump";

impl Cluster {
    /// Puts a dumping script into the pre and post directory of each prefix, on nodes 1 to `nodes`.
    pub(crate) fn install_dumps(&self, nodes: u32, prefixes: &[&str]) {
        for node in 1..=nodes {
            for prefix in prefixes {
                for phase in ["pre", "post"] {
                    self.script(node, &format!("{prefix}-{phase}.d"), DUMP, &dump_body(&self.dumps()));
                }
            }
        }
    }

    /// What was written since the last call, ordered by directory and node.
    pub(crate) fn take_dumps(&self) -> Vec<Dump> {
        let mut dumps = Vec::new();
        for entry in fs::read_dir(self.dumps()).unwrap() {
            let path = entry.unwrap().path();
            // One with a leading dot is being written.
            if path.file_name().unwrap().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            dumps.push(read_dump(&path));
            fs::remove_dir_all(&path).unwrap();
        }
        dumps.sort_by(|a, b| (&a.directory, &a.node, &a.script).cmp(&(&b.directory, &b.node, &b.script)));
        dumps
    }
}

/// The script takes its environment and arguments from the kernel, before the shell could change them.
pub(crate) fn dump_body(dumps: &Path) -> String {
    let dumps = dumps.display();
    format!(
        "t=$(mktemp -d '{dumps}/.XXXXXXXXXX') || exit 99\n\
         cat /proc/$$/cmdline > \"$t/argv\" && cat /proc/$$/environ > \"$t/env\" || exit 98\n\
         mv \"$t\" '{dumps}'/\"${{t##*/.}}\""
    )
}

fn strings(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap();
    let body = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    body.split(|byte| *byte == 0).map(|part| String::from_utf8(part.to_vec()).unwrap()).collect()
}

fn read_dump(path: &Path) -> Dump {
    let argv = strings(&path.join("argv"));
    // The kernel puts the interpreter of the `#!` line first.
    let (script, args) = (Path::new(&argv[1]), argv[2..].to_vec());
    let part = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let directory = script.parent().unwrap();
    let node = directory.parent().unwrap().parent().unwrap();
    let env = strings(&path.join("env")).into_iter().map(|entry| {
        let (name, value) = entry.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    });
    Dump { node: part(node), directory: part(directory), script: part(script), args, env: env.collect() }
}
