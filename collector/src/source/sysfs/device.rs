//! What a device is: its function, driver, GUID, firmware and model.

use super::gid::is_zero;
use crate::observation::Device;
use crate::source::files::{Files, Folder, Look, base_name, errno_name, says_gone};

/// Why a class link without its target tells nothing more, and what to do about it.
pub(super) const DANGLING: &str = "dangling class link: /sys/devices is not visible here";
/// The remedy for [`DANGLING`].
pub(super) const DANGLING_FIX: &str = "bind-mount the host's whole /sys (with /sys/devices) and pass --sysfs-root";

/// The files that tell what a device is.
const FILES: [&str; 5] = ["node_guid", "fw_ver", "board_id", "hca_type", PARENT];
/// The network device of a software device.
const PARENT: &str = "parent";

/// A device's files and what they said last.
pub(super) struct Described {
    files: Folder,
    pub(super) seen: Device<'static>,
    was_read: bool,
}

impl Described {
    /// The device as sysfs describes it.
    pub(super) fn read(files: &dyn Files, name: &str) -> Self {
        let folder = Folder::new(format!("class/infiniband/{name}"), &FILES);
        let device = Device { device: name.to_owned().into(), ..Device::default() };
        let mut described = Self { files: folder, seen: device, was_read: false };
        described.read_anew(files);
        described
    }

    /// Reads what can change while the device is there: where it is, and by which driver, cannot as long as it is the same
    /// object (the caller knows by the inode of its class link).
    pub(super) fn refresh(&mut self, files: &dyn Files) {
        if self.seen.unreadable.is_some() || self.files.look(files) == Look::Gone {
            self.read_anew(files);
            return;
        }
        self.read_texts();
    }

    /// Reads everything; where nothing tells that the device is another, or gone, it stays as it was seen.
    pub(super) fn read_anew(&mut self, files: &dyn Files) {
        let dir = self.files.path().to_owned();
        let resolved = files.resolve(&dir);
        if resolved.as_ref().is_err_and(|error| self.was_read && !says_gone(error)) {
            return;
        }
        self.seen = Device { device: std::mem::take(&mut self.seen.device), ..Device::default() };
        let device = &mut self.seen;
        if let Err(error) = resolved {
            // The link's own text still names the function.
            let target = files.link(&dir).unwrap_or_default();
            device.pci = function_of(&target).map(|pci| pci.to_owned().into());
            let dangling = error.kind() == std::io::ErrorKind::NotFound;
            let reason = if dangling { DANGLING.into() } else { errno_name(&error) };
            device.unreadable = Some(reason);
            return;
        }
        if let Ok(function) = files.resolve(&format!("{dir}/device")) {
            place(files, &function, device);
        }
        self.files.look(files);
        self.read_texts();
        self.was_read = true;
    }

    /// What the device names as its network device; only software devices do.
    pub(super) fn parent(&mut self) -> Option<String> {
        self.files.text(PARENT)
    }

    fn read_texts(&mut self) {
        let mut text = |file: &str| self.files.text(file).filter(|text| !text.is_empty());
        self.seen.node_guid = text("node_guid").filter(|guid| !is_zero(guid)).map(Into::into);
        self.seen.fw = text("fw_ver").map(Into::into);
        self.seen.model = text("board_id").or_else(|| text("hca_type")).map(Into::into);
    }
}

/// What the function at this path tells of its device.
fn place(files: &dyn Files, function: &str, device: &mut Device<'static>) {
    device.pci = function_of(function).map(|pci| pci.to_owned().into());
    device.driver =
        files.resolve(&format!("{function}/driver")).ok().map(|driver| base_name(&driver).to_owned().into());
    let physfn = format!("{function}/physfn");
    if files.link(&physfn).is_ok() {
        device.vf = Some(true);
        device.physfn = files.resolve(&physfn).ok().map(|pf| base_name(&pf).to_owned().into());
    } else if files.exists(&format!("{function}/sriov_totalvfs")) {
        // Only a physical function has it. Without either file (a VF handed to a guest) it is not known.
        device.vf = Some(false);
    }
}

/// The last PCI address among the parts of a path: the function itself, or the one a subfunction belongs to.
pub(crate) fn function_of(path: &str) -> Option<&str> {
    path.split('/').rev().find(|part| is_pci_address(part))
}

/// `dddd:bb:dd.f`, hexadecimal; the domain has four digits or more.
pub(crate) fn is_pci_address(text: &str) -> bool {
    let hex = |text: &str, min: usize, max: usize| {
        (min..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let Some((rest, function)) = text.rsplit_once('.') else { return false };
    let mut parts = rest.split(':');
    let (Some(domain), Some(bus), Some(slot), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    hex(domain, 4, 8) && hex(bus, 2, 2) && hex(slot, 2, 2) && hex(function, 1, 1)
}

#[cfg(test)]
mod tests {
    use super::{function_of, is_pci_address};

    #[test]
    fn an_address_is_told_from_a_host_bridge_and_found_behind_a_subfunction() {
        assert!(is_pci_address("0000:3b:00.0") && is_pci_address("e5f1:00:02.0") && is_pci_address("10000:01:00.0"));
        assert!(!is_pci_address("pci0000:3b") && !is_pci_address("0000:3b") && !is_pci_address("mlx5_core.sf.4"));
        assert_eq!(function_of("devices/pci0000:00/0000:00:01.0/0000:03:00.0/mlx5_core.sf.4"), Some("0000:03:00.0"));
        assert_eq!(function_of("devices/virtual/net/eth0"), None);
    }
}
