//! Where to look: the ports that speak RoCE, and the network devices their packets can be seen on.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use crate::source::Missing;
use crate::source::files::Files;
use crate::source::sysfs::{gids_of, netdevs_of};

/// Ethernet and loopback (`ARPHRD_ETHER`, `ARPHRD_LOOPBACK`, `include/uapi/linux/if_arp.h`): frames that begin with an
/// Ethernet header.
const WITH_ETHERNET_HEADER: [&str; 2] = ["1", "772"];
/// What `node_type` says of an iWARP device (drivers/infiniband/core/sysfs.c).
const RNIC: &str = "4: RNIC";

/// Which network devices are looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watch {
    /// Those of software RDMA devices.
    pub auto: bool,
    /// Those named.
    pub named: Vec<Named>,
}

/// A network device named by the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub netdev: String,
    /// It is a mirror port: it carries copies of packets for other addresses, so it is made promiscuous while it is
    /// looked at.
    pub mirror: bool,
}

impl Watch {
    /// Nothing is looked at.
    #[must_use]
    pub fn is_off(&self) -> bool {
        !self.auto && self.named.is_empty()
    }
}

impl FromStr for Watch {
    type Err = String;

    /// `off`, or a list of `auto`, `NETDEV` and `mirror:NETDEV`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut watch = Self::default();
        if text.trim() == "off" {
            return Ok(watch);
        }
        for part in text.split(',').map(str::trim) {
            let (netdev, mirror) = part.strip_prefix("mirror:").map_or((part, false), |netdev| (netdev, true));
            // What the kernel takes for a name (dev_valid_name, net/core/dev.c).
            let valid = (1..16).contains(&netdev.len())
                && !netdev.contains(|c: char| c == '/' || c == ':' || c.is_whitespace())
                && netdev != "."
                && netdev != "..";
            match netdev {
                "auto" if !mirror => watch.auto = true,
                "off" => return Err("off stands alone".to_owned()),
                _ if valid => watch.named.push(Named { netdev: netdev.to_owned(), mirror }),
                _ => return Err(format!("{part:?} is none of auto, off, a network device, mirror: with one")),
            }
        }
        Ok(watch)
    }
}

/// A port whose packets may be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RocePort {
    pub(super) device: String,
    pub(super) port: u32,
    pub(super) netdev: Option<String>,
    /// The device is a driver of its own, without hardware: its packets pass the kernel's network stack.
    pub(super) software: bool,
    iwarp: bool,
    /// The addresses of its GID table.
    pub(super) addresses: Vec<IpAddr>,
}

#[cfg(test)]
impl RocePort {
    /// Port 1 of a software device.
    pub(super) fn software(device: &str, netdev: &str, addresses: Vec<IpAddr>) -> Self {
        let (device, netdev) = (device.to_owned(), Some(netdev.to_owned()));
        Self { device, port: 1, netdev, software: true, iwarp: false, addresses }
    }
}

/// A network device that is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tap {
    pub(super) netdev: String,
    pub(super) ifindex: i32,
    pub(super) mirror: bool,
    /// The port it belongs to, as a position in the list of ports; `None` where only addresses tell.
    pub(super) port: Option<usize>,
}

/// The ports of the devices wanted.
pub(super) fn ports(files: &dyn Files, wanted: &dyn Fn(&str) -> bool) -> Vec<RocePort> {
    let mut ports = Vec::new();
    let devices = files.list("class/infiniband").unwrap_or_default();
    for device in devices.into_iter().filter(|entry| entry.object && wanted(&entry.name)).map(|entry| entry.name) {
        let dir = format!("class/infiniband/{device}");
        // The software driver names its network device (`parent`), whatever else it hangs below.
        let software = files.resolve(&format!("{dir}/device")).is_err() || files.exists(&format!("{dir}/parent"));
        let iwarp = files.text(&format!("{dir}/node_type")).is_ok_and(|kind| kind == RNIC);
        let netdev = netdevs_of(files, &device).into_iter().next();
        let numbers = files.list(&format!("{dir}/ports")).unwrap_or_default();
        for port in numbers.into_iter().filter_map(|entry| entry.name.parse().ok()) {
            let gids = gids_of(files, &device, port);
            let mut addresses: Vec<IpAddr> = gids.iter().filter_map(|gid| address(&gid.gid)).collect();
            addresses.sort_unstable();
            addresses.dedup();
            let netdev = gids.iter().find_map(|gid| gid.netdev.as_deref().map(str::to_owned)).or(netdev.clone());
            ports.push(RocePort { device: device.clone(), port, netdev, software, iwarp, addresses });
        }
    }
    ports
}

/// The network devices to look at, and what will not be seen.
pub(super) fn taps(files: &dyn Files, ports: &[RocePort], watch: &Watch) -> (Vec<Tap>, Vec<Missing>) {
    let (mut taps, mut missing): (Vec<Tap>, Vec<Missing>) = (Vec::new(), Vec::new());
    let mut tap = |named: Named, missing: &mut Vec<Missing>| {
        if taps.iter().any(|known: &Tap| known.netdev == named.netdev) {
            return;
        }
        let port = ports.iter().position(|port| port.netdev.as_ref() == Some(&named.netdev));
        match index(files, &named.netdev) {
            Ok(ifindex) => {
                taps.push(Tap {
                    netdev: named.netdev,
                    ifindex,
                    mirror: named.mirror,
                    port: port.filter(|_| !named.mirror),
                });
            }
            Err(reason) => missing.push(unseen(&named.netdev, reason, None)),
        }
    };
    for named in &watch.named {
        tap(named.clone(), &mut missing);
    }
    for port in ports.iter().filter(|_| watch.auto) {
        let name = format!("{} port {}", port.device, port.port);
        match &port.netdev {
            _ if port.iwarp => missing.push(unseen(&name, "iWARP sends no RoCE packets".to_owned(), None)),
            _ if !port.software => {
                let reason = "the adapter's packets do not pass the kernel".to_owned();
                missing.push(unseen(
                    &name,
                    reason,
                    Some("mirror the port and name the device: --packets mirror:NETDEV"),
                ));
            }
            None => missing.push(unseen(&name, "its network device is not known here".to_owned(), None)),
            Some(netdev) => tap(Named { netdev: netdev.clone(), mirror: false }, &mut missing),
        }
    }
    (taps, missing)
}

