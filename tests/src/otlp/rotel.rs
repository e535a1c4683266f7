//! A real OpenTelemetry collector (rotel, from `PyPI`) that forwards by OTLP. `cargo xtask setup` installs it below target/.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Receiver, Speaks};
use crate::binary::wait_until;

/// Where its installation is, below the workspace.
pub const PLACE: &str = "target/rotel";

/// A collector that runs.
pub struct Rotel {
    child: Child,
    grpc: u16,
    http: u16,
    _dir: tempfile::TempDir,
}

/// Its program, where it is installed.
#[must_use]
pub fn program() -> Option<PathBuf> {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PLACE).join("lib");
    let pythons = std::fs::read_dir(lib).ok()?.flatten();
    pythons.map(|python| python.path().join("site-packages/rotel/rotel-agent")).find(|program| program.is_file())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

impl Rotel {
    /// Starts it with `receiver` behind it.
    ///
    /// # Panics
    /// It does not listen within 20 s.
    #[must_use]
    pub fn start(program: &Path, behind: &Receiver) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (grpc, http) = (free_port(), free_port());
        let protocol = if behind.speaks == Speaks::Grpc { "grpc" } else { "http" };
        let mut command = Command::new(program);
        command
            .args(["start", "--exporter", "otlp", "--batch-timeout", "200ms"])
            .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc}")])
            .args(["--otlp-http-endpoint", &format!("127.0.0.1:{http}")])
            .args(["--otlp-exporter-endpoint", &behind.url(), "--otlp-exporter-protocol", protocol])
            .current_dir(dir.path())
            .env_clear()
            .env("HOME", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let up = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
        let ready = wait_until(Duration::from_secs(20), || up(grpc) && up(http));
        if !ready {
            let _ = child.kill();
        }
        assert!(ready, "rotel does not listen");
        Self { child, grpc, http, _dir: dir }
    }

    /// The URL of its receiver.
    #[must_use]
    pub fn url(&self, speaks: Speaks) -> String {
        format!("http://127.0.0.1:{}", if speaks == Speaks::Grpc { self.grpc } else { self.http })
    }
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
