//! Exports as directories: `<uuid>.staging/` while one is written, renamed to `<uuid>/` when it is whole.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use muster_proto::transport::{MODE_PRIVATE, write_atomic};
use uuid::Uuid;

use super::{
    super::{ExportStore, ImageName, Listing, StorageError, file_uuid, names, sync_dir},
    checksums::{self, CHECKSUMS, DigestError},
};
use crate::cancel::Cancel;

/// The file that describes an export.
const MANIFEST: &str = "manifest.json";
/// Ends the name of an export that is not whole.
const STAGING: &str = ".staging";

pub(in crate::storage) struct FileExports {
    folder: PathBuf,
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StorageError {
    let path = path.to_owned();
    move |source| StorageError::File { doing, path, source }
}

/// Removes a directory and all in it; one that is gone is fine.
fn remove_all(path: &Path) -> Result<(), StorageError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn exists(path: &Path) -> Result<bool, StorageError> {
    path.try_exists().map_err(failed("look at", path))
}

impl FileExports {
    pub(in crate::storage) fn open(folder: &Path) -> Result<Self, StorageError> {
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn published(&self, export: Uuid) -> PathBuf {
        self.folder.join(export.to_string())
    }

    fn staged(&self, export: Uuid) -> PathBuf {
        self.folder.join(format!("{export}{STAGING}"))
    }

    /// The digests of all images in an export's directory.
    fn digests(
        export: Uuid,
        folder: &Path,
        cancel: &Cancel,
    ) -> Result<BTreeMap<String, String>, StorageError> {
        let images = names(folder).map_err(failed("list", folder))?.into_iter();
        let digest = |name: String| {
            let path = folder.join(&name);
            let file = File::open(&path).map_err(failed("open", &path))?;
            match checksums::digest(&file, cancel) {
                Ok(digest) => Ok((name, digest)),
                Err(DigestError::Read(source)) => Err(failed("read", &path)(source)),
                Err(DigestError::Cancelled) => Err(StorageError::Cancelled(export)),
            }
        };
        images.filter(|name| ImageName::parse(name).is_ok()).map(digest).collect()
    }

    fn sync_folder(&self) -> Result<(), StorageError> {
        sync_dir(&self.folder).map_err(failed("sync", &self.folder))
    }
}

impl ExportStore for FileExports {
    fn stage(&self, export: Uuid) -> Result<(), StorageError> {
        if exists(&self.published(export))? {
            return Err(StorageError::OtherExport(export));
        }
        let staged = self.staged(export);
        remove_all(&staged)?;
        fs::create_dir(&staged).map_err(failed("make", &staged))?;
        self.sync_folder()
    }

    fn publish(&self, export: Uuid, manifest: &str, cancel: &Cancel) -> Result<PathBuf, StorageError> {
        let (published, staged) = (self.published(export), self.staged(export));
        if exists(&published)? {
            let path = published.join(MANIFEST);
            return match fs::read_to_string(&path).map_err(failed("read", &path))? == manifest {
                true => self.sync_folder().map(|()| published),
                false => Err(StorageError::OtherExport(export)),
            };
        }
        if !exists(&staged)? {
            return Err(StorageError::NoExport { what: "staged export", export });
        }
        let digests = Self::digests(export, &staged, cancel)?;
        for (name, text) in [(CHECKSUMS, checksums::text(&digests).as_str()), (MANIFEST, manifest)] {
            let path = staged.join(name);
            write_atomic(&path, text.as_bytes(), MODE_PRIVATE)
                .map_err(|error| failed("write", &path)(io::Error::other(error)))?;
        }
        fs::rename(&staged, &published).map_err(failed("rename", &staged))?;
        self.sync_folder().map(|()| published)
    }

