//! Where things are in the working copy.

use std::env;
use std::path::{Path, PathBuf};

/// The top of the working copy.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the xtask package lies one level below the workspace root")
}

/// Cargo's target directory.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |path| root().join(path))
}

/// The package that needs libibverbs and its headers to be built; all others do without.
pub(crate) const VERBS: &str = "rdmascope-verbs";
