//! One boot of the guest in QEMU, from start to the end of its last payload or to the deadline.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::image::Image;
use crate::command;

/// QEMU's name in Debian.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

const COMMAND_LINE: &str = "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off tsc=reliable no_timer_check nokaslr \
    random.trust_cpu=on audit=0 apparmor=0 selinux=0 net.ifnames=0 cryptomgr.notests rcupdate.rcu_expedited=1";

/// The PCI Express devices: three root ports with an e1000e, an NVM Express disk and a virtio network card behind them. The
/// card is the function that errors are injected on, since QEMU gives it an AER capability.
const PCI_DEVICES: &[&str] = &[
    "-device",
    "ioh3420,id=rp0,bus=pcie.0,chassis=1,slot=1,addr=5.0",
    "-device",
    "e1000e,id=ep0,bus=rp0,netdev=n0",
    "-netdev",
    "hubport,hubid=9,id=n0",
    "-device",
    "pcie-root-port,id=rp1,bus=pcie.0,chassis=2,slot=2,addr=6.0",
    "-drive",
    "if=none,id=nv,file=null-co://,format=raw",
    "-device",
    "nvme,id=ep1,bus=rp1,serial=x,drive=nv",
    "-device",
    "pcie-root-port,id=rp2,bus=pcie.0,chassis=3,slot=3,addr=7.0",
    "-device",
    "virtio-net-pci,id=ep2,bus=rp2,aer=on,netdev=n2",
    "-netdev",
    "hubport,hubid=9,id=n2",
];

/// How a boot ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Every payload was started and ended.
    Completed,
    /// The guest was still running at the deadline.
    TimedOut,
    /// QEMU ended before the guest reported: a crash of the guest or of QEMU.
    Crashed,
}

impl Display for Ending {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::TimedOut => "was still running at its deadline",
            Self::Crashed => "ended before it reported: a crash",
        })
    }
}

/// How the guest's time passes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    /// With the host's, on two processors, by the fastest accelerator.
    Host,
    /// By what the guest executes: [`NS_AN_INSTRUCTION`] for each instruction, on one processor. What
    /// a process's CPU time says is then a number of instructions, whatever else the host does.
    Instructions,
}

/// Nanoseconds of the guest that an instruction takes with [`Time::Instructions`].
pub(crate) const NS_AN_INSTRUCTION: u64 = 1 << SHIFT;
const SHIFT: u32 = 3;

impl Time {
    fn arguments(self) -> Vec<String> {
        match self {
            Self::Host => ["-accel", accelerator(), "-smp", "2"].map(str::to_owned).to_vec(),
            Self::Instructions => {
                let icount = format!("shift={SHIFT},align=off");
                ["-accel", "tcg,thread=single", "-smp", "1", "-icount", &icount].map(str::to_owned).to_vec()
            }
        }
    }
}

/// A running QEMU, which never outlives this value, and not this process either.
struct Machine(Child);

impl Machine {
    /// `setpriv` has the kernel kill QEMU when the thread that starts it ends, by whatever signal.
    fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.spawn().context("cannot start QEMU")?))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// QEMU, to be killed by the kernel when this process ends.
fn qemu() -> Command {
    let mut command = command::system("setpriv");
    command.args(["--pdeathsig", "KILL", "--", QEMU]);
    command
}

/// The fastest accelerator that works here. A `/dev/kvm` that opens is no proof: some hosts' refuses QEMU's set-up.
pub(crate) fn accelerator() -> &'static str {
    let tried = || -> Result<bool> {
        if OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(false);
        }
        let mut machine = qemu()
            .args(["-accel", "kvm", "-M", "q35", "-cpu", "max", "-m", "64", "-display", "none", "-nodefaults"])
            .args(["-S", "-monitor", "stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(mut monitor) = machine.stdin.take() {
            // A machine that has already ended takes no command; its exit status tells.
            let _ = monitor.write_all(b"quit\n");
        }
        Ok(machine.wait()?.success())
    };
    if tried().unwrap_or(false) { "kvm" } else { "tcg,thread=multi" }
}

