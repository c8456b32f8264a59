//! Disks and exports: the traits that every storage implements, and the factories that know them all.
//!
//! To add one: a folder here, a variant of [`StorageKind`]; the compiler asks for the rest.

mod file;

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use uuid::Uuid;

use crate::cancel::{Cancel, ENDED};

/// Why storage did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The disk is served to another node, and that does not end.
    #[error("disk {disk} is in use")]
    Served {
        /// The disk.
        disk: Uuid,
        /// Why.
        #[source]
        source: Box<crate::serving::ServingError>,
    },
    /// A file or directory could not be used.
    #[error("could not {doing} {path}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The size is beyond what a file can have.
    #[error("a disk of {size_mib} MiB is too large for this node")]
    TooLarge {
        /// The size asked for.
        size_mib: u64,
    },
    /// A disk of this uuid is there with another size.
    #[error("disk {disk} exists with {bytes} bytes, not with {size_mib} MiB")]
    OtherSize {
        /// The disk.
        disk: Uuid,
        /// Its size.
        bytes: u64,
        /// The size asked for.
        size_mib: u64,
    },
    /// The part of a disk that would be cut off is not empty.
    #[error("disk {disk} holds data beyond {size_mib} MiB")]
    HoldsData {
        /// The disk.
        disk: Uuid,
        /// The size asked for.
        size_mib: u64,
    },
    /// No disk of this uuid is here.
    #[error("disk {0} is not on this node")]
    NoDisk(Uuid),
    /// A disk that should be lost is here.
    #[error("its file is still there: {}", .0.display())]
    StillThere(PathBuf),
    /// No export (or no staged export) of this uuid is here.
    #[error("{what} {export} is not on this node")]
    NoExport {
        /// `export` or `staged export`.
        what: &'static str,
        /// The export.
        export: Uuid,
    },
    /// An export of this uuid has been published already.
    #[error("export {0} is published already, with another manifest")]
    OtherExport(Uuid),
    /// The export holds no such image.
    #[error("export {export} has no image {name}")]
    NoImage {
        /// The export.
        export: Uuid,
        /// The image asked for.
        name: ImageName,
    },
    /// An image is not what was exported.
    #[error("image {name} of export {export} is damaged: {why}")]
    DamagedImage {
        /// The export.
        export: Uuid,
        /// The image's file.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The call was told to end.
    #[error("{ENDED}: export {0} is left as it is")]
    Cancelled(Uuid),
}

/// The file name of a disk image in an export: a word and `.raw`, so that it never leaves the export's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName(String);

/// A text is no image name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("image name {0:?} is not valid: it must be a word and `.raw`, for example sda.raw")]
pub struct ImageNameError(String);

/// The longest word of an image name.
const IMAGE_WORD_BYTES_MAX: usize = 32;

