//! The source over stored answers of the kernel and trees of files.

use super::dcb::{GET_DCB, attr, command, question};
use serde_json::Value;

use super::*;
use crate::source::files::RootedFiles;
use crate::source::files::faults::FaultyFiles;
use crate::source::netlink::scene::{attribute, exchange, raw, refusal};
use crate::source::netlink::stored::{Exchange, Stored};

const SECOND: Nanos = 1_000_000_000;

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Arc<dyn Files>) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let files = Arc::new(RootedFiles::new(dir.path()).unwrap());
    (dir, files)
}

fn ports(driver: Option<&str>) -> PortMap {
    let ports = PortMap::default();
    ports.set(vec![RdmaPort {
        device: "mlx5_0".to_owned(),
        port: 1,
        netdevs: vec!["eth0".to_owned()],
        pci: Some("0000:3b:00.0".to_owned()),
        driver: driver.map(str::to_owned),
        ..RdmaPort::default()
    }]);
    ports
}

fn answer(command: u8, attributes: &[u8]) -> Exchange {
    let reply = raw(GET_DCB, 0, 1, &[&[0, command, 0, 0], attributes].concat());
    exchange(GET_DCB, 0, &question(command, "eth0"), vec![reply])
}

fn refused(command: u8, errno: i32) -> Exchange {
    exchange(GET_DCB, 0, &question(command, "eth0"), vec![refusal(-errno)])
}

/// `struct ieee_pfc` with this mask.
fn pfc(mask: u8) -> Vec<u8> {
    let mut pfc = vec![8, mask];
    pfc.resize(136, 0);
    attribute(attr::IEEE_PFC, &pfc)
}

fn apps(apps: &[(u8, u8, u16)]) -> Vec<u8> {
    let entries: Vec<u8> = apps
        .iter()
        .flat_map(|(selector, priority, protocol)| {
            attribute(attr::IEEE_APP, &[&[*selector, *priority], &protocol.to_ne_bytes()[..]].concat())
        })
        .collect();
    attribute(attr::IEEE_APP_TABLE, &entries)
}

fn ieee(content: &[Vec<u8>]) -> Exchange {
    answer(command::IEEE_GET, &attribute(attr::IEEE, &content.concat()))
}

fn over(ports: PortMap, files: Arc<dyn Files>, exchanges: Vec<Exchange>) -> Congestion {
    Congestion::over(files, ports, Some(Ok(Dcb::over(Box::new(Stored::new(exchanges))))))
}

fn poll(source: &mut Congestion, now: Nanos) -> Vec<CongestionConfig<'static>> {
    let mut said = Vec::new();
    source.poll(now, &mut |observation| {
        let Body::CongestionConfig(config) = &observation.body else { panic!("a configuration") };
        assert_eq!((&*config.device, config.port), ("mlx5_0", 1));
        said.push(CongestionConfig {
            np: config.np.clone(),
            rp: config.rp.clone(),
            pfc_enabled: config.pfc_enabled,
            trust: config.trust.as_deref().map(|trust| trust.to_owned().into()),
            cnp_dscp: config.cnp_dscp,
            ..CongestionConfig::default()
        });
    });
    said
}

/// What DCB says of a port of this driver.
fn dcb_of(driver: &str, exchanges: Vec<Exchange>) -> Option<(Option<[bool; 8]>, Option<String>)> {
    let (_dir, files) = tree(&[]);
    let mut said = poll(&mut over(ports(Some(driver)), files, exchanges), SECOND);
    said.pop().map(|said| (said.pfc_enabled, said.trust.map(Into::into)))
}

const PRIORITY_3: [bool; 8] = [false, false, false, true, false, false, false, false];

#[test]
fn pfc_is_the_mask_and_entries_for_dscp_are_trust_in_dscp_for_mlx5() {
    let dscp = ieee(&[pfc(0b1000), apps(&[(1, 3, 0x8906), (5, 3, 26)])]);
    assert_eq!(dcb_of("mlx5_core", vec![dscp]), Some((Some(PRIORITY_3), Some("dscp".to_owned()))));
    let none = ieee(&[pfc(0), apps(&[(1, 3, 0x8906)])]);
    assert_eq!(dcb_of("mlx5_core", vec![none]), Some((Some([false; 8]), Some("pcp".to_owned()))));
}

