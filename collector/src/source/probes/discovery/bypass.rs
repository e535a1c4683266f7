//! By which of the files a process maps it can post where no probe sees it: without a call of libibverbs.
//!
//! Two things tell. Libraries whose business that is are known by name ([`KNOWN`]). Any other file gives itself away by the
//! functions of a provider it calls ([`SHARED`]): who wants to write work requests itself has to ask where the queues lie,
//! or make them himself. A program that looks these functions up at run time (`dlsym`), or has the provider linked into
//! it, is not found; nor is what a library of many talents does: NCCL posts by libibverbs, but its GPU-initiated mode, built
//! into `libnccl.so` itself since 2.28, does not.
//!
//! That a file is mapped says what may be, not what is. gdrcopy copies, and posts nothing; libfabric's and NCCL's verbs code
//! calls libibverbs, and is seen.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use super::super::library::Library;
use super::process::reachable;
use super::provider::{SHARED, base, is_verbs, tells};
use crate::observation::Way;
use crate::source::verbs::FileId;
use crate::source::verbs::maps::Mapping;

/// How the name of a file begins, and what it can do. The first that fits counts. Names are those their builds install:
/// UCX `ucx.spec.in` and `src/uct/ib/mlx5/Makefile.am` (in versions that have no `libuct_ib_mlx5`, `libuct_ib.so` itself calls
/// libmlx5), NVSHMEM `src/modules/transport` (the transports `ibrc` and `libfabric` post by libibverbs), DPDK
/// `drivers/common/mlx5` (`_glue` where it loads libmlx5 at run time) and `drivers/net/mlx5`, DOCA SDK `/opt/mellanox/doca/lib`.
const KNOWN: &[(&str, Way)] = &[
    ("libuct_ib_mlx5_gda.so", Way::Gpu),
    ("nvshmem_transport_ibgda.so", Way::Gpu),
    ("nvshmem_transport_gpunetio.so", Way::Gpu),
    ("libdoca_gpunetio.so", Way::Gpu),
    ("libuct_ib_mlx5.so", Way::UcxMlx5),
    ("librte_common_mlx5", Way::Dpdk),
    ("librte_net_mlx5", Way::Dpdk),
    ("libdoca_rdma.so", Way::Doca),
    ("libdoca_verbs.so", Way::Doca),
    ("nvshmem_transport_ibdevx.so", Way::Devx),
];

/// What is known of files that were looked into, so that each is looked into once while a process maps it: the numbers of one
/// that is gone are used again.
pub(super) type Calls = HashMap<FileId, Vec<Way>>;

