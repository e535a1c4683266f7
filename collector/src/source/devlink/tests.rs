//! The source over stored answers and a tree of files.

use std::os::unix::fs::symlink;

use super::reporter::attr;
use super::*;
use crate::source::files::RootedFiles;
use crate::source::netlink::scene::{FAMILY, MULTI, attribute, done, exchange, families, number, raw, refusal, text};
use crate::source::netlink::stored::{Exchange, Stored};

const SECOND: Nanos = 1_000_000_000;
const DUMP: u16 = netlink_packet_core::NLM_F_DUMP;

/// `mlx5_0` on a PCI function, and rxe0 whose network device is made by another bus.
fn tree() -> (tempfile::TempDir, Arc<dyn Files>) {
    let dir = tempfile::tempdir().unwrap();
    let make = |path: &str| std::fs::create_dir_all(dir.path().join(path)).unwrap();
    for path in ["bus/pci", "bus/netdevsim", "devices/pci0000:3a/0000:3b:00.0", "devices/netdevsim10"] {
        make(path);
    }
    make("class/infiniband/mlx5_0");
    make("class/infiniband/rxe0");
    make("class/net/eni10np1");
    let link = |to: &str, at: &str| symlink(to, dir.path().join(at)).unwrap();
    link("../../../bus/pci", "devices/pci0000:3a/0000:3b:00.0/subsystem");
    link("../../bus/netdevsim", "devices/netdevsim10/subsystem");
    link("../../../devices/pci0000:3a/0000:3b:00.0", "class/infiniband/mlx5_0/device");
    link("../../../devices/netdevsim10", "class/net/eni10np1/device");
    let files = Arc::new(RootedFiles::new(dir.path()).unwrap());
    (dir, files)
}

fn ports() -> PortMap {
    let ports = PortMap::default();
    let port = |device: &str, netdev: &str, pci: Option<&str>| RdmaPort {
        device: device.to_owned(),
        port: 1,
        netdevs: vec![netdev.to_owned()],
        pci: pci.map(str::to_owned),
        ..RdmaPort::default()
    };
    ports.set(vec![port("mlx5_0", "eth0", Some("0000:3b:00.0")), port("rxe0", "eni10np1", None)]);
    ports
}

/// The attributes of one reporter's message.
fn reporter(device: &str, port: Option<u32>, name: &str, state: u8, errors: u64, recoveries: u64) -> Vec<u8> {
    let (bus, device) = device.split_once('/').unwrap();
    let port = port.map(|port| number(attr::PORT_INDEX, port)).unwrap_or_default();
    let inner = [
        text(attr::NAME, name),
        attribute(attr::STATE, &[state]),
        attribute(attr::ERROR_COUNT, &errors.to_ne_bytes()),
        attribute(attr::RECOVER_COUNT, &recoveries.to_ne_bytes()),
    ];
    let nest = attribute(0x8000 | attr::HEALTH_REPORTER, &inner.concat());
    [&[REPORTER_GET, 1, 0, 0][..], &text(attr::BUS_NAME, bus), &text(attr::DEV_NAME, device), &port, &nest].concat()
}

fn list(reporters: &[Vec<u8>]) -> Exchange {
    let messages: Vec<u8> = reporters.iter().flat_map(|reporter| raw(FAMILY, MULTI, 1, reporter)).collect();
    exchange(FAMILY, DUMP, &[REPORTER_GET, 1, 0, 0], vec![messages, done(0)])
}

#[allow(clippy::unnecessary_wraps, reason = "what arrives may be an error instead")]
fn event(mut reporter: Vec<u8>) -> std::io::Result<Vec<u8>> {
    reporter[0] = REPORTER_CHANGED;
    Ok(raw(FAMILY, 0, 0, &reporter))
}

fn source(files: Arc<dyn Files>, lists: Vec<Exchange>, events: Vec<std::io::Result<Vec<u8>>>) -> Devlink {
    let mut exchanges = vec![families("devlink", "config")];
    exchanges.extend(lists);
    let questions = Generic::over(Box::new(Stored::new(exchanges)), "devlink", 1).unwrap().unwrap();
    let way = Way { questions, events: Some(Box::new(Stored::arriving(events))), deaf: None };
    Devlink::over(files, ports(), Ok(way))
}

fn arrive(source: &mut Devlink, events: Vec<std::io::Result<Vec<u8>>>) {
    let Ok(way) = &mut source.way else { panic!("a way") };
    way.events = Some(Box::new(Stored::arriving(events)));
}

fn poll(source: &mut Devlink, now: Nanos) -> Vec<String> {
    let mut said = Vec::new();
    source.poll(now, &mut |observation| {
        said.push(match &observation.body {
            Body::Health(health) => {
                let device = health.device.as_deref().unwrap_or("–");
                let pci = health.pci.as_deref().unwrap_or("–");
                format!("health {device} {pci} {}: {}", health.reporter, health.message)
            }
            Body::Counters(set) => {
                assert_eq!((set.source, set.port), (CounterSource::Devlink, None));
                let values: Vec<String> = set.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("{} {}", set.device, values.join(" "))
            }
            Body::Lost(lost) => format!("lost {}", lost.n),
            other => other.type_name().to_owned(),
        });
    });
    said
}