impl ImageName {
    /// Parses a name.
    ///
    /// # Errors
    /// When it is not a word of lower-case letters and digits, and `.raw`.
    pub fn parse(text: &str) -> Result<Self, ImageNameError> {
        let word = text.strip_suffix(".raw").unwrap_or_default();
        let fine = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        if word.is_empty() || word.len() > IMAGE_WORD_BYTES_MAX || !word.bytes().all(fine) {
            return Err(ImageNameError(text.chars().take(80).collect()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for ImageName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A disk that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskReport {
    /// The disk (or mirror component).
    pub disk: Uuid,
    /// Its size in bytes.
    pub bytes: u64,
    /// The bytes really used.
    pub used_bytes: u64,
}

/// What is in a store's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    /// The store's own, by uuid.
    pub own: Vec<T>,
    /// Names that are none of the store's.
    pub unknown: Vec<String>,
}

/// Keeps disks by uuid. Calls block; several may come at once, but never two for one disk. What a call answered survives
/// a crash of the host.
pub trait DiskStore: Send + Sync {
    /// Makes a disk that reads as zeros; one that exists with the same size is left as it is (a repeated call is fine).
    /// On failure nothing but what [`DiskStore::remove`] removes is left behind.
    fn create(&self, disk: Uuid, size_mib: u64) -> Result<(), StorageError>;

    /// Gives a disk another size; one that has it is fine (a repeated call). Nothing uses the disk, and what would be cut
    /// off holds no data, else it is refused. On failure the disk has one of the two sizes.
    fn resize(&self, disk: Uuid, size_mib: u64) -> Result<(), StorageError>;

    /// Removes a disk and what a broken-off [`DiskStore::create`] left; one that is gone is fine.
    fn remove(&self, disk: Uuid) -> Result<(), StorageError>;

    /// Fails where there is a disk of this uuid, whatever it is.
    fn absent(&self, disk: Uuid) -> Result<(), StorageError>;

    /// All disks here. Called often.
    fn list(&self) -> Result<Listing<DiskReport>, StorageError>;

    /// Opens a disk's content for reading.
    fn open_read(&self, disk: Uuid) -> Result<File, StorageError>;

    /// Opens a disk's content for reading and writing; the caller must keep its length.
    fn open_write(&self, disk: Uuid) -> Result<File, StorageError>;

    /// The file that holds a disk's content, for programs.
    fn path(&self, disk: Uuid) -> Result<PathBuf, StorageError>;

    /// The directory whose filesystem holds the disks, for its free space.
    fn place(&self) -> &Path;
}

/// Keeps exports by uuid: staged ones, which may be half-written, and published ones, which are whole.
/// Calls block; several may come at once, but never two for one export. What a call answered survives a crash of the host.
pub trait ExportStore: Send + Sync {
    /// Makes an empty staging area; what an earlier attempt left in it is removed.
    fn stage(&self, export: Uuid) -> Result<(), StorageError>;

    /// Adds the manifest (JSON text) and the images' checksums, and turns the staged export into a published one, at once
    /// for readers; gives its directory. One that is published with the same manifest is fine (a repeated call). On failure
    /// it stays staged. Reads all images; ends soon after it was cancelled.
    fn publish(&self, export: Uuid, manifest: &str, cancel: &Cancel) -> Result<PathBuf, StorageError>;

    /// Compares the images of a published export with their checksums. One that was published by an older version has none
    /// and is taken as it is. Reads all images; ends soon after it was cancelled.
    fn check(&self, export: Uuid, cancel: &Cancel) -> Result<(), StorageError>;

    /// Removes an export, staged or published; one that is gone is fine.
    fn remove(&self, export: Uuid) -> Result<(), StorageError>;

    /// All exports here, staged ones too. Called often.
    fn list(&self) -> Result<Listing<Uuid>, StorageError>;

    /// Opens an image of a published export for reading.
    fn open_read(&self, export: Uuid, name: &ImageName) -> Result<File, StorageError>;

    /// Makes (or opens) an image in a staged export for writing.
    fn open_write(&self, export: Uuid, name: &ImageName) -> Result<File, StorageError>;

    /// Makes the names of the images written so far in a staged export durable.
    fn sync(&self, export: Uuid) -> Result<(), StorageError>;
}

/// The kinds of storage there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageKind {
    /// Sparse raw files in a directory.
    File,
}

/// Opens a disk store in a directory, which is made where it is missing.
///
/// # Errors
/// When the directory can't be made.
pub fn disk_store(kind: StorageKind, place: &Path) -> Result<Arc<dyn DiskStore>, StorageError> {
    match kind {
        StorageKind::File => Ok(Arc::new(file::FileDisks::open(place)?)),
    }
}

/// Opens an export store in a directory, which is made where it is missing.
///
/// # Errors
/// When the directory can't be made.
pub fn export_store(kind: StorageKind, place: &Path) -> Result<Arc<dyn ExportStore>, StorageError> {
    match kind {
        StorageKind::File => Ok(Arc::new(file::FileExports::open(place)?)),
    }
}

/// Makes a directory's entries durable.
pub(crate) fn sync_dir(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The names in a directory, in order; bytes that are no UTF-8 are replaced.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// A uuid in the one spelling in which names of files are written.
pub(crate) fn file_uuid(text: &str) -> Option<Uuid> {
    text.parse().ok().filter(|uuid: &Uuid| uuid.to_string() == text)
}
