//! The GID table of a port: the entries in use.
//!
//! An empty slot holds an all-zero GID, and its `gid_attrs` answer `EINVAL`: that is the kernel's way to say empty.
//! The first entry in use need not be the first of the table. The table is long (256 slots on mlx5, 1,024 on rxe) and the
//! kernel puts a new GID into the lowest free slot, so the reading ends after a long row of empty ones: a GID behind such
//! a row, left there when those before it were deleted, is not seen.

use std::io;

use rustix::io::Errno;

use crate::observation::{Gid, Text};
use crate::source::files::Files;

/// Empty slots in a row after which the rest of the table counts as empty.
const LONGEST_GAP: u32 = 64;

/// The entries in use of the port at `port_dir`, and why what belongs to one of them could not be read: then it is `None`, or as it
/// was `before`.
///
/// # Errors
/// A slot could not be read, for example for want of a descriptor: the table is not known then, which is not to say that it is
/// empty from there on.
pub fn read(
    files: &dyn Files,
    port_dir: &str,
    before: &[Gid<'static>],
) -> io::Result<(Vec<Gid<'static>>, Option<io::Error>)> {
    let (mut gids, mut unread) = (Vec::new(), None);
    let mut gap = 0;
    for index in 0u32.. {
        let gid = match files.text(&format!("{port_dir}/gids/{index}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            other => unless_empty(other)?.unwrap_or_default(),
        };
        if is_zero(&gid) {
            gap += 1;
            if gap == LONGEST_GAP {
                break;
            }
            continue;
        }
        gap = 0;
        let mut attribute =
            |attribute: &str, was: for<'g> fn(&'g Gid<'static>) -> &'g Option<Text<'static>>| match unless_empty(
                files.text(&format!("{port_dir}/gid_attrs/{attribute}/{index}")),
            ) {
                Ok(text) => text.filter(|text| !text.is_empty()).map(Into::into),
                Err(error) => {
                    unread.get_or_insert(error);
                    let known = before.iter().find(|before| before.index == index && *before.gid == *gid);
                    known.and_then(|known| was(known).clone())
                }
            };
        let (kind, netdev) = (attribute("types", |gid| &gid.kind), attribute("ndevs", |gid| &gid.netdev));
        gids.push(Gid { index, gid: gid.into(), kind, netdev });
    }
    Ok((gids, unread))
}

/// The text of a slot's file; `None` where it says that the slot is empty, or there is no such file.
fn unless_empty(text: io::Result<String>) -> io::Result<Option<String>> {
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::NOENT)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A GID or GUID of nothing but zeros, or no text at all.
pub(super) fn is_zero(id: &str) -> bool {
    id.chars().all(|c| matches!(c, '0' | ':'))
}