    fn check(&self, export: Uuid, cancel: &Cancel) -> Result<(), StorageError> {
        let published = self.published(export);
        if !exists(&published)? {
            return Err(StorageError::NoExport { what: "export", export });
        }
        let path = published.join(CHECKSUMS);
        let damaged = |name: &str, why| StorageError::DamagedImage { export, name: name.to_owned(), why };
        let expected = match fs::read_to_string(&path) {
            Ok(text) => {
                checksums::parse(&text).ok_or_else(|| damaged(CHECKSUMS, "it is no list of checksums"))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::info!(%export, "an export of an older version has no checksums: it is taken as it is");
                return Ok(());
            }
            Err(source) => return Err(failed("read", &path)(source)),
        };
        let found = Self::digests(export, &published, cancel)?;
        for (name, digest) in &expected {
            match found.get(name) {
                Some(found) if found == digest => {}
                Some(_) => return Err(damaged(name, "its checksum is not the one in SHA256SUMS")),
                None => return Err(damaged(name, "it is missing")),
            }
        }
        match found.keys().find(|name| !expected.contains_key(*name)) {
            Some(name) => Err(damaged(name, "it has no checksum in SHA256SUMS")),
            None => Ok(()),
        }
    }

    fn remove(&self, export: Uuid) -> Result<(), StorageError> {
        let (published, staged) = (self.published(export), self.staged(export));
        remove_all(&staged)?;
        if exists(&published)? {
            // Half an export must not stand under the name of a whole one.
            fs::rename(&published, &staged).map_err(failed("rename", &published))?;
            self.sync_folder()?;
            remove_all(&staged)?;
        }
        self.sync_folder()
    }

    fn list(&self) -> Result<Listing<Uuid>, StorageError> {
        let mut listing = Listing { own: Vec::new(), unknown: Vec::new() };
        for name in names(&self.folder).map_err(failed("list", &self.folder))? {
            match file_uuid(name.strip_suffix(STAGING).unwrap_or(&name)) {
                Some(export) => listing.own.push(export),
                None => listing.unknown.push(name),
            }
        }
        listing.own.dedup();
        Ok(listing)
    }

    fn open_read(&self, export: Uuid, name: &ImageName) -> Result<File, StorageError> {
        let published = self.published(export);
        if !exists(&published)? {
            return Err(StorageError::NoExport { what: "export", export });
        }
        let path = published.join(name.as_str());
        match File::open(&path) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(StorageError::NoImage { export, name: name.clone() })
            }
            Err(source) => Err(failed("open", &path)(source)),
        }
    }