#[test]
fn what_another_driver_trusts_is_unknown_unless_it_says_so() {
    let entries = ieee(&[pfc(0b1000), apps(&[(5, 3, 26)])]);
    assert_eq!(dcb_of("bnxt_en", vec![entries]), Some((Some(PRIORITY_3), None)));
    let told = |selector: u8| {
        let table = attribute(attr::APP_TRUST_TABLE, &attribute(1, &[selector]));
        ieee(&[pfc(0b1000), apps(&[]), table])
    };
    assert_eq!(dcb_of("bnxt_en", vec![told(5)]), Some((Some(PRIORITY_3), Some("dscp".to_owned()))));
    assert_eq!(dcb_of("bnxt_en", vec![told(255)]), Some((Some(PRIORITY_3), Some("pcp".to_owned()))));
}

#[test]
fn where_the_ieee_form_has_no_pfc_the_older_form_is_asked() {
    let up: Vec<u8> = (1..=8u16).flat_map(|kind| attribute(kind, &[u8::from(kind == 4)])).collect();
    let cee = || answer(command::CEE_GET, &attribute(attr::CEE, &attribute(attr::CEE_PFC, &up)));
    let state = |on: u8| answer(command::PFC_GSTATE, &attribute(attr::PFC_STATE, &[on]));
    for first in [refused(command::IEEE_GET, 95), ieee(&[apps(&[])])] {
        assert_eq!(dcb_of("ixgbe", vec![first.clone(), cee(), state(1)]), Some((Some(PRIORITY_3), None)));
        assert_eq!(dcb_of("ixgbe", vec![first, cee(), state(0)]), Some((Some([false; 8]), None)));
    }
}

#[test]
fn a_driver_without_dcb_says_nothing_and_is_no_fault() {
    let refusals = || vec![refused(command::IEEE_GET, 95), refused(command::CEE_GET, 95)];
    assert_eq!(dcb_of("virtio_net", refusals()), None);
    let (_dir, files) = tree(&[]);
    let mut source = over(ports(Some("virtio_net")), files, refusals());
    poll(&mut source, SECOND);
    assert_eq!(source.availability().state, Seeing::Off);
    assert_eq!(source.availability().reason().unwrap(), "congestion parameters: no port's driver offers them");
}

#[test]
fn a_refusal_is_said_with_its_reason() {
    let (_dir, files) = tree(&[]);
    let mut source = over(ports(None), files, vec![refused(command::IEEE_GET, 1)]);
    poll(&mut source, SECOND);
    assert!(source.availability().reason().unwrap().contains("Operation not permitted"));
}

#[test]
fn the_vendor_drivers_files_are_read_by_their_own_names() {
    let mut list = vec![
        ("class/net/eth0/ecn/roce_np/cnp_dscp", "48\n"),
        ("class/net/eth0/ecn/roce_np/min_time_between_cnps", "4\n"),
        ("class/net/eth0/ecn/roce_rp/rpg_time_reset", "300\n"),
        ("class/net/eth0/ecn/roce_rp/rpg_gd", "odd\n"),
    ];
    let enable: Vec<String> = (0..8).map(|n| format!("class/net/eth0/ecn/roce_np/enable/{n}")).collect();
    list.extend((0..8).map(|n| (enable[n].as_str(), if n == 3 { "1\n" } else { "0\n" })));
    // Of the sender one priority cannot be read: which are on is not known.
    list.push(("class/net/eth0/ecn/roce_rp/enable/0", "1\n"));
    let (_dir, files) = tree(&list);
    let said = poll(&mut Congestion::of_tree(files, ports(None)), SECOND).remove(0);
    let np = serde_json::json!({"cnp_dscp": 48, "min_time_between_cnps": 4, "enable": PRIORITY_3});
    assert_eq!(Value::Object(said.np), np);
    assert_eq!(Value::Object(said.rp), serde_json::json!({"rpg_time_reset": 300}));
    assert_eq!((said.cnp_dscp, said.pfc_enabled, said.trust), (Some(48), None, None));
}