#[test]
fn each_device_has_its_own_reporters_numbers_every_ten_seconds() {
    let (_dir, files) = tree();
    let reporters = [
        reporter("pci/0000:3b:00.0", None, "fw", 0, 2, 2),
        reporter("pci/0000:3b:00.0", Some(65535), "tx", 0, 0, 0),
        reporter("netdevsim/netdevsim10", None, "dummy", 0, 1, 1),
        reporter("pci/0000:99:00.0", None, "fw", 1, 9, 9),
    ];
    let mut source = source(files, vec![list(&reporters)], vec![]);
    let first = [
        "rxe0 dummy.state=0 dummy.error_count=1 dummy.recover_count=1",
        "mlx5_0 fw.state=0 fw.error_count=2 fw.recover_count=2 tx.port65535.state=0 tx.port65535.error_count=0 \
         tx.port65535.recover_count=0",
    ];
    assert_eq!(poll(&mut source, SECOND), first);
    assert!(poll(&mut source, 10 * SECOND).is_empty());
    assert_eq!(poll(&mut source, 11 * SECOND), first);
    assert_eq!((source.availability().state, &*source.availability().sees), (Seeing::Ok, "3 health reporters"));
}

#[test]
fn a_reporter_that_goes_into_error_is_said_at_once_and_once() {
    let (_dir, files) = tree();
    let fw = |state, errors, recoveries| reporter("pci/0000:3b:00.0", None, "fw", state, errors, recoveries);
    let mut source = source(files, vec![list(&[fw(0, 2, 2)]), list(&[fw(1, 3, 2)])], vec![]);
    poll(&mut source, SECOND);
    arrive(&mut source, vec![event(fw(1, 3, 2)), event(fw(1, 3, 2)), event(fw(0, 3, 3))]);
    let told = [
        "health mlx5_0 0000:3b:00.0 fw: in error: 3 errors, 2 recoveries",
        "mlx5_0 fw.state=1 fw.error_count=3 fw.recover_count=2",
        "mlx5_0 fw.state=0 fw.error_count=3 fw.recover_count=3",
    ];
    assert_eq!(poll(&mut source, 2 * SECOND), told);
    // The list says so again, and a loss makes it be asked for.
    arrive(&mut source, vec![Err(std::io::Error::from_raw_os_error(105))]);
    let told = [
        "health mlx5_0 0000:3b:00.0 fw: in error: 3 errors, 2 recoveries",
        "mlx5_0 fw.state=1 fw.error_count=3 fw.recover_count=2",
        "lost 1",
    ];
    assert_eq!(poll(&mut source, 3 * SECOND), told);
}

#[test]
fn an_error_that_was_recovered_from_before_anybody_looked_is_said() {
    let (_dir, files) = tree();
    let fw = |errors| reporter("pci/0000:3b:00.0", None, "fw", 0, errors, errors);
    let mut source = source(files, vec![list(&[fw(2)]), list(&[fw(3)])], vec![]);
    poll(&mut source, SECOND);
    assert_eq!(
        poll(&mut source, 11 * SECOND)[0],
        "health mlx5_0 0000:3b:00.0 fw: error, recovered: 3 errors, 3 recoveries"
    );
}

#[test]
fn a_reporter_in_error_at_the_start_is_said_and_old_errors_are_not() {
    let (_dir, files) = tree();
    let reporters =
        [reporter("pci/0000:3b:00.0", None, "fw", 0, 7, 7), reporter("pci/0000:3b:00.0", None, "fw_fatal", 1, 1, 0)];
    let mut source = source(files, vec![list(&reporters)], vec![]);
    let said = poll(&mut source, SECOND);
    assert_eq!(said[0], "health mlx5_0 0000:3b:00.0 fw_fatal: in error: 1 errors, 0 recoveries");
    assert_eq!(said.len(), 2);
}

#[test]
fn devices_without_reporters_and_a_list_that_fails_have_their_reasons() {
    let (_dir, files) = tree();
    let mut none = source(files.clone(), vec![list(&[])], vec![]);
    assert!(poll(&mut none, SECOND).is_empty());
    let reason = "health reporters: no RDMA device's driver here has any";
    assert_eq!((none.availability().state, none.availability().reason()), (Seeing::Off, Some(reason.to_owned())));
    let refused = exchange(FAMILY, DUMP, &[REPORTER_GET, 1, 0, 0], vec![refusal(-1)]);
    let mut refused = source(files, vec![refused], vec![]);
    poll(&mut refused, SECOND);
    assert!(refused.availability().reason().unwrap().contains("Operation not permitted"));
}
