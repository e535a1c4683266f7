//! The verbs libraries by the names of their files.

use crate::observation::Way;

/// Providers that are libraries, with functions of their own that programs call: how the file's name begins, and those of the
/// functions by which a program asks where the queues lie, or makes them itself.
///
/// They are those of rdma-core (`rdma_shared_provider` in `providers/*/CMakeLists.txt`), and Broadcom's own build of its provider,
/// which is a plug-in there. Their plug-ins (`libmlx5-rdmav34.so`) are links to the library, whose name is the one a mapping has.
pub(super) const SHARED: &[(&str, &[(&str, Way)])] = &[
    // efadv_query_qp_wqs(3): libfabric's direct data path and its export to accelerators.
    ("libefa.so", &[("efadv_query_qp_wqs", Way::DirectVerbs)]),
    // What these export tells nobody where work requests are written.
    ("libhns.so", &[]),
    ("libionic.so", &[]),
    ("libmana.so", &[("manadv_init_obj", Way::DirectVerbs)]),
    ("libmlx4.so", &[("mlx4dv_init_obj", Way::DirectVerbs)]),
    // mlx5dv_init_obj(3): where a QP's and a CQ's memory and doorbell lie. mlx5dv_devx_obj_create(3): objects of the device's
    // own, among them queues.
    ("libmlx5.so", &[("mlx5dv_init_obj", Way::DirectVerbs), ("mlx5dv_devx_obj_create", Way::Devx)]),
    ("libbnxt_re.so", &[("bnxt_re_dv_init_obj", Way::DirectVerbs)]),
];

/// The name of a file without its directory.
pub(super) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(super) fn is_libibverbs(path: &str) -> bool {
    base(path).starts_with("libibverbs.so")
}

/// One of [`SHARED`].
pub(super) fn is_shared(path: &str) -> bool {
    SHARED.iter().any(|(library, _)| base(path).starts_with(library))
}

/// One of [`SHARED`] that tells programs where the queues lie.
pub(super) fn tells(path: &str) -> bool {
    SHARED.iter().any(|(library, calls)| !calls.is_empty() && base(path).starts_with(library))
}

/// A provider: a plug-in, or one of those that are libraries.
pub(super) fn is_provider(path: &str) -> bool {
    base(path).contains("-rdmav") || is_shared(path)
}

pub(super) fn is_verbs(path: &str) -> bool {
    is_libibverbs(path) || is_provider(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_told_from_other_libraries() {
        for path in [
            "/usr/lib/libibverbs/librxe-rdmav34.so",
            "/opt/ofed/libmlx5.so.1.24.44.0",
            "/lib/libefa-rdmav57.so",
            "/usr/lib/libionic.so.1.0.57.0",
            "/usr/local/lib/libbnxt_re.so.1.0.0",
        ] {
            assert!(is_provider(path) && is_verbs(path), "{path}");
        }
        for path in ["/usr/lib/libibverbs.so.1.14.44.0", "/usr/lib/libibverbs/readme", "/usr/lib/libmlx.so"] {
            assert!(!is_provider(path), "{path}");
        }
        assert!(is_libibverbs("/usr/lib/libibverbs.so.1") && !is_libibverbs("/usr/lib/librdmacm.so.1"));
    }
}