#[test]
fn mlx5s_debugfs_files_get_the_vendors_names_and_the_vendors_files_stand() {
    let dir = "kernel/debug/mlx5/0000:3b:00.0/cc_params";
    let files = [
        (format!("{dir}/np_cnp_prio"), "6\n"),
        (format!("{dir}/np_cnp_dscp"), "47\n"),
        (format!("{dir}/rp_dce_tcp_g"), "1019\n"),
        (format!("{dir}/rp_time_reset"), "300\n"),
        (format!("{dir}/rtt_resp_dscp"), "0\n"),
        ("class/net/eth0/ecn/roce_np/cnp_dscp".to_owned(), "48\n"),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let (_dir, files) = tree(&files);
    let said = poll(&mut Congestion::of_tree(files.clone(), ports(Some("mlx5_core"))), SECOND).remove(0);
    assert_eq!(Value::Object(said.np), serde_json::json!({"cnp_dscp": 48, "cnp_802p_prio": 6}));
    let rp = serde_json::json!({"dce_tcp_g": 1019, "rpg_time_reset": 300, "rtt_resp_dscp": 0});
    assert_eq!(Value::Object(said.rp), rp);
    // Of another driver's device debugfs is not opened.
    let said = poll(&mut Congestion::of_tree(files, ports(Some("bnxt_en"))), SECOND).remove(0);
    assert_eq!(Value::Object(said.np), serde_json::json!({"cnp_dscp": 48}));
    assert!(said.rp.is_empty());
}

#[test]
fn an_mlx5_port_without_parameters_is_named_with_what_to_do() {
    let (_dir, files) = tree(&[]);
    let mut source = Congestion::of_tree(files, ports(Some("mlx5_core")));
    assert!(poll(&mut source, SECOND).is_empty());
    let missing = source.availability().missing.remove(0);
    assert_eq!(missing.what, "congestion parameters of mlx5_0 port 1");
    assert!(missing.fix.unwrap().contains("debugfs"));
}

#[test]
fn files_that_fail_beside_others_that_are_read_are_a_gap() {
    let path = |name: &str| format!("kernel/debug/mlx5/0000:3b:00.0/cc_params/{name}");
    let list = ["np_cnp_dscp", "rp_gd", "rp_threshold"].map(path);
    let (dir, _) = tree(&list.each_ref().map(|path| (path.as_str(), "48\n")));
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(dir.path()).unwrap()));
    files.fail(&list[1], false, 5);
    let mut source = Congestion::of_tree(files.clone(), ports(Some("mlx5_core")));
    assert_eq!(poll(&mut source, SECOND)[0].cnp_dscp, Some(48));
    assert_eq!(source.availability().state, Seeing::Partial);
    assert!(source.availability().reason().unwrap().ends_with("cc_params in debugfs: EIO of rp_gd"));
    files.fail(&list[2], false, 5);
    poll(&mut source, 61 * SECOND);
    assert!(source.availability().reason().unwrap().ends_with("EIO of rp_gd and 1 more"));
    files.heal();
    poll(&mut source, 121 * SECOND);
    assert_eq!(source.availability().state, Seeing::Ok);
}

#[test]
fn what_was_said_is_taken_back_once_when_nothing_can_be_read_any_more() {
    let (dir, files) = tree(&[("class/net/eth0/ecn/roce_np/cnp_dscp", "48\n")]);
    let mut source = Congestion::of_tree(files, ports(None));
    assert_eq!(poll(&mut source, SECOND)[0].cnp_dscp, Some(48));
    std::fs::remove_dir_all(dir.path().join("class/net/eth0/ecn")).unwrap();
    let said = poll(&mut source, 61 * SECOND);
    assert!(said.len() == 1 && said[0].says_nothing(), "{said:?}");
    assert!(poll(&mut source, 121 * SECOND).is_empty());
}

#[test]
fn parameters_are_read_once_a_minute_and_when_the_ports_change() {
    let (dir, files) = tree(&[("class/net/eth0/ecn/roce_np/cnp_dscp", "48\n")]);
    let list = ports(None);
    let mut source = Congestion::of_tree(files, list.clone());
    assert_eq!(poll(&mut source, SECOND).len(), 1);
    std::fs::write(dir.path().join("class/net/eth0/ecn/roce_np/cnp_dscp"), "46\n").unwrap();
    assert!(poll(&mut source, 60 * SECOND).is_empty());
    assert_eq!(source.due(), 61 * SECOND);
    assert_eq!(poll(&mut source, 61 * SECOND)[0].cnp_dscp, Some(46));
    list.set(ports(Some("mlx5_core")).now().to_vec());
    assert_eq!(poll(&mut source, 62 * SECOND).len(), 1);
}