/// The ways a process has by what it maps, each with the file that tells, in the order of [`Way`].
///
/// The files that were looked into are added to `looked_into`.
pub(super) fn ways(
    dir: &Path,
    mappings: &[Mapping<'_>],
    known: &mut Calls,
    looked_into: &mut Vec<FileId>,
) -> Vec<(Way, String)> {
    let direct = mappings.iter().any(|mapping| tells(mapping.name));
    let mut files = BTreeSet::new();
    let mut found: Vec<(Way, String)> = Vec::new();
    for mapping in mappings.iter().filter(|mapping| mapping.is_code() && files.insert(mapping.file)) {
        let name = base(mapping.name);
        let ways = match by_name(name) {
            Some(way) => vec![way],
            None if !direct || is_verbs(mapping.name) => continue,
            None => {
                looked_into.push(mapping.file);
                known.entry(mapping.file).or_insert_with(|| by_calls(&reachable(dir, mapping), name)).clone()
            }
        };
        for way in ways {
            if !found.iter().any(|(other, _)| *other == way) {
                found.push((way, name.to_owned()));
            }
        }
    }
    found.sort();
    found
}

fn by_name(name: &str) -> Option<Way> {
    KNOWN.iter().find(|(begins, _)| name.starts_with(begins)).map(|(_, way)| *way)
}

fn by_calls(file: &Path, name: &str) -> Vec<Way> {
    let direct =
        || SHARED.iter().flat_map(|(library, calls)| calls.iter().map(move |(call, way)| (*library, *call, *way)));
    let functions: Vec<(&str, &str)> = direct().map(|(library, function, _)| (library, function)).collect();
    let calls = Library::open(file).map(|library| library.calls(&functions)).unwrap_or_default();
    let way = |call: &&str| direct().find(|(_, function, _)| function == call).map(|(.., way)| way);
    let ways: BTreeSet<Way> = calls.iter().filter_map(way).collect();
    if !ways.is_empty() && name.starts_with("libuct_ib.so") {
        return vec![Way::UcxMlx5];
    }
    ways.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::verbs::maps::mappings;

    fn of(maps: &str, known: &mut Calls) -> Vec<(Way, String)> {
        let mappings: Vec<_> = mappings(maps).collect();
        ways(Path::new("/proc/self"), &mappings, known, &mut Vec::new())
    }

    fn line(at: u64, inode: u64, name: &str) -> String {
        format!("{at:x}000-{at:x}fff r-xp 00000000 fe:00 {inode} {name}\n")
    }

    #[test]
    fn libraries_whose_business_it_is_are_told_by_their_names() {
        for (name, way) in [
            ("/opt/ucx/lib/ucx/libuct_ib_mlx5.so.0.0.0", Way::UcxMlx5),
            ("/opt/ucx/lib/ucx/libuct_ib_mlx5_gda.so.0", Way::Gpu),
            ("/usr/lib/nvshmem_transport_ibgda.so.3.0.0", Way::Gpu),
            ("/usr/lib/nvshmem_transport_ibdevx.so.3", Way::Devx),
            ("/opt/mellanox/doca/lib/x86_64-linux-gnu/libdoca_gpunetio.so.2", Way::Gpu),
            ("/usr/lib/librte_common_mlx5_glue.so.25.0", Way::Dpdk),
        ] {
            let found = of(&line(0x7f0, 7, name), &mut Calls::new());
            assert_eq!(found, [(way, base(name).to_owned())], "{name}");
        }
    }

    #[test]
    fn libraries_that_post_by_libibverbs_or_not_at_all_are_no_evidence() {
        for name in [
            "/usr/lib/libgdrapi.so.2.4",
            "/usr/lib/libnccl.so.2.27.3",
            "/usr/lib/nvshmem_transport_ibrc.so.3",
            "/usr/lib/libfabric.so.1",
            "/usr/lib/ucx/libuct_ib.so.0",
            "/usr/lib/libucp.so.0",
            "/usr/lib/libmlx5.so.1.24.44.0",
        ] {
            assert_eq!(of(&line(0x7f0, 7, name), &mut Calls::new()), [], "{name}");
        }
    }

    #[test]
    fn a_file_that_asks_for_queues_is_named_once_and_looked_into_only_beside_such_a_provider() {
        let ours = line(0x7f0, 9, "/usr/bin/own_engine");
        let mut known = Calls::from([(((0xfe, 0), 9), vec![Way::Devx, Way::DirectVerbs])]);
        assert_eq!(of(&ours, &mut known), [], "nothing here has such functions");
        for provider in ["/usr/lib/libhns.so.1", "/usr/lib/libionic.so.1"] {
            let maps = [line(0x7e0, 7, provider), ours.clone()].concat();
            assert_eq!(of(&maps, &mut known), [], "nor has {provider}");
        }
        let maps = [line(0x7e0, 7, "/usr/lib/libmlx5.so.1.24.44.0"), ours.clone(), ours.replace("7f0", "7f1")].concat();
        let name = || "own_engine".to_owned();
        assert_eq!(of(&maps, &mut known), [(Way::Devx, name()), (Way::DirectVerbs, name())]);
        assert_eq!(known.len(), 1, "the provider itself is not looked into");
    }
}