/// The files of one boot.
pub(crate) struct Files<'a> {
    /// A folder for what it needs while it runs.
    pub(crate) work: &'a Path,
    /// Where its console goes.
    pub(crate) console: &'a Path,
    /// Where results go: archives of tar, one behind the other.
    pub(crate) results: &'a Path,
}

/// Boots `image` with `payload` appended to its initrd. Lines that report progress are printed behind its name.
pub(crate) fn boot(
    image: &Image,
    payload: &[u8],
    files: &Files<'_>,
    limit: Duration,
    time: Time,
    name: &str,
) -> Result<Ending> {
    let Files { work, console, results } = files;
    let initrd = work.join("initrd");
    fs::copy(&image.initrd, &initrd)?;
    OpenOptions::new().append(true).open(&initrd)?.write_all(payload)?;
    File::create(console)?;
    let errors = work.join("qemu.err");
    let mut machine = Machine::start(
        qemu()
            .args(time.arguments())
            .args(["-M", "q35", "-cpu", "max", "-m", "2048", "-nodefaults"])
            .args(["-no-user-config", "-no-reboot", "-display", "none", "-append", COMMAND_LINE, "-kernel"])
            .arg(&image.kernel)
            .arg("-initrd")
            .arg(&initrd)
            .arg("-drive")
            .arg(format!("if=none,id=root,format=raw,readonly=on,file={}", image.root.display()))
            .args(["-device", "virtio-blk-pci,drive=root", "-device", "isa-debug-exit,iobase=0xf4,iosize=1"])
            .args(["-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng"])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .arg("-chardev")
            .arg(format!("file,id=results,path={}", results.display()))
            .args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=results,name=results"])
            .args(PCI_DEVICES)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&errors)?),
    )?;
    let deadline = Instant::now() + limit;
    let mut progress = Progress { name: name.to_owned(), ..Progress::default() };
    let ended = loop {
        progress.print(console)?;
        if machine.0.try_wait()?.is_some() {
            break true;
        }
        if Instant::now() >= deadline {
            break false;
        }
        thread::sleep(Duration::from_millis(50));
    };
    progress.print(console)?;
    drop(machine);
    if !progress.completed {
        println!("QEMU said: {}", fs::read_to_string(&errors)?.trim_end());
    }
    Ok(match (ended, progress.completed) {
        (_, true) => Ending::Completed,
        (true, false) => Ending::Crashed,
        (false, false) => Ending::TimedOut,
    })
}

/// Prints the guest's progress while its console grows.
#[derive(Default)]
struct Progress {
    name: String,
    read: u64,
    line: Vec<u8>,
    completed: bool,
}

impl Progress {
    fn print(&mut self, console: &Path) -> Result<()> {
        let mut file = File::open(console)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut new = Vec::new();
        self.read += file.read_to_end(&mut new)? as u64;
        self.take(&new);
        Ok(())
    }

    fn take(&mut self, new: &[u8]) {
        for byte in new {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
            self.line.clear();
            // The console may carry the end of a kernel message before our line.
            if let Some(at) = ["PAYLOAD ", "GUEST-"].iter().find_map(|mark| line.find(mark)) {
                println!("   {:4} {}", self.name, &line[at..]);
                self.completed |= line[at..].starts_with("GUEST-RC");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_is_complete_once_the_guest_has_reported_even_in_pieces_and_behind_kernel_messages() {
        let mut progress = Progress::default();
        progress.take(b"GUEST-UP 3.2\r\nPAYLOAD bench starts 3.3\r\n[ 9.1] rxe: up GUEST-");
        assert!(!progress.completed);
        progress.take(b"RC 0\r\n");
        assert!(progress.completed);
    }
}
