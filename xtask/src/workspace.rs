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

/// Arguments of cargo for what needs libibverbs: it is selected among all packages and together with an example, as tests
/// are, so that it shares their builds of what it depends on.
pub(crate) const WITH_VERBS: [&str; 7] =
    ["--workspace", "--features", "collector/verbs", "--bin", "rdmascope-verbs", "--example", "drain_on_warning"];
