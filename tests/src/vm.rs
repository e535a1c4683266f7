//! What the payloads of `tests/guest/` left on each kernel, for assertions.
//!
//! `cargo xtask test` boots the guests and names the folder of their results in the environment variable [`RESULTS`].
//! Without it there is nothing to look at: the test says `skipped: …`, which `cargo xtask test` counts as skipped.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The environment variable that names the folder of results, which has a folder per kernel and payload.
pub const RESULTS: &str = "RDMASCOPE_VM_RESULTS";

/// The files that one payload left on one kernel.
pub struct Results {
    /// The kernel family, `6.1` or `6.12`.
    pub kernel: String,
    folder: PathBuf,
}

impl Results {
    /// The path of a file the payload left.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// A file as text.
    ///
    /// # Panics
    /// When there is no such file: the payload promises it.
    #[must_use]
    pub fn text(&self, file: &str) -> String {
        let path = self.path(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// A file that is one JSON value.
    ///
    /// # Panics
    /// When there is no such file, or it is not JSON.
    #[must_use]
    pub fn json(&self, file: &str) -> Value {
        serde_json::from_str(&self.text(file)).unwrap_or_else(|error| panic!("{}: {error}", self.path(file).display()))
    }

    /// A file of JSON lines; lines that are no JSON objects (what a program says beside its account) are left out.
    ///
    /// # Panics
    /// When there is no such file.
    #[must_use]
    pub fn json_lines(&self, file: &str) -> Vec<Value> {
        self.text(file).lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect()
    }

    /// Whether the product was built for this run; prints the skip if not.
    #[must_use]
    pub fn has_product(&self) -> bool {
        let absent = fs::read_to_string(self.path("rdmascope.absent"));
        if let Ok(reason) = &absent {
            println!("skipped: {}", reason.trim());
        }
        absent.is_err()
    }
}

/// Calls `check` with the results of `payload` on every kernel that ran it. Prints one `skipped: …` when there are none,
/// or when the payload itself skipped.
///
/// # Panics
/// When the payload failed: then its files prove nothing.
pub fn on_each_kernel(payload: &str, check: impl Fn(&Results)) {
    let Some(root) = env::var_os(RESULTS) else {
        println!("skipped: no guest ran ({RESULTS} names no results)");
        return;
    };
    let kernels = kernels(Path::new(&root), payload);
    if kernels.is_empty() {
        println!("skipped: no kernel ran the payload {payload}");
    }
    let mut skipped = None;
    for results in kernels {
        let code = results.text("rc");
        match code.trim() {
            "0" => check(&results),
            "77" => skipped = Some(results.text("skipped")),
            code => panic!("{payload} on {} ended with {code}:\n{}", results.kernel, results.text("log")),
        }
    }
    if let Some(reason) = skipped {
        println!("skipped: {}", reason.trim());
    }
}

fn kernels(root: &Path, payload: &str) -> Vec<Results> {
    let entries = fs::read_dir(root).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let mut kernels: Vec<_> = entries
        .into_iter()
        .map(|entry| Results {
            kernel: entry.file_name().to_string_lossy().into_owned(),
            folder: entry.path().join(payload),
        })
        .filter(|results| results.path("rc").is_file())
        .collect();
    kernels.sort_by(|a, b| a.kernel.cmp(&b.kernel));
    kernels
}