    fn open_write(&self, export: Uuid, name: &ImageName) -> Result<File, StorageError> {
        let staged = self.staged(export);
        if !exists(&staged)? {
            return Err(StorageError::NoExport { what: "staged export", export });
        }
        let path = staged.join(name.as_str());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed("open", &path))
    }

    fn sync(&self, export: Uuid) -> Result<(), StorageError> {
        let staged = self.staged(export);
        sync_dir(&staged).map_err(failed("sync", &staged))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    const EXPORT: Uuid = Uuid::from_u128(9);

    fn store() -> (tempfile::TempDir, FileExports, ImageName) {
        let folder = tempfile::tempdir().unwrap();
        let exports = FileExports::open(folder.path()).unwrap();
        (folder, exports, ImageName::parse("sda.raw").unwrap())
    }

    #[test]
    fn an_export_is_published_whole_and_each_call_may_come_twice() {
        let (folder, exports, sda) = store();
        exports.stage(EXPORT).unwrap();
        exports.open_write(EXPORT, &sda).unwrap().write_all(b"old").unwrap();
        exports.stage(EXPORT).unwrap();
        assert_eq!(fs::read_dir(exports.staged(EXPORT)).unwrap().count(), 0, "staging begins empty");
        exports.open_write(EXPORT, &sda).unwrap().write_all(b"new").unwrap();
        assert!(matches!(exports.open_read(EXPORT, &sda), Err(StorageError::NoExport { .. })));
        for _ in 0..2 {
            assert_eq!(
                exports.publish(EXPORT, "{}", &Cancel::default()).unwrap(),
                folder.path().join(EXPORT.to_string())
            );
        }
        let mut content = String::new();
        exports.open_read(EXPORT, &sda).unwrap().read_to_string(&mut content).unwrap();
        assert_eq!(content, "new");
        assert!(matches!(
            exports.publish(EXPORT, "[]", &Cancel::default()),
            Err(StorageError::OtherExport(EXPORT))
        ));
        assert!(matches!(exports.stage(EXPORT), Err(StorageError::OtherExport(EXPORT))));
        for _ in 0..2 {
            exports.remove(EXPORT).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn an_image_that_is_not_what_was_exported_is_found() {
        let (folder, exports, sda) = store();
        let cancel = Cancel::default();
        exports.stage(EXPORT).unwrap();
        for (name, text) in [("sda.raw", "first"), ("sdb.raw", "second")] {
            let name = ImageName::parse(name).unwrap();
            exports.open_write(EXPORT, &name).unwrap().write_all(text.as_bytes()).unwrap();
        }
        cancel.cancel();
        assert!(matches!(exports.publish(EXPORT, "{}", &cancel), Err(StorageError::Cancelled(EXPORT))));
        exports.publish(EXPORT, "{}", &Cancel::default()).unwrap();
        let place = folder.path().join(EXPORT.to_string());
        // The site's own tool agrees.
        let tool = std::process::Command::new("sha256sum")
            .args(["--check", "--strict", CHECKSUMS])
            .current_dir(&place)
            .output();
        let checked = tool.unwrap();
        assert!(checked.status.success(), "{checked:?}");

        let check = || exports.check(EXPORT, &Cancel::default()).map_err(|error| error.to_string());
        check().unwrap();
        assert!(matches!(exports.check(EXPORT, &cancel), Err(StorageError::Cancelled(EXPORT))));
        let fails = |part: &str| {
            let error = check().unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        fs::write(place.join(sda.as_str()), "First").unwrap();
        fails("image sda.raw");
        fs::remove_file(place.join(sda.as_str())).unwrap();
        fails("it is missing");
        fs::write(place.join(sda.as_str()), "first").unwrap();
        check().unwrap();
        fs::write(place.join("sdc.raw"), "more").unwrap();
        fails("image sdc.raw");
        fs::write(place.join(CHECKSUMS), "x").unwrap();
        fails("no list of checksums");
        fs::remove_file(place.join(CHECKSUMS)).unwrap();
        check().unwrap();
    }

    #[test]
    fn what_is_not_there_is_named() {
        let (_folder, exports, sda) = store();
        assert!(matches!(
            exports.publish(EXPORT, "{}", &Cancel::default()),
            Err(StorageError::NoExport { .. })
        ));
        assert!(matches!(exports.open_write(EXPORT, &sda), Err(StorageError::NoExport { .. })));
        assert!(matches!(exports.check(EXPORT, &Cancel::default()), Err(StorageError::NoExport { .. })));
        exports.stage(EXPORT).unwrap();
        exports.publish(EXPORT, "{}", &Cancel::default()).unwrap();
        assert!(matches!(exports.open_read(EXPORT, &sda), Err(StorageError::NoImage { .. })));
    }

    #[test]
    fn staged_and_published_ones_are_listed_and_others_named() {
        let (folder, exports, _) = store();
        exports.stage(EXPORT).unwrap();
        exports.stage(Uuid::from_u128(10)).unwrap();
        exports.publish(EXPORT, "{}", &Cancel::default()).unwrap();
        fs::write(folder.path().join("README"), b"").unwrap();
        let own = vec![EXPORT, Uuid::from_u128(10)];
        assert_eq!(exports.list().unwrap(), Listing { own, unknown: vec!["README".to_owned()] });
    }

    #[test]
    fn image_names_stay_in_their_directory() {
        for bad in
            ["", ".raw", "sda", "../sda.raw", "a/b.raw", "SDA.raw", "a.b.raw", "sda.raw\n", "manifest.json"]
        {
            assert!(ImageName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(ImageName::parse(&format!("{}.raw", "a".repeat(33))).is_err());
    }
}
