//! `gnt-cluster command` and `gnt-cluster copyfile`.

use std::{
    fs::File,
    io::Read,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use muster_proto::v1::{
    CopyFilePart, CopyFileStart, FileStart, NodeCommandResult, RunCommandRequest, copy_file_part::Part,
};
use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
};
use serde_json::Value as Json;
use tokio::time::timeout;
use tonic::Status;

use crate::{
    args::{CommandFlags, CopyfileFlags},
    client::Master,
    exit::Failure,
    output::{node_commands as render, print, print_json},
};

/// What the master may take beyond the command's own limit: it waits for nodes that end a command, and for silent ones.
const BEYOND_LIMIT: Duration = Duration::from_secs(60);
/// What a file may take: a node on a slow line has two minutes.
const COPY_LIMIT: Duration = Duration::from_secs(180);
/// The largest file; the master's own limit.
const COPY_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Bytes of a file in one message.
const PART_BYTES: usize = 64 * 1024;

fn too_late(limit: Duration) -> Status {
    Status::deadline_exceeded(format!("the limit is {} s", limit.as_secs()))
}

/// Runs a command on nodes. The answers come as nodes give them, and are shown in the order of names.
pub(super) async fn command(master: &Master, flags: CommandFlags) -> Result<(), Failure> {
    if let Some(option) = flags.argv.first().filter(|word| word.starts_with('-')) {
        let text =
            format!("{option} is no option of this command (see --help), and no program's absolute path");
        return Err(Failure::Usage(text));
    }
    let limit = flags.timeout + BEYOND_LIMIT;
    let timeout_ms = u64::try_from(flags.timeout.as_millis()).unwrap_or(u64::MAX);
    let request = RunCommandRequest { nodes: flags.nodes, argv: flags.argv, timeout_ms: Some(timeout_ms) };
    let results = async {
        let mut stream = master.commands().run_command(request).await?.into_inner();
        let mut results: Vec<NodeCommandResult> = Vec::new();
        while let Some(result) = stream.message().await? {
            results.push(result);
        }
        Ok::<_, Status>(results)
    };
    let mut results = timeout(limit, results).await.map_err(|_| too_late(limit))??;
    results.sort_by(|a, b| a.node.cmp(&b.node));
    if flags.output.json {
        print_json(&render::json(&results))?;
    } else if flags.fold {
        print(&render::folded(&results))?;
    } else {
        print(&render::text(&results))?;
    }
    if results.iter().all(render::has_answered) { Ok(()) } else { Err(Failure::Told) }
}

/// Copies files to nodes, one after another.
pub(super) async fn copyfile(master: &Master, flags: CopyfileFlags) -> Result<(), Failure> {
    if flags.to.is_some() && flags.files.len() > 1 {
        return Err(Failure::Usage("--to is for one file".to_owned()));
    }
    let mut rows = Vec::new();
    let mut missed = false;
    for file in &flags.files {
        let (start, content) = read(file, flags.to.as_deref())?;
        let path = start.path.clone();
        let start = CopyFileStart { nodes: flags.nodes.clone(), file: Some(start) };
        let parts: Vec<CopyFilePart> = std::iter::once(Part::Start(start))
            .chain(content.chunks(PART_BYTES).map(|data| Part::Data(data.to_vec())))
            .map(|part| CopyFilePart { part: Some(part) })
            .collect();
        let mut commands = master.commands();
        let answer = timeout(COPY_LIMIT, commands.copy_file(tokio_stream::iter(parts))).await;
        let copied = answer.map_err(|_| too_late(COPY_LIMIT))??.into_inner().nodes;
        missed |= copied.iter().any(|node| node.failure.is_some());
        if flags.output.json {
            rows.extend(render::copied_json(&path, &copied));
        } else {
            print(&render::copied_text(&path, &copied))?;
        }
    }
    if flags.output.json {
        print_json(&Json::Array(rows))?;
    }
    if missed { Err(Failure::Told) } else { Ok(()) }
}

/// A file of this host; one that is a link, no regular file, or too large is refused.
fn read(file: &Path, to: Option<&str>) -> Result<(FileStart, Vec<u8>), Failure> {
    let wrong = |why: &str| Failure::Refused(format!("{}: {why}", file.display()));
    let failed = |error: std::io::Error| wrong(&error.to_string());
    // Nobody can put a link in its place between a look and the opening, and no pipe holds this up.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match open(file, flags, Mode::empty()) {
        Ok(opened) => File::from(opened),
        Err(Errno::LOOP) => return Err(wrong("it is a link, which is not followed")),
        Err(error) => return Err(failed(error.into())),
    };
    let metadata = opened.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(wrong("it is no regular file"));
    }
    let absolute = std::path::absolute(file).map_err(failed)?;
    let path = to.map(str::to_owned).or_else(|| absolute.to_str().map(str::to_owned));
    let path = path.ok_or_else(|| wrong("its path is not UTF-8 text"))?;
    let mut content = Vec::new();
    opened.take(COPY_BYTES_MAX + 1).read_to_end(&mut content).map_err(failed)?;
    let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
    if size > COPY_BYTES_MAX {
        return Err(wrong("it is larger than 16 MiB"));
    }
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let mtime_ms = modified.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    Ok((FileStart { path, mode: metadata.mode(), mtime_ms, size }, content))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn a_files_path_mode_and_content_are_told() {
        let folder = std::env::temp_dir().join(format!("gnt-copy-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("motd");
        fs::write(&path, "hello").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let (start, content) = read(&path, None).unwrap();
        assert_eq!((start.path.as_str(), start.mode & 0o777, start.size), (path.to_str().unwrap(), 0o640, 5));
        assert_eq!(content, b"hello");
        assert_eq!(read(&path, Some("/etc/motd")).unwrap().0.path, "/etc/motd");
        symlink(&path, folder.join("link")).unwrap();
        // A pipe that nobody writes into.
        let pipe = folder.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        for (name, says) in [
            ("link", "is a link"),
            ("missing", "No such file"),
            (".", "no regular file"),
            ("pipe", "no regular file"),
        ] {
            let failure = read(&folder.join(name), None).unwrap_err();
            assert!(failure.to_string().contains(says), "{failure}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
