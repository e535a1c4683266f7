//! The GID table of a port: the entries in use.
//!
//! An empty slot holds an all-zero GID, and its `gid_attrs` answer `EINVAL`: that is the kernel's way to say empty.
//! The first entry in use need not be the first of the table.

use crate::observation::Gid;
use crate::source::files::Files;

/// The entries in use of the port at `port_dir`.
pub(super) fn read(files: &dyn Files, port_dir: &str) -> Vec<Gid<'static>> {
    let mut gids = Vec::new();
    for entry in files.list(&format!("{port_dir}/gids")).unwrap_or_default() {
        let Ok(index) = entry.name.parse() else { continue };
        let Ok(gid) = files.text(&format!("{port_dir}/gids/{}", entry.name)) else { continue };
        if is_zero(&gid) {
            continue;
        }
        let attribute = |attribute: &str| {
            let text = files.text(&format!("{port_dir}/gid_attrs/{attribute}/{}", entry.name)).ok()?;
            (!text.is_empty()).then(|| text.into())
        };
        gids.push(Gid { index, gid: gid.into(), kind: attribute("types"), netdev: attribute("ndevs") });
    }
    gids
}

/// A GID or GUID of nothing but zeros, or no text at all.
pub(super) fn is_zero(id: &str) -> bool {
    id.chars().all(|c| matches!(c, '0' | ':'))
}
