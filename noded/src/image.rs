//! Disk images as streams of their data, holes left out: reading from and writing to sparse files.

use std::{fs::File, io, ops::ControlFlow, os::unix::fs::FileExt};

use rustix::{fs::SeekFrom, io::Errno};

/// The longest piece of an image in one message, in bytes: a quarter of a message's bound.
pub(crate) const CHUNK_BYTES_MAX: usize = 1024 * 1024;

/// Hands all data of a file's first `length` bytes to `piece`, in order and in pieces of at most
/// [`CHUNK_BYTES_MAX`]; stops when it asks for that. What is left out reads as zeros.
///
/// # Errors
/// When the file can't be read, or is shorter than `length`.
pub(crate) fn read_data(
    file: &File,
    length: u64,
    piece: impl FnMut(u64, Vec<u8>) -> ControlFlow<()>,
) -> io::Result<()> {
    read_data_from(file, 0, length, piece)
}

/// As [`read_data`], from a place on.
///
/// # Errors
/// When the file can't be read, or is shorter than `length`.
pub(crate) fn read_data_from(
    file: &File,
    from: u64,
    length: u64,
    mut piece: impl FnMut(u64, Vec<u8>) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut position = from;
    while position < length {
        let Some(data) = seek(file, SeekFrom::Data(position))?.filter(|data| *data < length) else { break };
        let hole = seek(file, SeekFrom::Hole(data))?.unwrap_or(length).min(length);
        position = data;
        while position < hole {
            let size = usize::try_from(hole - position).unwrap_or(usize::MAX).min(CHUNK_BYTES_MAX);
            let mut bytes = vec![0; size];
            file.read_exact_at(&mut bytes, position)?;
            let at = position;
            position += bytes_u64(size);
            if piece(at, bytes).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Seeks to data or a hole; `None` where there is no more.
fn seek(file: &File, to: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Ok(position) => Ok(Some(position)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn bytes_u64(size: usize) -> u64 {
    u64::try_from(size).expect("usize fits into u64 on all our platforms")
}

/// Why an image could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ImageError {
    /// The sender does not keep to the order.
    #[error("image data at {offset} comes after data up to {position}")]
    Order {
        /// The piece's place.
        offset: u64,
        /// The place reached before.
        position: u64,
    },
    /// Data beyond the end that was announced.
    #[error("image data up to {end} goes beyond the image's length of {length}")]
    Beyond {
        /// Where the piece ends.
        end: u64,
        /// The image's length.
        length: u64,
    },
    /// The image is larger than the disk.
    #[error("an image of {length} bytes does not fit on a disk of {disk} bytes")]
    TooLong {
        /// The image's length.
        length: u64,
        /// The disk's length.
        disk: u64,
    },
    /// The file can't be written.
    #[error("could not write the image")]
    Write(#[source] io::Error),
}

/// Writes one image from its pieces in order; holes stay holes.
#[derive(Debug)]
pub(crate) struct ImageWriter {
    file: File,
    length: u64,
    position: u64,
    written: u64,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes of data, holes not counted.
    pub bytes: u64,
}

/// Where an image goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A disk: it keeps its length, the image must fit.
    Disk,
    /// A file of the image's own: it gets the image's length.
    File,
}

impl ImageWriter {
    /// Begins an image of `length` bytes. All that the file held before is gone, so that a repeat after a broken
    /// attempt gives the same.
    ///
    /// # Errors
    /// When the image does not fit or the file can't be changed.
    pub(crate) fn begin(file: File, target: Target, length: u64) -> Result<Self, ImageError> {
        let whole = match target {
            Target::File => length,
            Target::Disk => file.metadata().map_err(ImageError::Write)?.len(),
        };
        if length > whole {
            return Err(ImageError::TooLong { length, disk: whole });
        }
        clear(&file, whole).map_err(ImageError::Write)?;
        Ok(Self { file, length, position: 0, written: 0 })
    }

    /// Writes a piece at its place, which must not lie before the end of the last one.
    ///
    /// # Errors
    /// When the piece is out of order or beyond the end, or the file can't be written.
    pub(crate) fn piece(&mut self, offset: u64, data: &[u8]) -> Result<(), ImageError> {
        if offset < self.position {
            return Err(ImageError::Order { offset, position: self.position });
        }
        let end = offset.saturating_add(bytes_u64(data.len()));
        if end > self.length {
            return Err(ImageError::Beyond { end, length: self.length });
        }
        // A sender that doesn't know its holes sends zeros: they need no place here.
        if data.iter().any(|byte| *byte != 0) {
            self.file.write_all_at(data, offset).map_err(ImageError::Write)?;
            self.written += bytes_u64(data.len());
        }
        self.position = end;
        Ok(())
    }

    /// Ends the image: all is on stable storage when this returns.
    ///
    /// # Errors
    /// When the file can't be synced.
    pub(crate) fn end(self) -> Result<Written, ImageError> {
        self.file.sync_all().map_err(ImageError::Write)?;
        Ok(Written { bytes: self.written })
    }
}

/// Makes a file one hole of the length. The length never passes through zero: a crash in between must not leave a disk
/// of another size.
fn clear(file: &File, length: u64) -> io::Result<()> {
    use rustix::fs::FallocateFlags;
    file.set_len(length)?;
    if length == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, length) {
        Ok(()) => Ok(()),
        // A filesystem without holes punched: through zero after all.
        Err(Errno::OPNOTSUPP) => {
            file.set_len(0)?;
            file.set_len(length)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn data_of(file: &File, length: u64) -> Vec<(u64, Vec<u8>)> {
        let mut pieces = Vec::new();
        read_data(file, length, |offset, bytes| {
            pieces.push((offset, bytes));
            ControlFlow::Continue(())
        })
        .unwrap();
        pieces
    }

    #[test]
    fn holes_are_neither_read_nor_written() {
        let source = tempfile::tempfile().unwrap();
        source.set_len(64 * MIB).unwrap();
        source.write_all_at(b"first", 0).unwrap();
        source.write_all_at(&vec![7; usize::try_from(3 * MIB).unwrap()], 32 * MIB).unwrap();
        let pieces = data_of(&source, 64 * MIB);
        let total: usize = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(total < usize::try_from(5 * MIB).unwrap(), "{total} bytes were read");
        assert!(pieces.iter().all(|(_, bytes)| bytes.len() <= CHUNK_BYTES_MAX));

        let copy = tempfile::tempfile().unwrap();
        let mut writer = ImageWriter::begin(copy.try_clone().unwrap(), Target::File, 64 * MIB).unwrap();
        for (offset, bytes) in &pieces {
            writer.piece(*offset, bytes).unwrap();
        }
        let written = writer.end().unwrap();
        let mut content = vec![0; usize::try_from(64 * MIB).unwrap()];
        copy.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content[..5], b"first");
        assert_eq!(content[usize::try_from(35 * MIB).unwrap() - 1], 7);
        assert!(written.bytes >= 3 * MIB && written.bytes < 5 * MIB, "{written:?}");
        let used = copy.metadata().unwrap().blocks() * 512;
        assert!(used < 5 * MIB, "{used} bytes are used");
    }

    #[test]
    fn a_repeat_leaves_nothing_of_the_broken_attempt() {
        let disk = tempfile::tempfile().unwrap();
        disk.set_len(2 * MIB).unwrap();
        let begin = || ImageWriter::begin(disk.try_clone().unwrap(), Target::Disk, MIB).unwrap();
        begin().piece(100, b"broken off").unwrap();
        let mut writer = begin();
        writer.piece(0, b"whole").unwrap();
        let written = writer.end().unwrap();
        let mut content = vec![1; usize::try_from(2 * MIB).unwrap()];
        disk.read_exact_at(&mut content, 0).unwrap();
        let mut expected = vec![0; content.len()];
        expected[..5].copy_from_slice(b"whole");
        assert_eq!(content, expected);
        assert_eq!(written, Written { bytes: 5 });
    }

    #[test]
    fn data_out_of_place_is_refused() {
        let disk = tempfile::tempfile().unwrap();
        disk.set_len(10).unwrap();
        let clone = || disk.try_clone().unwrap();
        assert!(matches!(ImageWriter::begin(clone(), Target::Disk, 11), Err(ImageError::TooLong { .. })));
        let mut writer = ImageWriter::begin(clone(), Target::Disk, 10).unwrap();
        writer.piece(4, b"ab").unwrap();
        assert!(matches!(writer.piece(5, b"c"), Err(ImageError::Order { offset: 5, position: 6 })));
        assert!(matches!(writer.piece(9, b"cd"), Err(ImageError::Beyond { end: 11, length: 10 })));
        assert!(matches!(writer.piece(u64::MAX, b"cd"), Err(ImageError::Beyond { .. })));
    }

    #[test]
    fn zeros_that_are_sent_take_no_place() {
        let file = tempfile::tempfile().unwrap();
        let mut writer = ImageWriter::begin(file.try_clone().unwrap(), Target::File, MIB).unwrap();
        writer.piece(0, &vec![0; CHUNK_BYTES_MAX]).unwrap();
        assert_eq!(writer.end().unwrap().bytes, 0);
        assert_eq!(file.metadata().unwrap().blocks(), 0);
    }

    #[test]
    fn an_empty_image_is_one() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(data_of(&file, 0), vec![]);
        let writer = ImageWriter::begin(file, Target::File, 0).unwrap();
        assert_eq!(writer.end().unwrap(), Written { bytes: 0 });
    }
}