pub(super) fn unseen(of: &str, reason: String, fix: Option<&str>) -> Missing {
    Missing { what: format!("packets of {of}"), reason, fix: fix.map(str::to_owned) }
}

fn index(files: &dyn Files, netdev: &str) -> Result<i32, String> {
    let dir = format!("class/net/{netdev}");
    let text = |file: &str| files.text(&format!("{dir}/{file}"));
    let ifindex = text("ifindex").ok().and_then(|text| text.parse().ok());
    let Some(ifindex) = ifindex else { return Err("there is no such network device here".to_owned()) };
    match text("type") {
        Ok(kind) if WITH_ETHERNET_HEADER.contains(&kind.as_str()) => Ok(ifindex),
        Ok(kind) => Err(format!("its frames are not Ethernet's (type {kind})")),
        Err(_) => Err("its kind cannot be read".to_owned()),
    }
}

/// The address of a GID: IPv4 is written as `::ffff:a.b.c.d` in it.
fn address(gid: &str) -> Option<IpAddr> {
    let address: Ipv6Addr = gid.parse().ok()?;
    Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::source::files::RootedFiles;

    fn write(root: &std::path::Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// Two software devices (one of them iWARP) and an adapter.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (n, (device, kind, netdev)) in
            [("rxe0", "1: CA", "va"), ("siw0", "4: RNIC", "vb"), ("mlx5_0", "1: CA", "eth0")].into_iter().enumerate()
        {
            let device = format!("class/infiniband/{device}");
            write(root, &format!("{device}/node_type"), kind);
            write(root, &format!("{device}/ports/1/gids/0"), "fe80:0000:0000:0000:5054:00ff:fe12:3456");
            write(
                root,
                &format!("{device}/ports/1/gids/1"),
                &format!("0000:0000:0000:0000:0000:ffff:0a00:0{}01", n + 1),
            );
            for index in 0..2 {
                write(root, &format!("{device}/ports/1/gid_attrs/ndevs/{index}"), netdev);
            }
            write(root, &format!("class/net/{netdev}/ifindex"), &(n + 7).to_string());
            write(root, &format!("class/net/{netdev}/type"), "1");
        }
        fs::create_dir_all(root.join("devices/pci0000:00/0000:00:01.0")).unwrap();
        symlink("../../../devices/pci0000:00/0000:00:01.0", root.join("class/infiniband/mlx5_0/device")).unwrap();
        write(root, "class/net/tun0/ifindex", "20");
        write(root, "class/net/tun0/type", "65534");
        dir
    }

    #[test]
    fn auto_takes_the_software_devices_that_speak_roce_and_says_why_not_the_others() {
        let dir = tree();
        let files = RootedFiles::new(dir.path()).unwrap();
        let ports = ports(&files, &|_| true);
        let rxe = ports.iter().position(|port| port.device == "rxe0").unwrap();
        assert!(ports[rxe].addresses.contains(&IpAddr::from([10, 0, 1, 1])), "{:?}", ports[rxe]);
        let (taps, missing) = taps(&files, &ports, &"auto".parse().unwrap());
        assert_eq!(taps, [Tap { netdev: "va".to_owned(), ifindex: 7, mirror: false, port: Some(rxe) }]);
        let why = |device: &str| missing.iter().find(|m| m.what.contains(device)).map(|m| m.reason.as_str());
        assert_eq!(why("siw0"), Some("iWARP sends no RoCE packets"));
        assert_eq!(why("mlx5_0"), Some("the adapter's packets do not pass the kernel"));
    }

    #[test]
    fn a_named_device_is_taken_as_it_is_and_only_a_mirror_port_is_made_promiscuous() {
        let dir = tree();
        let files = RootedFiles::new(dir.path()).unwrap();
        let ports = ports(&files, &|name| name != "siw0");
        let (taps, missing) = taps(&files, &ports, &"eth0,mirror:vb,tun0,eth9,eth0".parse().unwrap());
        let seen: Vec<_> = taps.iter().map(|tap| (tap.netdev.as_str(), tap.mirror, tap.port.is_some())).collect();
        assert_eq!(seen, [("eth0", false, true), ("vb", true, false)]);
        let reasons: Vec<_> = missing.iter().map(|m| m.reason.as_str()).collect();
        assert_eq!(reasons, ["its frames are not Ethernet's (type 65534)", "there is no such network device here"]);
    }

    #[test]
    fn what_is_to_be_watched_is_off_or_a_list() {
        assert!("off".parse::<Watch>().unwrap().is_off());
        let watch: Watch = "auto, mirror:eth5".parse().unwrap();
        assert!(watch.auto && watch.named == [Named { netdev: "eth5".to_owned(), mirror: true }]);
        for wrong in ["", "off,auto", "a/b", "mirror:", "mirror:x:y", "sixteen-letters-x", "eth0,,eth1"] {
            assert!(wrong.parse::<Watch>().is_err(), "{wrong:?}");
        }
    }
}
