//! An archive in the `newc` format of cpio, which the kernel unpacks as its initial file system.
//!
//! Archives may follow each other in one file: the payload is appended to the initrd that way.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;

/// Writes one archive.
pub(crate) struct Archive<W: Write> {
    output: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    /// An archive that goes to `output`, which must stand at a multiple of four bytes.
    pub(crate) fn new(output: W) -> Self {
        Self { output, inode: 0 }
    }

    /// Adds a directory.
    pub(crate) fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY, &[])
    }

    /// Adds a file that everyone may execute.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.entry(name, EXECUTABLE, content)
    }

    /// Adds a file with the content of a file of the host.
    pub(crate) fn copy(&mut self, name: &str, from: &Path) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.file(name, &content).with_context(|| format!("cannot archive {}", from.display()))
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(content.len()).map_err(|_| io::Error::other("a file of 4 GiB or more"))?;
        let name_size = u32::try_from(name.len() + 1).map_err(|_| io::Error::other("a name of 4 GiB or more"))?;
        // inode, mode, uid, gid, links, mtime, size, device (major, minor), rdev (major, minor), name size, checksum
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        let mut header = Vec::with_capacity(110 + name.len() + 4);
        header.extend_from_slice(b"070701");
        for field in fields {
            write!(header, "{field:08x}")?;
        }
        header.extend_from_slice(name.as_bytes());
        header.push(0);
        pad(&mut header);
        self.output.write_all(&header)?;
        self.output.write_all(content)?;
        self.output.write_all(&[0; 3][..content.len().next_multiple_of(4) - content.len()])
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_aligned_and_ends_with_the_trailer() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("d").expect("memory takes every write");
        archive.file("d/f", b"12345").expect("memory takes every write");
        let bytes = archive.finish().expect("memory takes every write");

        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        // "d", its nul and the padding make the first entry 112 bytes; the second starts right behind.
        assert_eq!(&bytes[112..118], b"070701");
        // The seventh field behind the magic is the file's size.
        assert_eq!(&bytes[112 + 6 + 6 * 8..112 + 6 + 7 * 8], b"00000005");
        let trailer = b"TRAILER!!!\0";
        assert!(bytes.windows(trailer.len()).any(|window| window == trailer));
    }
}
